//! OffsetCommit (key 8), versions 2 to 10.
//!
//! Stores the offsets of a group; answered when they are durable (S-83).
//!
//! * v2 to v4 carry a retention time, which is kept to; v3 throttle time; v5 drops the retention time; v6 leader epoch (KIP-320); v7 static members (KIP-345); v8
//!   compact encodings; v9 is also sent by members of KIP-848 groups, with their epoch (S-92): STALE_MEMBER_EPOCH, and GROUP_ID_NOT_FOUND for a group
//!   that is not there; v10 topic ids instead of names.
//! * Differs from Kafka: the limit on metadata counts bytes, not UTF-16 units.

use std::sync::Arc;

use kafka_protocol::messages::OffsetCommitResponse;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use weir_model::TopicId;
use weir_protocol::offsets_by_id::OffsetCommit;
use weir_storage::TopicInfo;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::GroupError;
use crate::coordinator::{Commit, OffsetToCommit};

/// Commits.
pub async fn handle(context: &RequestContext, request: OffsetCommit) -> Result<Reply, CloseConnection> {
    let OffsetCommit(request) = request;
    let topics = context.broker.storage.topics();
    let max_metadata = usize::try_from(context.broker.config.offset_metadata_max_bytes).unwrap_or(0);
    let mut offsets = Vec::new();
    let mut response = Vec::with_capacity(request.topics.len());
    let (version, by_id) = (context.version, context.version >= 10);
    for topic in request.topics {
        let known =
            if by_id { topics.get(TopicId::from_uuid(topic.topic_id)) } else { topics.by_name(topic.name.as_str()) };
        let name: Arc<str> = Arc::from(known.map_or(topic.name.as_str(), |known| known.name().as_str()));
        let missing = if by_id { GroupError::UnknownTopicId } else { GroupError::UnknownTopicOrPartition };
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let metadata: Arc<str> = Arc::from(partition.committed_metadata.as_deref().unwrap_or_default());
            let index = partition.partition_index;
            let refused = match known {
                None => Some(missing),
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
            partitions.push((index, refused));
        }
        response.push((topic.name, topic.topic_id, partitions));
    }
    let commit = Commit {
        member_id: Arc::from(&*request.member_id),
        instance_id: request.group_instance_id.map(|id| Arc::from(&*id)),
        generation: request.generation_id_or_member_epoch,
        knows_member_epochs: version >= 9,
        // -1, and versions without the field, leave it to the broker.
        retention_ms: Some(request.retention_time_ms).filter(|retention| *retention >= 0),
        offsets,
    };
    let answer = context.broker.groups.commit(Arc::from(request.group_id.as_str()), commit).await;
    Ok(context.pending(async move {
        let outcome = answer.wait().await.and_then(|outcome| outcome).err();
        let topics = response.into_iter().map(|(name, id, partitions)| {
            let partitions = partitions.into_iter().map(|(index, refused)| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(group_code(refused.or(outcome)))
            });
            let topic = OffsetCommitResponseTopic::default().with_partitions(partitions.collect());
            if by_id { topic.with_topic_id(id) } else { topic.with_name(name) }
        });
        Ok(OffsetCommitResponse::default().with_topics(topics.collect()))
    }))
}

/// What refuses one partition of a commit before its group is asked.
pub(super) fn check(topic: &TopicInfo, partition: i32, metadata: usize, max_metadata: usize) -> Result<(), GroupError> {
    if !(0..topic.partitions()).contains(&partition) {
        return Err(GroupError::UnknownTopicOrPartition);
    }
    if metadata > max_metadata { Err(GroupError::OffsetMetadataTooLarge) } else { Ok(()) }
}
