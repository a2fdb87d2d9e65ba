//! DeleteAcls (key 31), versions 1 to 3.
//!
//! Answers SECURITY_DISABLED for every filter, as Kafka does without an authorizer (S-102).
//!
//! * v1 pattern types (KIP-290); v2 compact encodings; v3 the resource type "user" (KIP-373).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::describe_acls::NO_AUTHORIZER;
use super::{CloseConnection, Reply, RequestContext};

/// Refuses each.
pub async fn handle(context: &RequestContext, request: DeleteAclsRequest) -> Result<Reply, CloseConnection> {
    let refused = DeleteAclsFilterResult::default()
        .with_error_code(ResponseError::SecurityDisabled.code())
        .with_error_message(Some(StrBytes::from_static_str(NO_AUTHORIZER)));
    context.ready(&DeleteAclsResponse::default().with_filter_results(vec![refused; request.filters.len()]))
}
