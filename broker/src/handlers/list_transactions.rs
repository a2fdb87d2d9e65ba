//! ListTransactions (key 66), versions 0 to 2.
//!
//! Answers an empty list: transactions are not built, so there are none. State names that Kafka does not know are returned, as it does (KIP-664, S-99).
//!
//! * v1 duration filter (KIP-994); v2 a pattern of transactional ids (KIP-1152).
//! * Differs from Kafka: the pattern is not looked at, since nothing could match it, so a malformed one is no error.

use kafka_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse};

use super::{CloseConnection, Reply, RequestContext};

/// Kafka's `TransactionState` names, which are matched with their case.
const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

/// Answers at once.
pub async fn handle(context: &RequestContext, request: ListTransactionsRequest) -> Result<Reply, CloseConnection> {
    let unknown = request.state_filters.into_iter().filter(|state| !STATES.contains(&&**state));
    context.ready(&ListTransactionsResponse::default().with_unknown_state_filters(unknown.collect()))
}
