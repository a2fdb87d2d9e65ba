//! The log of groups, `__consumer_offsets`, as a shard sees it.

use async_trait::async_trait;
use tracing::error;
use weir_model::Offset;
use weir_model::producer::{ProducerId, TxnMarker};
use weir_model::record_batch::{ControlBatch, ControlRecord};
use weir_storage::TxnGuard;

use super::records::Record;
use crate::coordinator::log::{Durability, GROUP_TOPIC, LogError, LogRead, StorageLog, StoredBatch, build_batch};
use crate::coordinator::transaction::Producer;

/// What is appended as one batch.
#[derive(Debug, Clone)]
pub(in crate::coordinator) enum GroupBatch {
    /// Records that count at once.
    Records(Vec<Record>),
    /// Records that count when their transaction is committed.
    Transactional {
        /// Whose transaction.
        producer: Producer,
        /// What the transaction was verified against.
        guard: Option<TxnGuard>,
        /// The records.
        records: Vec<Record>,
    },
    /// The end of a transaction.
    Marker(TxnMarker),
}

/// What a load finds, in log order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::coordinator) enum GroupEntry {
    /// A record that counts.
    Record(Record),
    /// A record that counts when its producer's transaction is committed.
    Transactional {
        /// Whose transaction.
        producer_id: ProducerId,
        /// The record.
        record: Record,
    },
    /// The end of a transaction.
    Marker(TxnMarker),
}

/// Where a shard keeps its groups.
#[async_trait]
pub(in crate::coordinator) trait GroupLog: Send + Sync + 'static {
    /// Orders a batch after everything appended to the partition before. What is returned resolves when it is durable.
    async fn append(&self, partition: i32, batch: GroupBatch) -> Result<Durability, LogError>;

    /// Reads on from `from` (the start, when `None`); `None` at the end.
    async fn read(&self, partition: i32, from: Option<Offset>) -> Result<Option<LogRead<GroupEntry>>, LogError>;

    /// What to take before a producer's transaction is verified for a write to this partition.
    async fn guard(&self, partition: i32, producer_id: ProducerId) -> Result<TxnGuard, LogError>;

    /// Whether a producer has a transaction open in this partition.
    fn has_open_transaction(&self, partition: i32, producer_id: ProducerId) -> bool;
}

#[async_trait]
impl GroupLog for StorageLog {
    async fn append(&self, partition: i32, batch: GroupBatch) -> Result<Durability, LogError> {
        let now_ms = self.clock.now_ms();
        let pairs = |records: &[Record]| -> Vec<_> {
            records.iter().map(|record| (record.key_bytes(), record.value_bytes())).collect()
        };
        match batch {
            GroupBatch::Records(records) => {
                StorageLog::append(self, partition, build_batch(pairs(&records), None, now_ms), None).await
            }
            GroupBatch::Transactional { producer, guard, records } => {
                let bytes = build_batch(pairs(&records), Some(producer), now_ms);
                StorageLog::append(self, partition, bytes, guard.as_ref()).await
            }
            GroupBatch::Marker(marker) => self.append_marker(partition, marker).await,
        }
    }

    async fn read(&self, partition: i32, from: Option<Offset>) -> Result<Option<LogRead<GroupEntry>>, LogError> {
        StorageLog::read(self, partition, from, move |batch, entries| read_batch(&batch, partition, entries)).await
    }

    async fn guard(&self, partition: i32, producer_id: ProducerId) -> Result<TxnGuard, LogError> {
        StorageLog::guard(self, partition, producer_id).await
    }

    fn has_open_transaction(&self, partition: i32, producer_id: ProducerId) -> bool {
        StorageLog::has_open_transaction(self, partition, producer_id)
    }
}

/// A record that does not read is reported and passed over: it is one group's, and the others must not be lost with it.
fn read_batch(batch: &StoredBatch, partition: i32, entries: &mut Vec<GroupEntry>) -> Result<(), LogError> {
    let control = ControlBatch::parse(batch.batch());
    if let Some(control) = control.map_err(|source| LogError::Marker { topic: GROUP_TOPIC, source })? {
        entries.extend(marker_of(&control).map(GroupEntry::Marker));
        return Ok(());
    }
    let header = *batch.header();
    batch.records(GROUP_TOPIC, |offset, key, value| match Record::parse(key.unwrap_or_default(), value) {
        Ok(None) => {}
        Ok(Some(record)) if header.attributes.is_transactional() => {
            entries.push(GroupEntry::Transactional { producer_id: header.producer_id, record });
        }
        Ok(Some(record)) => entries.push(GroupEntry::Record(record)),
        Err(cause) => {
            error!(topic = GROUP_TOPIC, partition, offset, %cause, "a record of a group does not read and is passed over");
        }
    })
}

/// A control batch of nobody stands for a gap, and ends nothing.
fn marker_of(control: &ControlBatch) -> Option<TxnMarker> {
    let ControlRecord::EndTxn { outcome, coordinator_epoch } = control.record else { return None };
    (control.producer_id >= 0).then_some(TxnMarker {
        producer_id: control.producer_id,
        producer_epoch: control.producer_epoch,
        outcome,
        coordinator_epoch,
        timestamp_ms: control.timestamp_ms,
    })
}
