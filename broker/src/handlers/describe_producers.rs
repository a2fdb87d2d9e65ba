//! DescribeProducers (key 61), version 0.
//!
//! Answers the idempotent producers that partitions remember: their epochs, last sequences and times (KIP-664, S-99).
//!
//! * Transactions are not built, so no producer has one open (start offset -1), and no coordinator has written a marker (coordinator epoch -1).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId as WireProducerId};
use kafka_protocol::protocol::StrBytes;
use weir_storage::Partition;

use super::{CloseConnection, Reply, RequestContext};

/// "None": no marker, no open transaction.
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
        let state = ProducerState::default()
            .with_producer_id(WireProducerId(id))
            .with_producer_epoch(i32::from(entry.epoch))
            .with_coordinator_epoch(NONE)
            .with_current_txn_start_offset(i64::from(NONE));
        match entry.batches.back() {
            Some(last) => state.with_last_sequence(last.last_sequence).with_last_timestamp(last.timestamp),
            None => state,
        }
    });
    states.collect()
}

fn unknown(code: ResponseError) -> StrBytes {
    StrBytes::from_string(code.to_string())
}
