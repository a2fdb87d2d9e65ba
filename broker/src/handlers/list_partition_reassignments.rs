//! ListPartitionReassignments (key 46), version 0.
//!
//! Answers an empty list: one broker, so nothing ever moves. UIs ask whenever they list topics (S-106).

use kafka_protocol::messages::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};

use super::{CloseConnection, Reply, RequestContext};

/// Answers at once.
pub async fn handle(
    context: &RequestContext,
    _request: ListPartitionReassignmentsRequest,
) -> Result<Reply, CloseConnection> {
    context.ready(&ListPartitionReassignmentsResponse::default())
}
