//! DescribeAcls (key 29), versions 1 to 3.
//!
//! Answers SECURITY_DISABLED, as Kafka does without an authorizer: there are no ACLs, and UIs hide the page when they are told so (S-102).
//!
//! * v1 pattern types (KIP-290); v2 compact encodings; v3 the resource type "user" (KIP-373).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

/// What every ACL request is told.
pub(super) const NO_AUTHORIZER: &str = "there are no ACLs: everyone who can connect may do everything";

/// Refuses.
pub async fn handle(context: &RequestContext, _request: DescribeAclsRequest) -> Result<Reply, CloseConnection> {
    let response = DescribeAclsResponse::default()
        .with_error_code(ResponseError::SecurityDisabled.code())
        .with_error_message(Some(StrBytes::from_static_str(NO_AUTHORIZER)));
    context.ready(&response)
}
