//! ListTransactions (key 66), versions 0 to 2.
//!
//! Answers the transactional ids that pass every filter given (KIP-664, S-99). State names that Kafka does not know are returned, and let nothing through.
//!
//! * v1 duration filter (KIP-994); v2 a pattern that the whole transactional id must match (KIP-1152), INVALID_REGULAR_EXPRESSION when it is none.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_transactions_response::TransactionState as Listed;
use kafka_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse, ProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use regex::Regex;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::transaction_error;
use crate::coordinator::transaction::{TransactionFilter, TransactionState};

/// Answers at once.
pub async fn handle(context: &RequestContext, request: ListTransactionsRequest) -> Result<Reply, CloseConnection> {
    let pattern = request.transactional_id_pattern.as_deref().filter(|pattern| !pattern.is_empty());
    // RE2's syntax, which is this crate's; the whole id has to match.
    let pattern = match pattern.map(|pattern| Regex::new(&format!("^(?:{pattern})$"))).transpose() {
        Ok(pattern) => pattern,
        Err(_) => {
            let code = ResponseError::InvalidRegularExpression.code();
            return context.ready(&ListTransactionsResponse::default().with_error_code(code));
        }
    };
    let (mut states, mut unknown) = (Vec::new(), Vec::new());
    let has_states = !request.state_filters.is_empty();
    for name in request.state_filters {
        match TransactionState::from_name(&name) {
            Some(state) => states.push(state),
            None => unknown.push(name),
        }
    }
    let filter = TransactionFilter {
        states: has_states.then_some(states),
        producer_ids: request.producer_id_filters.into_iter().map(|id| id.0).collect(),
        duration_ms: request.duration_filter,
    };
    let listed = match context.broker.transactions.list(&filter) {
        Ok(listed) => listed,
        Err(error) => {
            let code = transaction_error(error).code();
            return context.ready(&ListTransactionsResponse::default().with_error_code(code));
        }
    };
    let matching = listed.into_iter().filter(|(id, ..)| pattern.as_ref().is_none_or(|pattern| pattern.is_match(id)));
    let states = matching.map(|(id, producer_id, state)| {
        Listed::default()
            .with_transactional_id(TransactionalId(StrBytes::from_string((*id).to_owned())))
            .with_producer_id(ProducerId(producer_id))
            .with_transaction_state(StrBytes::from_static_str(state.name()))
    });
    let response = ListTransactionsResponse::default().with_transaction_states(states.collect());
    context.ready(&response.with_unknown_state_filters(unknown))
}
