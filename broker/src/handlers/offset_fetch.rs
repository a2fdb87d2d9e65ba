//! OffsetFetch (key 9), versions 1 to 9.
//!
//! Answers the committed offsets of a group, or of many (S-84). A partition without one has offset -1 and no error; so has every partition of an unknown group.
//!
//! * v2 null topics mean all, and a top-level error; v3 throttle time; v5 leader epoch (KIP-320); v6 compact encodings; v7 require-stable (KIP-447); v8 many groups
//!   (KIP-709); v9 member epochs of KIP-848, which classic groups ignore.
//! * Differs from Kafka: transactions are not built, so every offset is stable.

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
    if version < 8 {
        let wanted = request.topics.map(|topics| {
            topics.into_iter().map(|topic| (Arc::from(topic.name.as_str()), topic.partition_indexes)).collect()
        });
        let answer = groups.fetch(Arc::from(request.group_id.as_str()), wanted.clone()).await;
        return Ok(context.pending(async move { Ok(one_group(answer.wait().await, wanted, version)) }));
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
                Ok(topics) => group.with_topics(topics.into_iter().map(to_topics).collect()),
                Err(error) => group.with_error_code(group_code(Some(error))),
            });
        }
        Ok(OffsetFetchResponse::default().with_groups(groups))
    }))
}

fn one_group(outcome: Result<Vec<FetchedTopic>, GroupError>, wanted: Wanted, version: i16) -> OffsetFetchResponse {
    match outcome {
        Ok(topics) => OffsetFetchResponse::default()
            .with_topics(topics.into_iter().map(|topic| to_topic(topic, 0, version)).collect()),
        Err(error) if version >= 2 => OffsetFetchResponse::default().with_error_code(group_code(Some(error))),
        // v1 has no top-level error: each partition has it.
        Err(error) => {
            let none = |(topic, partitions): (Arc<str>, Vec<i32>)| FetchedTopic {
                topic,
                partitions: partitions.into_iter().map(|index| (index, None)).collect(),
            };
            let topics = wanted
                .unwrap_or_default()
                .into_iter()
                .map(|asked| to_topic(none(asked), group_code(Some(error)), version));
            OffsetFetchResponse::default().with_topics(topics.collect())
        }
    }
}

fn to_topic(topic: FetchedTopic, code: i16, version: i16) -> OffsetFetchResponseTopic {
    let partitions = topic.partitions.into_iter().map(|(index, committed)| {
        let (offset, epoch, metadata) = fields(committed);
        OffsetFetchResponsePartition::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(if version >= 5 { epoch } else { -1 })
            .with_metadata(Some(metadata))
            .with_error_code(code)
    });
    OffsetFetchResponseTopic::default().with_name(name(&topic.topic)).with_partitions(partitions.collect())
}

fn to_topics(topic: FetchedTopic) -> OffsetFetchResponseTopics {
    let partitions = topic.partitions.into_iter().map(|(index, committed)| {
        let (offset, epoch, metadata) = fields(committed);
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch)
            .with_metadata(Some(metadata))
    });
    OffsetFetchResponseTopics::default().with_name(name(&topic.topic)).with_partitions(partitions.collect())
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
