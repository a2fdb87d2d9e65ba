//! The log that groups are kept in: the internal topic `__consumer_offsets`, written and read like any other.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use tracing::error;
use weir_model::config::BrokerConfig;
use weir_model::record_batch::{
    AssignedBatch, BatchBuilder, BatchError, BatchHeader, BatchLimits, Compression, RecordIter, ValidBatch,
};
use weir_model::{Clock, Isolation, Offset, PartitionId, TimestampType};
use weir_storage::{AdmitError, AppendError, Chunk, Partition, ReadError, ReadLimits, RowForm, Storage, TopicInfo};

use super::group::records::Record;
use crate::topics::{NewTopic, TopicError, Topics};

/// The topic's name, as every Kafka tool knows it.
pub const GROUP_TOPIC: &str = "__consumer_offsets";

/// Bytes of the log read in one step of a load.
const LOAD_BYTES: usize = 4 << 20;
/// The broker's own batches are bounded by the shard's batching; a record is bounded by the request it came from.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// Resolves when what was appended is durable.
pub(super) type Durability = BoxFuture<'static, Result<(), LogError>>;

/// Why the log cannot be written or read now.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The topic could not be made.
    #[error("{GROUP_TOPIC} cannot be created: {0}")]
    Create(#[from] TopicError),
    /// No room.
    #[error("{GROUP_TOPIC} cannot be written: {0}")]
    Admit(#[from] AdmitError),
    /// Refused by the partition.
    #[error("{GROUP_TOPIC} cannot be written: {0}")]
    Append(#[from] AppendError),
    /// The WAL failed.
    #[error("{GROUP_TOPIC} cannot be written: {0}")]
    Wal(#[from] weir_storage::wal::WalError),
    /// A segment or the lake does not read.
    #[error("{GROUP_TOPIC} cannot be read: {0}")]
    Read(#[from] ReadError),
    /// A file does not read.
    #[error("{GROUP_TOPIC} cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A batch does not read.
    #[error("{GROUP_TOPIC} holds a batch that does not read: {0}; run weir doctor on the data directory")]
    Batch(#[from] BatchError),
    /// The topic has fewer partitions than the coordinator was started with.
    #[error("{GROUP_TOPIC} has no partition {partition}: restart the broker")]
    NoPartition {
        /// Which.
        partition: i32,
    },
    /// A test's log that refuses.
    #[cfg(test)]
    #[error("refused by the test")]
    Refused,
}

/// A stretch of the log.
pub(super) struct LogRead {
    pub(super) records: Vec<Record>,
    pub(super) next: Offset,
}

/// Where a shard keeps its groups.
#[async_trait]
pub(super) trait GroupLog: Send + Sync + 'static {
    /// Orders `records` as one batch, after everything appended to the partition before. What is returned resolves when
    /// they are durable.
    async fn append(&self, partition: i32, records: Vec<Record>) -> Result<Durability, LogError>;

    /// Reads on from `from` (the start, when `None`); `None` at the end.
    async fn read(&self, partition: i32, from: Option<Offset>) -> Result<Option<LogRead>, LogError>;
}

/// The log in this broker's own storage.
pub(super) struct StorageLog {
    pub(super) storage: Storage,
    pub(super) topics: Topics,
    pub(super) config: Arc<BrokerConfig>,
    pub(super) clock: Arc<dyn Clock>,
}

impl StorageLog {
    pub(super) fn topic(&self) -> Option<Arc<TopicInfo>> {
        self.storage.topics().by_name(GROUP_TOPIC).cloned()
    }

    /// Partitions that the topic has, or will have once it is made.
    pub(super) fn partition_count(&self) -> i32 {
        self.topic().map_or(self.config.offsets_topic_num_partitions, |topic| topic.partitions())
    }

    /// Partitions with something to load.
    pub(super) fn written_partitions(&self) -> Vec<i32> {
        let Some(topic) = self.topic() else { return Vec::new() };
        let partitions = self.storage.partitions(&topic).into_iter();
        partitions
            .filter(|partition| partition.offsets().high_watermark() > Offset::ZERO)
            .map(|partition| partition.id().index)
            .collect()
    }

    /// The topic, made by the first write (S-74: FindCoordinator need not wait for it).
    async fn make_topic(&self) -> Result<Arc<TopicInfo>, LogError> {
        if let Some(topic) = self.topic() {
            return Ok(topic);
        }
        let topic = NewTopic {
            name: GROUP_TOPIC.to_owned(),
            partitions: self.config.offsets_topic_num_partitions,
            overrides: BTreeMap::from([
                ("cleanup.policy".to_owned(), "compact".to_owned()),
                ("segment.bytes".to_owned(), "104857600".to_owned()),
            ]),
            internal: true,
            ..NewTopic::default()
        };
        match self.topics.create_topic(topic).await {
            Ok(created) => Ok(created.topic),
            // Another shard was first.
            Err(TopicError::Storage(weir_storage::TopicError::Exists(_))) => {
                self.topic().ok_or(LogError::NoPartition { partition: 0 })
            }
            Err(cause) => Err(cause.into()),
        }
    }

    fn partition(&self, topic: &TopicInfo, partition: i32) -> Result<Partition, LogError> {
        let id = PartitionId { topic: topic.id(), index: partition };
        self.storage.partition(id).ok_or(LogError::NoPartition { partition })
    }
}

#[async_trait]
impl GroupLog for StorageLog {
    async fn append(&self, partition: i32, records: Vec<Record>) -> Result<Durability, LogError> {
        let topic = self.make_topic().await?;
        let target = self.partition(&topic, partition)?;
        let now_ms = self.clock.now_ms();
        let bytes = build_batch(&records, now_ms);
        let size = bytes.len();
        let limits = BatchLimits { max_bytes: MAX_BATCH_BYTES, max_decompressed_bytes: MAX_BATCH_BYTES };
        let batch = ValidBatch::validate_internal(bytes, &limits)?;
        let mut admission = self.storage.admit([size]).await?;
        let appended = target.append(&mut admission, batch, None, size, now_ms)?;
        let storage = self.storage.clone();
        Ok(Box::pin(async move {
            if let Some(seq) = appended.seq {
                storage.durable(seq).await?;
            }
            Ok(())
        }))
    }

    async fn read(&self, partition: i32, from: Option<Offset>) -> Result<Option<LogRead>, LogError> {
        let Some(topic) = self.topic() else { return Ok(None) };
        let source = self.partition(&topic, partition)?;
        let offsets = source.offsets();
        let from = from.unwrap_or(offsets.log_start()).max(offsets.log_start());
        if from >= offsets.high_watermark() {
            return Ok(None);
        }
        let limits = ReadLimits { max_bytes: LOAD_BYTES, at_least_one: true };
        let read = source.read_rows(from, limits, Isolation::ReadUncommitted, &RowForm::default()).await?;
        if read.next <= from {
            return Ok(None);
        }
        let (chunks, size, next) = (read.chunks, read.bytes, read.next);
        let records = blocking(move || -> Result<Vec<Record>, LogError> {
            // A batch may come in several chunks: its patched prefix and the rest.
            let mut bytes = Vec::with_capacity(size);
            for chunk in chunks {
                load_chunk(chunk, &mut bytes)?;
            }
            let mut records = Vec::new();
            read_records(Bytes::from(bytes), from, partition, &mut records)?;
            Ok(records)
        })
        .await?;
        Ok(Some(LogRead { records, next }))
    }
}

/// One batch of records. Offsets are assigned by the partition.
pub(super) fn build_batch(records: &[Record], now_ms: i64) -> Bytes {
    let mut builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
    for (offset, record) in (0_i64..).zip(records) {
        let value = record.value_bytes();
        builder.push(offset, now_ms, Some(&record.key_bytes()), value.as_deref(), None);
    }
    builder.finish()
}

/// The records of whole batches. A record that does not read is reported and passed over: it is one group's, and the
/// others must not be lost with it.
fn read_records(mut bytes: Bytes, from: Offset, partition: i32, records: &mut Vec<Record>) -> Result<(), LogError> {
    while !bytes.is_empty() {
        let size = BatchHeader::parse(&bytes)?.total_size();
        if size > bytes.len() {
            return Err(BatchError::Length { stated: size, actual: bytes.len() }.into());
        }
        let batch = AssignedBatch::from_stored(bytes.split_to(size), true)?;
        if batch.header().attributes.is_control() {
            continue;
        }
        let section = batch.records(MAX_BATCH_BYTES)?;
        for record in RecordIter::new(&section, batch.header().record_count) {
            let record = record?;
            let offset = batch.header().base_offset + i64::from(record.offset_delta);
            if offset < from.get() {
                continue;
            }
            match Record::parse(record.key.unwrap_or_default(), record.value) {
                Ok(known) => records.extend(known),
                Err(cause) => {
                    error!(topic = GROUP_TOPIC, partition, offset, %cause, "a record of a group does not read and is passed over")
                }
            }
        }
    }
    Ok(())
}

fn load_chunk(chunk: Chunk, out: &mut Vec<u8>) -> Result<(), std::io::Error> {
    match chunk {
        Chunk::Bytes(bytes) => out.extend_from_slice(&bytes),
        Chunk::File { file, position, len } => {
            let start = out.len();
            out.resize(start + len, 0);
            file.read_exact_at(&mut out[start..], position)?;
        }
    }
    Ok(())
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
