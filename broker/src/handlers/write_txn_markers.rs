//! WriteTxnMarkers (key 27), version 1.
//!
//! Ends transactions in partitions, each marker in its own: what Kafka's coordinators send to other brokers, and what an operator sends to abort a transaction
//! whose coordinator knows nothing of it (`kafka-transactions.sh abort`, KIP-664). Answered when durable.
//!
//! * A producer epoch below the partition's is INVALID_PRODUCER_EPOCH, a coordinator epoch below it TRANSACTION_COORDINATOR_FENCED.
//! * Differs from Kafka: version 2, which tells the version of transactions, is not served.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::write_txn_markers_request::WritableTxnMarker;
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use tracing::{info, warn};
use weir_model::producer::{TxnMarker, TxnOutcome};
use weir_model::record_batch::MARKER_BATCH_BYTES;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::GROUP_TOPIC;
use crate::coordinator::errors::group_code;
use crate::errors;

/// Writes them, one after the other.
pub async fn handle(context: &RequestContext, request: WriteTxnMarkersRequest) -> Result<Reply, CloseConnection> {
    let mut markers = Vec::with_capacity(request.markers.len());
    for asked in request.markers {
        markers.push(write(context, asked).await);
    }
    context.ready(&WriteTxnMarkersResponse::default().with_markers(markers))
}

async fn write(context: &RequestContext, asked: WritableTxnMarker) -> WritableTxnMarkerResult {
    let marker = TxnMarker {
        producer_id: asked.producer_id.0,
        producer_epoch: asked.producer_epoch,
        outcome: if asked.transaction_result { TxnOutcome::Commit } else { TxnOutcome::Abort },
        coordinator_epoch: asked.coordinator_epoch,
        timestamp_ms: context.broker.clock.now_ms(),
    };
    info!(
        client_id = context.client_id(), producer_id = marker.producer_id, producer_epoch = marker.producer_epoch,
        outcome = ?marker.outcome, "a client writes transaction markers"
    );
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in asked.topics {
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for index in topic.partition_indexes {
            let code = match write_one(context, &marker, topic.name.as_str(), index).await {
                Ok(()) => 0,
                Err(code) => code,
            };
            partitions
                .push(WritableTxnMarkerPartitionResult::default().with_partition_index(index).with_error_code(code));
        }
        topics.push(WritableTxnMarkerTopicResult::default().with_name(topic.name).with_partitions(partitions));
    }
    WritableTxnMarkerResult::default().with_producer_id(asked.producer_id).with_topics(topics)
}

async fn write_one(context: &RequestContext, marker: &TxnMarker, topic: &str, index: i32) -> Result<(), i16> {
    let broker = &context.broker;
    let target = context.partition(topic, index).map_err(|code| code.code())?;
    if topic == GROUP_TOPIC {
        let ended = broker.groups.end_transaction(index, *marker).await.wait().await.and_then(|outcome| outcome);
        return ended.map_err(|error| group_code(Some(error)));
    }
    let storage_error = ResponseError::KafkaStorageError.code();
    let mut admission = broker.storage.admit([MARKER_BATCH_BYTES]).await.map_err(|cause| {
        warn!(topic, partition = index, %cause, "a marker was not written");
        storage_error
    })?;
    let appended = target.append_marker(&mut admission, marker, broker.clock.now_ms());
    let appended = appended.map_err(|cause| errors::append_error(&cause).code())?;
    match appended.seq {
        None => Ok(()),
        Some(seq) => broker.storage.durable(seq).await.map_err(|cause| {
            warn!(topic, partition = index, %cause, "a marker could not be made durable");
            storage_error
        }),
    }
}
