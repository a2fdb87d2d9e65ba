//! ListOffsets (key 2), versions 1 to 11.
//!
//! Answers where a log starts and ends, and which record is the first at or after a time.
//!
//! * v2 isolation level; v4 leader epochs (KIP-320); v6 compact encodings; v7 the record with the largest timestamp (-3, KIP-734); v8 the earliest local offset (-4, KIP-405);
//!   v9 the latest tiered offset (-5, KIP-1005); v10 a time limit for remote look-ups (KIP-1075);
//!   v11 the earliest offset that is not tiered yet (-6, KIP-1023).
//! * A time is looked up record by record, inside compressed batches, with timestamps in any order (S-60). No match is offset -1 without an error.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use tracing::error;
use weir_model::{Isolation, Offset, PartitionId};
use weir_protocol::versions::{LIST_OFFSETS, layout_version};
use weir_storage::partition::LEADER_EPOCH;
use weir_storage::{Partition, TopicInfo};

use super::{CloseConnection, Reply, RequestContext, Response};
use crate::errors;

/// The special timestamps, and the first version that may ask each.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// What a look-up found: the offset, and its record's timestamp where the question was about one.
struct Found {
    offset: i64,
    timestamp: i64,
}

impl Found {
    const NOTHING: Self = Self { offset: -1, timestamp: -1 };

    fn offset(offset: Offset) -> Self {
        Self { offset: offset.get(), timestamp: -1 }
    }
}

/// Answers each partition.
pub async fn handle(context: &RequestContext, request: ListOffsetsRequest) -> Result<Reply, CloseConnection> {
    let isolation = if request.isolation_level == 1 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    let repeated = repeated_partitions(&request.topics);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let info = context.broker.storage.topics().by_name(topic.name.as_str()).cloned();
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (index, asked) in topic.partitions.iter().enumerate() {
            if topic.partitions[..index].iter().any(|before| before.partition_index == asked.partition_index) {
                // Refused where it was named first.
                continue;
            }
            let found = if repeated.contains(&(topic.name.as_str(), asked.partition_index)) {
                Err(ResponseError::InvalidRequest)
            } else {
                look_up(context, info.as_ref(), asked, isolation).await
            };
            partitions.push(respond(context.version, asked.partition_index, found));
        }
        topics.push(ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions));
    }
    let response = ListOffsetsResponse::default().with_topics(topics);
    Response::message(&response, layout_version(LIST_OFFSETS, context.version)).map(Reply::Ready)
}

/// The same partition twice is refused (S-61).
fn repeated_partitions(topics: &[ListOffsetsTopic]) -> BTreeSet<(&str, i32)> {
    let mut seen = BTreeSet::new();
    let mut repeated = BTreeSet::new();
    for topic in topics {
        for partition in &topic.partitions {
            let key = (topic.name.as_str(), partition.partition_index);
            if !seen.insert(key) {
                repeated.insert(key);
            }
        }
    }
    repeated
}

async fn look_up(
    context: &RequestContext,
    topic: Option<&Arc<TopicInfo>>,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<Found, ResponseError> {
    let topic = topic.ok_or(ResponseError::UnknownTopicOrPartition)?;
    let id = PartitionId { topic: topic.id(), index: asked.partition_index };
    let partition = context.broker.storage.partition(id).ok_or(ResponseError::UnknownTopicOrPartition)?;
    errors::check_leader_epoch(asked.current_leader_epoch, LEADER_EPOCH)?;
    let least_version = match asked.timestamp {
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        LATEST | EARLIEST | 0.. => 0,
        _ => return Err(ResponseError::UnsupportedVersion),
    };
    if context.version < least_version {
        return Err(ResponseError::UnsupportedVersion);
    }
    match asked.timestamp {
        LATEST => Ok(Found::offset(partition.offsets().read_end(isolation))),
        EARLIEST => Ok(Found::offset(partition.offsets().log_start())),
        EARLIEST_LOCAL => Ok(Found::offset(partition.status().local_start)),
        // Kafka answers the last offset that is in remote storage, ours is the first that is not.
        LATEST_TIERED => Ok(partition
            .status()
            .lake_end
            .and_then(|end| Offset::new(end.get() - 1))
            .map_or(Found::NOTHING, Found::offset)),
        EARLIEST_PENDING_UPLOAD => Ok(partition.status().lake_end.map_or(Found::NOTHING, Found::offset)),
        MAX_TIMESTAMP => search(context, topic, &partition, isolation, None).await,
        timestamp => search(context, topic, &partition, isolation, Some(timestamp)).await,
    }
}

/// Looks for a record by its time: the first at or after `timestamp`, or the one with the largest.
async fn search(
    context: &RequestContext,
    topic: &TopicInfo,
    partition: &Partition,
    isolation: Isolation,
    timestamp: Option<i64>,
) -> Result<Found, ResponseError> {
    let found = match timestamp {
        Some(timestamp) => partition.offset_for_timestamp(timestamp, isolation).await,
        None => partition.offset_of_max_timestamp().await,
    };
    match found {
        Ok(Some(hit)) => Ok(Found { offset: hit.offset.get(), timestamp: hit.timestamp_ms }),
        Ok(None) => Ok(Found::NOTHING),
        Err(cause) => {
            error!(topic = %topic.name(), partition = partition.id().index, client_id = context.client_id(), %cause, "a time could not be looked up");
            Err(errors::read_error(&cause, context.version))
        }
    }
}

fn respond(version: i16, index: i32, found: Result<Found, ResponseError>) -> ListOffsetsPartitionResponse {
    let response =
        ListOffsetsPartitionResponse::default().with_partition_index(index).with_offset(-1).with_timestamp(-1);
    let response = match found {
        Err(code) => return response.with_error_code(code.code()),
        Ok(found) => response.with_offset(found.offset).with_timestamp(found.timestamp),
    };
    if version >= 4 && response.offset >= 0 { response.with_leader_epoch(LEADER_EPOCH) } else { response }
}
