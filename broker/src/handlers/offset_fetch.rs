//! OffsetFetch (key 9), versions 1 to 10.
//!
//! Answers the committed offsets of a group, or of many (S-84). A partition without one has offset -1 and no error; so has every partition of an unknown group.
//!
//! * v2 null topics mean all, and a top-level error; v3 throttle time; v5 leader epoch (KIP-320); v6 compact encodings; v7 require-stable (KIP-447); v8 many groups
//!   (KIP-709); v9 the member of a KIP-848 group and its epoch (UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH), which classic groups ignore; v10 topic ids
//!   instead of names.
//! * A partition whose offset was committed in a transaction that has not ended is answered UNSTABLE_OFFSET_COMMIT when stable offsets are asked for, and with
//!   the offset before it otherwise (S-97).

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{GroupId, OffsetFetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;
use weir_model::TopicId;
use weir_protocol::offsets_by_id::OffsetFetch;
use weir_storage::Topics;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::{CommittedOffset, GroupError};
use crate::coordinator::{Answer, FetchedTopic};

type Wanted = Option<Vec<(Arc<str>, Vec<i32>)>>;

/// Fetches.
pub async fn handle(context: &RequestContext, request: OffsetFetch) -> Result<Reply, CloseConnection> {
    let OffsetFetch(request) = request;
    let version = context.version;
    let groups = &context.broker.groups;
    let stable = request.require_stable;
    if version < 8 {
        let wanted = request.topics.map(|topics| {
            topics.into_iter().map(|topic| (Arc::from(topic.name.as_str()), topic.partition_indexes)).collect()
        });
        let answer = groups.fetch(Arc::from(request.group_id.as_str()), wanted.clone(), None).await;
        return Ok(context.pending(async move {
            let outcome = answer.wait().await.and_then(|outcome| outcome);
            Ok(one_group(outcome, wanted, version, stable))
        }));
    }
    let topics = context.broker.storage.topics();
    let mut answers: Vec<(GroupId, Vec<(Uuid, Vec<i32>)>, Answer<_>)> = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let member = group.member_id.filter(|_| version >= 9).map(|id| (Arc::from(&*id), group.member_epoch));
        // What is asked for by an id that no topic has.
        let mut unknown = Vec::new();
        let wanted: Wanted = group.topics.map(|asked| {
            let mut wanted = Vec::with_capacity(asked.len());
            for topic in asked {
                if version < 10 {
                    wanted.push((Arc::from(topic.name.as_str()), topic.partition_indexes));
                } else if let Some(known) = topics.get(TopicId::from_uuid(topic.topic_id)) {
                    wanted.push((Arc::from(known.name().as_str()), topic.partition_indexes));
                } else {
                    unknown.push((topic.topic_id, topic.partition_indexes));
                }
            }
            wanted
        });
        let answer = groups.fetch(Arc::from(group.group_id.as_str()), wanted, member).await;
        answers.push((group.group_id, unknown, answer));
    }
    Ok(context.pending(async move {
        let mut groups = Vec::with_capacity(answers.len());
        for (id, unknown, answer) in answers {
            let group = OffsetFetchResponseGroup::default().with_group_id(id);
            groups.push(match answer.wait().await.and_then(|outcome| outcome) {
                Ok(fetched) => {
                    let known = fetched.into_iter().filter_map(|topic| to_topics(topic, &topics, stable, version));
                    let unknown = unknown.into_iter().map(|(id, partitions)| to_unknown(id, partitions));
                    group.with_topics(known.chain(unknown).collect())
                }
                Err(error) => group.with_error_code(group_code(Some(error))),
            });
        }
        Ok(OffsetFetchResponse::default().with_groups(groups))
    }))
}

fn one_group(
    outcome: Result<Vec<FetchedTopic>, GroupError>,
    wanted: Wanted,
    version: i16,
    stable: bool,
) -> OffsetFetchResponse {
    match outcome {
        Ok(topics) => OffsetFetchResponse::default()
            .with_topics(topics.into_iter().map(|topic| to_topic(topic, 0, version, stable)).collect()),
        Err(error) if version >= 2 => OffsetFetchResponse::default().with_error_code(group_code(Some(error))),
        // v1 has no top-level error: each partition has it.
        Err(error) => {
            let none = |(topic, partitions): (Arc<str>, Vec<i32>)| FetchedTopic {
                topic,
                partitions: partitions.into_iter().map(|index| (index, None)).collect(),
                unstable: BTreeSet::new(),
            };
            let topics = wanted
                .unwrap_or_default()
                .into_iter()
                .map(|asked| to_topic(none(asked), group_code(Some(error)), version, false));
            OffsetFetchResponse::default().with_topics(topics.collect())
        }
    }
}

fn to_topic(topic: FetchedTopic, code: i16, version: i16, stable: bool) -> OffsetFetchResponseTopic {
    let FetchedTopic { topic, partitions, unstable } = topic;
    let partitions = partitions.into_iter().map(|(index, committed)| {
        let is_unstable = stable && unstable.contains(&index);
        let code = if is_unstable { group_code(Some(GroupError::UnstableOffsetCommit)) } else { code };
        let (offset, epoch, metadata) = fields(committed.filter(|_| !is_unstable));
        OffsetFetchResponsePartition::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(if version >= 5 { epoch } else { -1 })
            .with_metadata(Some(metadata))
            .with_error_code(code)
    });
    OffsetFetchResponseTopic::default().with_name(name(&topic)).with_partitions(partitions.collect())
}

/// By name, or since v10 by id; `None` for a topic that is gone and so has no id.
fn to_topics(topic: FetchedTopic, topics: &Topics, stable: bool, version: i16) -> Option<OffsetFetchResponseTopics> {
    let FetchedTopic { topic, partitions, unstable } = topic;
    let response = OffsetFetchResponseTopics::default();
    let response = if version < 10 {
        response.with_name(name(&topic))
    } else {
        response.with_topic_id(topics.by_name(&topic)?.id().as_uuid())
    };
    let partitions = partitions.into_iter().map(|(index, committed)| {
        let is_unstable = stable && unstable.contains(&index);
        let code = is_unstable.then_some(GroupError::UnstableOffsetCommit);
        let (offset, epoch, metadata) = fields(committed.filter(|_| !is_unstable));
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch)
            .with_metadata(Some(metadata))
            .with_error_code(group_code(code))
    });
    Some(response.with_partitions(partitions.collect()))
}

fn to_unknown(id: Uuid, partitions: Vec<i32>) -> OffsetFetchResponseTopics {
    let partitions = partitions.into_iter().map(|index| {
        let (offset, epoch, metadata) = fields(None);
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch)
            .with_metadata(Some(metadata))
            .with_error_code(group_code(Some(GroupError::UnknownTopicId)))
    });
    OffsetFetchResponseTopics::default().with_topic_id(id).with_partitions(partitions.collect())
}

fn fields(committed: Option<CommittedOffset>) -> (i64, i32, StrBytes) {
    match committed {
        None => (-1, -1, StrBytes::default()),
        Some(committed) => (
            committed.offset,
            committed.leader_epoch.unwrap_or(-1),
            StrBytes::from_string((*committed.metadata).to_owned()),
        ),
    }
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}
