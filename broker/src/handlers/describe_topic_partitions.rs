//! DescribeTopicPartitions (key 75), version 0.
//!
//! Answers topics, by name, with their partitions, at most so many at a time; a cursor says where the next request goes on (KIP-966, S-25). The Java admin client asks
//! this before it falls back to Metadata.
//!
//! * An empty list of topics asks for all. A topic that is named and missing is answered with an error of its own. Nothing is created.
//! * There are no followers, so the lists of eligible and of last known eligible replicas are empty.

use std::collections::BTreeSet;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_topic_partitions_request::Cursor as WireCursor;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName as WireName,
};
use kafka_protocol::protocol::StrBytes;
use weir_model::TopicName;
use weir_storage::TopicInfo;
use weir_storage::partition::LEADER_EPOCH;

use super::metadata::ALL_TOPIC_OPERATIONS;
use super::{CloseConnection, Reply, RequestContext};

/// Kafka's default of `max.request.partition.size.limit`.
const MOST_PARTITIONS: i32 = 2000;

/// Answers at once.
pub async fn handle(
    context: &RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> Result<Reply, CloseConnection> {
    let cursor = request.cursor.as_ref();
    if cursor.is_some_and(|cursor| cursor.partition_index < 0) {
        // There is no top-level error: each topic gets it, as from Kafka.
        let topics = request.topics.iter().map(|topic| failed(topic.name.clone(), ResponseError::InvalidRequest));
        return context.ready(&DescribeTopicPartitionsResponse::default().with_topics(topics.collect()));
    }
    let known = context.broker.storage.topics();
    let names: BTreeSet<String> = if request.topics.is_empty() {
        known.iter().map(|topic| topic.name().as_str().to_owned()).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.as_str().to_owned()).collect()
    };
    let mut response = DescribeTopicPartitionsResponse::default();
    let mut left = request.response_partition_limit.clamp(1, MOST_PARTITIONS);
    for name in names.iter().filter(|name| cursor.is_none_or(|cursor| name.as_str() >= cursor.topic_name.as_str())) {
        if left == 0 {
            response = response.with_next_cursor(Some(cursor_at(name, 0)));
            break;
        }
        let Some(topic) = known.by_name(name) else {
            response.topics.push(missing(name));
            continue;
        };
        let first = first_partition(name, cursor).min(topic.partitions());
        let end = topic.partitions().min(first.saturating_add(left));
        response.topics.push(describe(context, topic, first..end));
        if end < topic.partitions() {
            response = response.with_next_cursor(Some(cursor_at(name, end)));
            break;
        }
        left -= end - first;
    }
    context.ready(&response)
}

/// The cursor counts for the topic it names; one that is gone by now only says where the names go on.
fn first_partition(name: &str, cursor: Option<&WireCursor>) -> i32 {
    cursor.filter(|cursor| cursor.topic_name.as_str() == name).map_or(0, |cursor| cursor.partition_index)
}

fn cursor_at(name: &str, partition: i32) -> Cursor {
    Cursor::default().with_topic_name(wire(name)).with_partition_index(partition)
}

fn describe(
    context: &RequestContext,
    topic: &TopicInfo,
    partitions: std::ops::Range<i32>,
) -> DescribeTopicPartitionsResponseTopic {
    let node = BrokerId(context.broker.identity.node_id);
    let partitions = partitions.map(|index| {
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(node)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    });
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(wire(topic.name().as_str())))
        .with_topic_id(topic.id().as_uuid())
        .with_is_internal(topic.record.internal)
        .with_partitions(partitions.collect())
        .with_topic_authorized_operations(ALL_TOPIC_OPERATIONS)
}

fn missing(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let code = match TopicName::new(name) {
        Ok(_) => ResponseError::UnknownTopicOrPartition,
        Err(_) => ResponseError::InvalidTopicException,
    };
    failed(wire(name), code)
}

fn failed(name: WireName, code: ResponseError) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(code.code())
        .with_name(Some(name))
        .with_topic_authorized_operations(ALL_TOPIC_OPERATIONS)
}

fn wire(name: &str) -> WireName {
    WireName(StrBytes::from_string(name.to_owned()))
}
