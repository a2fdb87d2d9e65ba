//! DescribeClientQuotas (key 48), versions 0 and 1.
//!
//! Answers an empty list: there are no quotas, and AlterClientQuotas sets none (KIP-546).
//!
//! * v1 compact encodings.

use kafka_protocol::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};

use super::{CloseConnection, Reply, RequestContext};

/// Answers at once.
pub async fn handle(context: &RequestContext, _request: DescribeClientQuotasRequest) -> Result<Reply, CloseConnection> {
    // Null stands for an error.
    context.ready(&DescribeClientQuotasResponse::default().with_entries(Some(Vec::new())))
}
