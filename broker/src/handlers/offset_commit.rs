//! OffsetCommit (key 8), versions 2 to 9.
//!
//! Stores the offsets of a group; answered when they are durable (S-83).
//!
//! * v2 to v4 carry a retention time, which is kept to; v3 throttle time; v5 drops the retention time; v6 leader epoch (KIP-320); v7 static members (KIP-345); v8
//!   compact encodings; v9 is also sent by members of KIP-848 groups, which are not built: their epochs are unknown members here.
//! * Differs from Kafka: the limit on metadata counts bytes, not UTF-16 units.

use std::sync::Arc;

use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use weir_storage::Topics;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::GroupError;
use crate::coordinator::{Commit, OffsetToCommit};

/// Commits.
pub async fn handle(context: &RequestContext, request: OffsetCommitRequest) -> Result<Reply, CloseConnection> {
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
            let refused = check(&topics, &name, index, metadata.len(), max_metadata).err();
            if refused.is_none() {
                offsets.push(OffsetToCommit {
                    topic: name.clone(),
                    partition: index,
                    offset: partition.committed_offset,
                    leader_epoch: Some(partition.committed_leader_epoch).filter(|epoch| *epoch >= 0),
                    metadata,
                });
            }
            partitions.push((index, refused));
        }
        response.push((topic.name, partitions));
    }
    let commit = Commit {
        member_id: Arc::from(&*request.member_id),
        instance_id: request.group_instance_id.map(|id| Arc::from(&*id)),
        generation: request.generation_id_or_member_epoch,
        // -1, and versions without the field, leave it to the broker.
        retention_ms: Some(request.retention_time_ms).filter(|retention| *retention >= 0),
        offsets,
    };
    let answer = context.broker.groups.commit(Arc::from(request.group_id.as_str()), commit).await;
    Ok(context.pending(async move {
        let outcome = answer.wait().await.and_then(|outcome| outcome).err();
        let topics = response.into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter().map(|(index, refused)| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(group_code(refused.or(outcome)))
            });
            OffsetCommitResponseTopic::default().with_name(name).with_partitions(partitions.collect())
        });
        Ok(OffsetCommitResponse::default().with_topics(topics.collect()))
    }))
}

/// What refuses one partition of a commit before its group is asked.
pub(super) fn check(
    topics: &Topics,
    name: &str,
    partition: i32,
    metadata: usize,
    max_metadata: usize,
) -> Result<(), GroupError> {
    match topics.by_name(name) {
        Some(topic) if (0..topic.partitions()).contains(&partition) => {}
        _ => return Err(GroupError::UnknownTopicOrPartition),
    }
    if metadata > max_metadata { Err(GroupError::OffsetMetadataTooLarge) } else { Ok(()) }
}
