//! DescribeTransactions (key 65), version 0.
//!
//! Answers TRANSACTIONAL_ID_NOT_FOUND for every id (KIP-664, S-99): transactions are not built, so there is none to describe.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::{DescribeTransactionsRequest, DescribeTransactionsResponse};

use super::{CloseConnection, Reply, RequestContext};

/// Answers at once.
pub async fn handle(context: &RequestContext, request: DescribeTransactionsRequest) -> Result<Reply, CloseConnection> {
    let states = request.transactional_ids.into_iter().map(|id| {
        TransactionState::default()
            .with_transactional_id(id)
            .with_error_code(ResponseError::TransactionalIdNotFound.code())
    });
    context.ready(&DescribeTransactionsResponse::default().with_transaction_states(states.collect()))
}
