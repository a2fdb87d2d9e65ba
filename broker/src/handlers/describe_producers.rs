//! DescribeProducers (key 61), version 0.
//!
//! Answers the producers that partitions remember: their epochs, last sequences and times, the coordinator that wrote their
//! last marker, and where their open transaction begins (KIP-664, S-99).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId as WireProducerId};
use kafka_protocol::protocol::StrBytes;
use weir_model::Offset;
use weir_storage::Partition;

use super::{CloseConnection, Reply, RequestContext};

/// "None": no sequence under this epoch, no open transaction.
const NONE: i32 = -1;

/// Answers at once.
pub async fn handle(context: &RequestContext, request: DescribeProducersRequest) -> Result<Reply, CloseConnection> {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            let answer = PartitionResponse::default().with_partition_index(*index);
            match context.partition(topic.name.as_str(), *index) {
                Ok(partition) => answer.with_active_producers(producers(&partition)),
                Err(code) => answer.with_error_code(code.code()).with_error_message(Some(unknown(code))),
            }
        });
        let partitions = partitions.collect();
        TopicResponse::default().with_name(topic.name).with_partitions(partitions)
    });
    context.ready(&DescribeProducersResponse::default().with_topics(topics.collect()))
}

fn producers(partition: &Partition) -> Vec<ProducerState> {
    let table = partition.producers();
    let states = table.iter().map(|(id, entry)| {
        ProducerState::default()
            .with_producer_id(WireProducerId(id))
            .with_producer_epoch(i32::from(entry.epoch))
            .with_last_sequence(entry.last_sequence().unwrap_or(NONE))
            .with_last_timestamp(entry.last_timestamp())
            .with_coordinator_epoch(entry.coordinator_epoch)
            .with_current_txn_start_offset(entry.current_txn_first_offset.map_or(i64::from(NONE), Offset::get))
    });
    states.collect()
}

fn unknown(code: ResponseError) -> StrBytes {
    StrBytes::from_string(code.to_string())
}
