//! Heartbeat (key 12), versions 0 to 4.
//!
//! Keeps a member of a group alive, and tells it when the group rebalances (S-81).
//!
//! * v3 static members (KIP-345); v4 compact encodings.
//! * Does not differ from Kafka.

use std::sync::Arc;

use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::Heartbeat;

/// Beats.
pub async fn handle(context: &RequestContext, request: HeartbeatRequest) -> Result<Reply, CloseConnection> {
    let heartbeat = Heartbeat {
        member_id: Arc::from(&*request.member_id),
        instance_id: request.group_instance_id.map(|id| Arc::from(&*id)),
        generation: request.generation_id,
    };
    let answer = context.broker.groups.heartbeat(Arc::from(request.group_id.as_str()), heartbeat).await;
    Ok(context.pending(async move {
        let error = answer.wait().await.unwrap_or_else(Some);
        Ok(HeartbeatResponse::default().with_error_code(group_code(error)))
    }))
}
