//! OffsetForLeaderEpoch (key 23), versions 2 to 4.
//!
//! Answers where a leader epoch ends, by which consumers find out whether the log they read from was cut behind them (KIP-320, S-62).
//!
//! * v3 replica id; v4 compact encodings.
//! * There is one epoch (docs/decisions/0003), so the log holds either all of what is asked about, or nothing of it: epoch 0 ends at the high watermark, and of
//!   any other the answer is -1 without an error, which clients read as "not known here".
//! * Differs from Kafka: the end is the high watermark rather than the log end. What lies between is not durable yet, so no client can have seen it (LOG-2).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use weir_model::Offset;
use weir_storage::partition::LEADER_EPOCH;

use super::{CloseConnection, Reply, RequestContext};
use crate::errors;

/// Answers at once.
pub async fn handle(context: &RequestContext, request: OffsetForLeaderEpochRequest) -> Result<Reply, CloseConnection> {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            // The defaults of epoch and offset are -1.
            let answer = EpochEndOffset::default().with_partition(asked.partition);
            match end_of_epoch(context, topic.topic.as_str(), asked) {
                Ok(Some(end)) => answer.with_leader_epoch(LEADER_EPOCH).with_end_offset(end.get()),
                Ok(None) => answer,
                Err(code) => answer.with_error_code(code.code()),
            }
        });
        let partitions = partitions.collect();
        OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions)
    });
    context.ready(&OffsetForLeaderEpochResponse::default().with_topics(topics.collect()))
}

fn end_of_epoch(
    context: &RequestContext,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<Offset>, ResponseError> {
    let partition = context.partition(topic, asked.partition)?;
    errors::check_leader_epoch(asked.current_leader_epoch, LEADER_EPOCH)?;
    Ok((asked.leader_epoch == LEADER_EPOCH).then(|| partition.offsets().high_watermark()))
}
