//! DescribeClientQuotas (key 48), versions 0 and 1.
//!
//! Answers an empty list: there are no quotas, and AlterClientQuotas sets none (KIP-546). What asks for entities or matches that Kafka does not have is refused.
//!
//! * v1 compact encodings.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

const ENTITY_TYPES: [&str; 3] = ["user", "client-id", "ip"];
/// 0 an exact name, 1 the default entity, 2 any name.
const MATCH_TYPES: std::ops::RangeInclusive<i8> = 0..=2;

/// Answers at once.
pub async fn handle(context: &RequestContext, request: DescribeClientQuotasRequest) -> Result<Reply, CloseConnection> {
    for component in &request.components {
        let refused = if !ENTITY_TYPES.contains(&component.entity_type.as_str()) {
            let reason = format!("entity type '{}' is unknown: ask for user, client-id or ip", component.entity_type);
            Some((ResponseError::UnsupportedVersion, reason))
        } else if !MATCH_TYPES.contains(&component.match_type) {
            let reason = format!("match type {} is unknown: 0 exact, 1 default, 2 any", component.match_type);
            Some((ResponseError::InvalidRequest, reason))
        } else {
            None
        };
        if let Some((code, reason)) = refused {
            let response = DescribeClientQuotasResponse::default()
                .with_error_code(code.code())
                .with_error_message(Some(StrBytes::from_string(reason)))
                .with_entries(None);
            return context.ready(&response);
        }
    }
    // Null stands for an error.
    context.ready(&DescribeClientQuotasResponse::default().with_entries(Some(Vec::new())))
}
