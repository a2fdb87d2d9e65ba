//! TxnOffsetCommit (key 28), versions 0 to 5.
//!
//! Stores the offsets of a group in a producer's transaction: they count once it is committed, and never when it is aborted (S-97). Answered when durable.
//!
//! * v2 leader epoch (KIP-320); v3 member, generation and static id, which fence a member that was left behind (KIP-447), and compact encodings; v4
//!   TRANSACTION_ABORTABLE; v5 adds the group to the transaction by itself (KIP-890).

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

use super::offset_commit::check;
use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::{group_code, transaction_error};
use crate::coordinator::group::GroupError;
use crate::coordinator::transaction::{Partitions, Producer, TransactionError};
use crate::coordinator::{Commit, GROUP_TOPIC, OffsetToCommit};

/// The first version that adds the group to the transaction.
const ADDS_SINCE: i16 = 5;

/// Verifies the transaction, and commits.
pub async fn handle(context: &RequestContext, request: TxnOffsetCommitRequest) -> Result<Reply, CloseConnection> {
    let topics = context.broker.storage.topics();
    let max_metadata = usize::try_from(context.broker.config.offset_metadata_max_bytes).unwrap_or(0);
    let mut offsets = Vec::new();
    let mut response = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let name: Arc<str> = Arc::from(topic.name.as_str());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let metadata: Arc<str> = Arc::from(partition.committed_metadata.as_deref().unwrap_or_default());
            let index = partition.partition_index;
            let refused = match topics.by_name(&name) {
                None => Some(GroupError::UnknownTopicOrPartition),
                Some(known) => check(known, index, metadata.len(), max_metadata).err(),
            };
            if refused.is_none() {
                offsets.push(OffsetToCommit {
                    topic: name.clone(),
                    partition: index,
                    offset: partition.committed_offset,
                    leader_epoch: Some(partition.committed_leader_epoch).filter(|epoch| *epoch >= 0),
                    metadata,
                });
            }
            partitions.push((index, group_code(refused)));
        }
        response.push((topic.name, partitions));
    }
    let commit = Commit {
        member_id: Arc::from(&*request.member_id),
        instance_id: request.group_instance_id.map(|id| Arc::from(&*id)),
        generation: request.generation_id,
        knows_member_epochs: true,
        retention_ms: None,
        offsets,
    };
    let respond = |code: i16| {
        let topics = response.into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter().map(|(index, refused)| {
                TxnOffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(if refused == 0 { code } else { refused })
            });
            TxnOffsetCommitResponseTopic::default().with_name(name).with_partitions(partitions.collect())
        });
        TxnOffsetCommitResponse::default().with_topics(topics.collect())
    };
    if commit.offsets.is_empty() {
        return context.ready(&respond(0));
    }
    let producer = Producer { id: request.producer_id.0, epoch: request.producer_epoch };
    let (group, id) = (request.group_id.as_str(), request.transactional_id.as_str());
    // Taken first: a marker that comes between the look at the transaction and the write voids it.
    let guard = match context.broker.groups.guard(group, producer.id).await {
        Ok(guard) => guard,
        Err(error) => return context.ready(&respond(group_code(Some(error)))),
    };
    if let Err(error) = verify(context, id, producer, group).await {
        return context.ready(&respond(code(error, context.version).code()));
    }
    let answer = context.broker.groups.commit_in_transaction(Arc::from(group), commit, producer, guard).await;
    Ok(context.pending(async move {
        let outcome = answer.wait().await.and_then(|outcome| outcome).err();
        Ok(respond(group_code(outcome)))
    }))
}

async fn verify(context: &RequestContext, id: &str, producer: Producer, group: &str) -> Result<(), TransactionError> {
    let (transactions, partition) = (&context.broker.transactions, context.broker.groups.partition_of(group));
    if context.version >= ADDS_SINCE {
        return transactions.add_by_writing(id, producer, Partitions::one(GROUP_TOPIC, partition)).await;
    }
    let partitions = [(Arc::from(GROUP_TOPIC), partition)];
    transactions.verify(id, producer, &partitions)?.into_iter().collect()
}

/// Kafka's: a fenced producer is told INVALID_PRODUCER_EPOCH here, and a version without TRANSACTION_ABORTABLE gets INVALID_TXN_STATE for it.
fn code(error: TransactionError, version: i16) -> ResponseError {
    match transaction_error(error) {
        ResponseError::ProducerFenced => ResponseError::InvalidProducerEpoch,
        ResponseError::TransactionAbortable if version < 4 => ResponseError::InvalidTxnState,
        code => code,
    }
}
