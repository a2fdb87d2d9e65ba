//! DescribeTransactions (key 65), version 0.
//!
//! Answers where transactional ids stand: producer, state, and the partitions of an open transaction (KIP-664, S-99).

use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState as Described};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::transaction_error;
use crate::coordinator::transaction::TransactionMetadata;

/// Answers at once.
pub async fn handle(context: &RequestContext, request: DescribeTransactionsRequest) -> Result<Reply, CloseConnection> {
    let states =
        request.transactional_ids.into_iter().map(|id| match context.broker.transactions.describe(id.as_str()) {
            Ok(metadata) => described(id, &metadata),
            Err(error) => {
                Described::default().with_transactional_id(id).with_error_code(transaction_error(error).code())
            }
        });
    context.ready(&DescribeTransactionsResponse::default().with_transaction_states(states.collect()))
}

fn described(id: TransactionalId, metadata: &TransactionMetadata) -> Described {
    let topics = metadata.partitions.topics().map(|(topic, partitions)| {
        let name = TopicName(StrBytes::from_string((**topic).to_owned()));
        TopicData::default().with_topic(name).with_partitions(partitions.iter().copied().collect())
    });
    Described::default()
        .with_transactional_id(id)
        .with_transaction_state(StrBytes::from_static_str(metadata.state.name()))
        .with_transaction_timeout_ms(metadata.timeout_ms)
        .with_transaction_start_time_ms(metadata.started_wall_ms.unwrap_or(-1))
        .with_producer_id(ProducerId(metadata.producer_id))
        .with_producer_epoch(metadata.producer_epoch)
        .with_topics(topics.collect())
}
