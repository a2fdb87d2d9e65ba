//! CreateAcls (key 30), versions 1 to 3.
//!
//! Answers SECURITY_DISABLED for every ACL, as Kafka does without an authorizer (S-102).
//!
//! * v1 pattern types (KIP-290); v2 compact encodings; v3 the resource type "user" (KIP-373).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::{CreateAclsRequest, CreateAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::describe_acls::NO_AUTHORIZER;
use super::{CloseConnection, Reply, RequestContext};

/// Refuses each.
pub async fn handle(context: &RequestContext, request: CreateAclsRequest) -> Result<Reply, CloseConnection> {
    let refused = AclCreationResult::default()
        .with_error_code(ResponseError::SecurityDisabled.code())
        .with_error_message(Some(StrBytes::from_static_str(NO_AUTHORIZER)));
    context.ready(&CreateAclsResponse::default().with_results(vec![refused; request.creations.len()]))
}
