//! DeleteRecords (key 21), versions 0 to 2.
//!
//! Moves the log start of partitions: what lies below is gone for consumers, and deleted (KIP-107, S-63). -1 stands for the high watermark.
//!
//! * v2 compact encodings.
//! * Differs from Kafka: there are no followers to wait for, so the timeout is not needed.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use tracing::warn;
use weir_model::{Offset, PartitionId};
use weir_storage::TopicInfo;
use weir_storage::partition::RetainError;

use super::{CloseConnection, Reply, RequestContext};

/// Asks for everything there is.
const HIGH_WATERMARK: i64 = -1;

/// Deletes partition by partition.
pub async fn handle(context: &RequestContext, request: DeleteRecordsRequest) -> Result<Reply, CloseConnection> {
    let known = context.broker.storage.topics();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let info = known.by_name(topic.name.as_str());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let result = DeleteRecordsPartitionResult::default().with_partition_index(partition.partition_index);
            partitions.push(
                match delete(context, info.map(|info| &**info), partition.partition_index, partition.offset).await {
                    Ok(start) => result.with_low_watermark(start.get()),
                    Err(code) => result.with_low_watermark(-1).with_error_code(code.code()),
                },
            );
        }
        topics.push(DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions));
    }
    context.ready(&DeleteRecordsResponse::default().with_topics(topics))
}

async fn delete(
    context: &RequestContext,
    topic: Option<&TopicInfo>,
    index: i32,
    offset: i64,
) -> Result<Offset, ResponseError> {
    let topic = topic.ok_or(ResponseError::UnknownTopicOrPartition)?;
    let id = PartitionId { topic: topic.id(), index };
    let partition = context.broker.storage.partition(id).ok_or(ResponseError::UnknownTopicOrPartition)?;
    if topic.record.internal {
        return Err(ResponseError::InvalidTopicException);
    }
    if !topic.config.deletes_by_retention() {
        // A compacted topic promises the latest row of every key.
        return Err(ResponseError::PolicyViolation);
    }
    let to = match offset {
        HIGH_WATERMARK => partition.offsets().high_watermark(),
        _ => Offset::new(offset).ok_or(ResponseError::OffsetOutOfRange)?,
    };
    let moved = tokio::task::spawn_blocking(move || partition.advance_log_start(to)).await;
    match moved {
        Ok(Ok(start)) => Ok(start),
        Ok(Err(RetainError::OutOfRange { .. })) => Err(ResponseError::OffsetOutOfRange),
        Ok(Err(RetainError::Segment(cause))) => {
            // The log start has moved; the file that stays is an operator's matter.
            warn!(topic = %topic.name(), partition = index, %cause, "a deleted segment's file stays behind");
            Ok(to)
        }
        Ok(Err(cause @ (RetainError::Store { .. } | RetainError::Seal(_)))) => {
            warn!(topic = %topic.name(), partition = index, %cause, "records were not deleted");
            Err(ResponseError::KafkaStorageError)
        }
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
