//! OffsetFetch (key 9), versions 1 to 9.
//!
//! Answers the committed offsets of a group, or of many (S-84). A partition without one has offset -1 and no error; so has every partition of an unknown group.
//!
//! * v2 null topics mean all, and a top-level error; v3 throttle time; v5 leader epoch (KIP-320); v6 compact encodings; v7 require-stable (KIP-447); v8 many groups
//!   (KIP-709); v9 member epochs of KIP-848, which classic groups ignore.
//! * A partition whose offset was committed in a transaction that has not ended is answered UNSTABLE_OFFSET_COMMIT when stable offsets are asked for, and with
//!   the offset before it otherwise (S-97).

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::{CommittedOffset, GroupError};
use crate::coordinator::{Answer, FetchedTopic};

type Wanted = Option<Vec<(Arc<str>, Vec<i32>)>>;

/// Fetches.
pub async fn handle(context: &RequestContext, request: OffsetFetchRequest) -> Result<Reply, CloseConnection> {
    let version = context.version;
    let groups = &context.broker.groups;
    let stable = request.require_stable;
    if version < 8 {
        let wanted = request.topics.map(|topics| {
            topics.into_iter().map(|topic| (Arc::from(topic.name.as_str()), topic.partition_indexes)).collect()
        });
        let answer = groups.fetch(Arc::from(request.group_id.as_str()), wanted.clone()).await;
        return Ok(context.pending(async move { Ok(one_group(answer.wait().await, wanted, version, stable)) }));
    }
    let mut answers: Vec<(GroupId, Answer<Vec<FetchedTopic>>)> = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let wanted: Wanted = group.topics.map(|topics| {
            topics.into_iter().map(|topic| (Arc::from(topic.name.as_str()), topic.partition_indexes)).collect()
        });
        let answer = groups.fetch(Arc::from(group.group_id.as_str()), wanted).await;
        answers.push((group.group_id, answer));
    }
    Ok(context.pending(async move {
        let mut groups = Vec::with_capacity(answers.len());
        for (id, answer) in answers {
            let group = OffsetFetchResponseGroup::default().with_group_id(id);
            groups.push(match answer.wait().await {
                Ok(topics) => group.with_topics(topics.into_iter().map(|topic| to_topics(topic, stable)).collect()),
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

fn to_topics(topic: FetchedTopic, stable: bool) -> OffsetFetchResponseTopics {
    let FetchedTopic { topic, partitions, unstable } = topic;
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
    OffsetFetchResponseTopics::default().with_name(name(&topic)).with_partitions(partitions.collect())
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
