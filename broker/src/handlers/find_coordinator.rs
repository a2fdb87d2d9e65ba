//! FindCoordinator (key 10), versions 0 to 6.
//!
//! Answers which broker coordinates a group or a transactional id: this one. The id itself is not looked at: an empty one fails later, in JoinGroup (S-74).
//!
//! * v1 key types; v3 compact encodings; v4 many keys at once, with an error each (KIP-699); v5 a retriable error for transactions (KIP-890), never needed; v6 share
//!   groups (KIP-932).
//! * Differs from Kafka: the answer never is COORDINATOR_NOT_AVAILABLE, since `__consumer_offsets` and `__transaction_state` need not exist yet: the first write
//!   makes them. Share groups are not built: INVALID_REQUEST.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// Answers at once.
pub async fn handle(context: &RequestContext, request: FindCoordinatorRequest) -> Result<Reply, CloseConnection> {
    let identity = &context.broker.identity;
    let known = matches!(request.key_type, GROUP | TRANSACTION);
    let host = if known { StrBytes::from_string(identity.host.clone()) } else { StrBytes::default() };
    let (node, port) = if known { (BrokerId(identity.node_id), identity.port) } else { (BrokerId(-1), -1) };
    let code = if known { 0 } else { ResponseError::InvalidRequest.code() };
    let reason = (!known).then(|| {
        StrBytes::from_string(format!(
            "key type {} is not served: ask for 0 (group) or 1 (transaction)",
            request.key_type
        ))
    });

    let response = if context.version < 4 {
        FindCoordinatorResponse::default()
            .with_error_code(code)
            .with_error_message(if context.version >= 1 { reason } else { None })
            .with_node_id(node)
            .with_host(host)
            .with_port(port)
    } else {
        let one = |key: StrBytes| {
            Coordinator::default()
                .with_key(key)
                .with_node_id(node)
                .with_host(host.clone())
                .with_port(port)
                .with_error_code(code)
                .with_error_message(reason.clone())
        };
        FindCoordinatorResponse::default().with_coordinators(request.coordinator_keys.into_iter().map(one).collect())
    };
    context.ready(&response)
}
