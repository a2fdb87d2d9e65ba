//! AddPartitionsToTxn (key 24), versions 0 to 5.
//!
//! Adds partitions to a producer's transaction, and begins one when none is open; answered when that is durable. All or nothing: one partition that does not
//! exist, and none is added (S-95).
//!
//! * v0 to v3 come from producers; v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588); v3 compact encodings; v4 many transactions at once, and only
//!   to verify (KIP-890): from brokers, of which there is one, but anyone may ask; v5 adds under the second version of transactions.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::{transaction_error, transaction_error_before_fenced};
use crate::coordinator::transaction::{ClientVersion, Producer, TransactionError};

/// Adds, or verifies.
pub async fn handle(context: &RequestContext, request: AddPartitionsToTxnRequest) -> Result<Reply, CloseConnection> {
    if context.version < 4 {
        let transaction = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(request.v3_and_below_transactional_id)
            .with_producer_id(request.v3_and_below_producer_id)
            .with_producer_epoch(request.v3_and_below_producer_epoch)
            .with_topics(request.v3_and_below_topics);
        let topics = add(context, &transaction).await;
        return context.ready(&AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics));
    }
    let mut results = Vec::with_capacity(request.transactions.len());
    for transaction in request.transactions {
        let topics =
            if transaction.verify_only { verify(context, &transaction) } else { add(context, &transaction).await };
        results.push(
            AddPartitionsToTxnResult::default()
                .with_transactional_id(transaction.transactional_id)
                .with_topic_results(topics),
        );
    }
    context.ready(&AddPartitionsToTxnResponse::default().with_results_by_transaction(results))
}

async fn add(
    context: &RequestContext,
    transaction: &AddPartitionsToTxnTransaction,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let refused = |topic: &str, index: i32| refusal(context, topic, index);
    if asked(transaction).any(|(topic, index)| refused(&topic, index).is_some()) {
        return answer(&transaction.topics, |topic, index| {
            refused(topic, index).unwrap_or(ResponseError::OperationNotAttempted).code()
        });
    }
    let version = if context.version >= 5 { ClientVersion::V2 } else { ClientVersion::V0 };
    let (id, producer) = (transaction.transactional_id.as_str(), producer(transaction));
    let coordinator = &context.broker.transactions;
    let added = coordinator.add_partitions(id, producer, asked(transaction).collect(), version).await;
    let code = code(context, added);
    answer(&transaction.topics, |_, _| code)
}

fn verify(context: &RequestContext, transaction: &AddPartitionsToTxnTransaction) -> Vec<AddPartitionsToTxnTopicResult> {
    let partitions: Vec<(Arc<str>, i32)> = asked(transaction).collect();
    let id = transaction.transactional_id.as_str();
    let verified = context.broker.transactions.verify(id, producer(transaction), &partitions);
    let mut each = match verified {
        Ok(each) => each.into_iter(),
        Err(error) => vec![Err(error); partitions.len()].into_iter(),
    };
    answer(&transaction.topics, |_, _| code(context, each.next().expect("one per partition, in their order")))
}

/// Internal topics are the broker's own to write.
fn refusal(context: &RequestContext, topic: &str, index: i32) -> Option<ResponseError> {
    match context.broker.storage.topics().by_name(topic) {
        Some(found) if found.record.internal => Some(ResponseError::TopicAuthorizationFailed),
        Some(found) if (0..found.partitions()).contains(&index) => None,
        Some(_) | None => Some(ResponseError::UnknownTopicOrPartition),
    }
}

fn producer(transaction: &AddPartitionsToTxnTransaction) -> Producer {
    Producer { id: transaction.producer_id.0, epoch: transaction.producer_epoch }
}

fn asked(transaction: &AddPartitionsToTxnTransaction) -> impl Iterator<Item = (Arc<str>, i32)> + '_ {
    transaction.topics.iter().flat_map(|topic| {
        let name: Arc<str> = Arc::from(topic.name.as_str());
        topic.partitions.iter().map(move |index| (name.clone(), *index))
    })
}

fn code(context: &RequestContext, outcome: Result<(), TransactionError>) -> i16 {
    match outcome {
        Ok(()) => 0,
        Err(error) if context.version < 2 => transaction_error_before_fenced(error).code(),
        Err(error) => transaction_error(error).code(),
    }
}

fn answer(
    topics: &[AddPartitionsToTxnTopic],
    mut code: impl FnMut(&str, i32) -> i16,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let topic = |topic: &AddPartitionsToTxnTopic| {
        let partitions = topic.partitions.iter().map(|index| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*index)
                .with_partition_error_code(code(topic.name.as_str(), *index))
        });
        let partitions = partitions.collect();
        AddPartitionsToTxnTopicResult::default().with_name(topic.name.clone()).with_results_by_partition(partitions)
    };
    topics.iter().map(topic).collect()
}
