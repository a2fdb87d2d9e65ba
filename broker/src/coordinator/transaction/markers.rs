//! Ending a transaction in every partition it wrote to.

use std::sync::Arc;

use async_trait::async_trait;
use tracing::{debug, warn};
use weir_model::producer::TxnMarker;
use weir_model::record_batch::MARKER_BATCH_BYTES;
use weir_model::{Clock, PartitionId};
use weir_storage::wal::WalError;
use weir_storage::{AdmitError, AppendError, Storage};

use super::state::Partitions;
use crate::coordinator::GroupCoordinator;
use crate::coordinator::group::GroupError;
use crate::coordinator::log::GROUP_TOPIC;

/// Why a transaction's markers are not all durable.
#[derive(Debug, thiserror::Error)]
pub enum MarkersError {
    /// No room in the WAL.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The WAL failed.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The group coordinator did not take it.
    #[error("partition {partition} of {GROUP_TOPIC}: {source}")]
    Group {
        /// Which.
        partition: i32,
        /// Why.
        source: GroupError,
    },
    /// A test's partitions that refuse.
    #[cfg(test)]
    #[error("refused by the test")]
    Refused,
}

/// Writes markers.
#[async_trait]
pub(in crate::coordinator) trait Markers: Send + Sync + 'static {
    /// Writes the marker to every partition, and returns when all are durable. Writing it again is harmless: a marker that finds no open transaction ends none.
    async fn write(&self, marker: TxnMarker, partitions: &Partitions) -> Result<(), MarkersError>;
}

/// Markers into this broker's own partitions.
pub(in crate::coordinator) struct PartitionMarkers {
    pub(in crate::coordinator) storage: Storage,
    pub(in crate::coordinator) groups: GroupCoordinator,
    pub(in crate::coordinator) clock: Arc<dyn Clock>,
}

#[async_trait]
impl Markers for PartitionMarkers {
    async fn write(&self, marker: TxnMarker, partitions: &Partitions) -> Result<(), MarkersError> {
        let topics = self.storage.topics();
        let (mut groups, mut targets) = (Vec::new(), Vec::new());
        for (topic, partition) in partitions.iter() {
            if &**topic == GROUP_TOPIC {
                groups.push((partition, self.groups.end_transaction(partition, marker).await));
                continue;
            }
            let found = topics.by_name(topic).map(|topic| PartitionId { topic: topic.id(), index: partition });
            match found.and_then(|id| self.storage.partition(id)) {
                Some(target) => targets.push(target),
                None => debug!(%topic, partition, "a topic of a transaction is gone, and needs no marker"),
            }
        }
        let mut newest = None;
        if !targets.is_empty() {
            let mut admission = self.storage.admit(targets.iter().map(|_| MARKER_BATCH_BYTES)).await?;
            for target in targets {
                match target.append_marker(&mut admission, &marker, self.clock.now_ms()) {
                    Ok(appended) => newest = newest.max(appended.seq),
                    // Deleted meanwhile.
                    Err(AppendError::Closed) => {}
                    // A newer producer or coordinator has been there: what was open of this one has ended.
                    Err(cause @ (AppendError::Marker(_) | AppendError::Sequence(_))) => {
                        warn!(partition = %target.id(), producer_id = marker.producer_id, %cause, "a marker was not needed any more");
                    }
                }
            }
        }
        if let Some(newest) = newest {
            self.storage.durable(newest).await?;
        }
        for (partition, answer) in groups {
            let ended = answer.wait().await.and_then(|outcome| outcome);
            match ended {
                Ok(()) => {}
                Err(GroupError::InvalidProducerEpoch) => {
                    warn!(partition, producer_id = marker.producer_id, "a marker was not needed any more");
                }
                Err(source) => return Err(MarkersError::Group { partition, source }),
            }
        }
        Ok(())
    }
}
