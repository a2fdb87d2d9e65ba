//! The logs that coordinators keep their state in: internal topics, written and read like any other.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use weir_model::producer::{ProducerId, TxnMarker};
use weir_model::record_batch::{
    AssignedBatch, BatchBuilder, BatchError, BatchHeader, BatchLimits, Compression, MARKER_BATCH_BYTES, RecordIter,
    ValidBatch,
};
use weir_model::{Clock, Isolation, Offset, PartitionId, TimestampType};
use weir_storage::{
    AdmitError, AppendError, Chunk, Partition, ReadError, ReadLimits, RowForm, Storage, TopicInfo, TxnGuard,
};

use super::transaction::Producer;
use crate::topics::{NewTopic, TopicError, Topics};

/// The topic of groups, as every Kafka tool knows it.
pub const GROUP_TOPIC: &str = "__consumer_offsets";

/// The topic of transactional ids, as every Kafka tool knows it.
pub const TRANSACTION_TOPIC: &str = "__transaction_state";

/// Bytes of the log read in one step of a load.
const LOAD_BYTES: usize = 4 << 20;
/// The broker's own batches are bounded by the shard's batching; a record is bounded by the request it came from.
const MAX_BATCH_BYTES: usize = 1 << 30;
/// A batch that a coordinator writes for a producer has no sequence, as in Kafka.
const NO_SEQUENCE: i32 = -1;

/// Resolves when what was appended is durable.
pub(super) type Durability = BoxFuture<'static, Result<(), LogError>>;

/// Why a coordinator's log cannot be written or read now.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The topic could not be made.
    #[error("the coordinator's topic cannot be created: {0}")]
    Create(#[from] TopicError),
    /// No room.
    #[error("the coordinator's log cannot be written: {0}")]
    Admit(#[from] AdmitError),
    /// Refused by the partition.
    #[error("the coordinator's log cannot be written: {0}")]
    Append(#[from] AppendError),
    /// The WAL failed.
    #[error("the coordinator's log cannot be written: {0}")]
    Wal(#[from] weir_storage::wal::WalError),
    /// A segment or the lake does not read.
    #[error("the coordinator's log cannot be read: {0}")]
    Read(#[from] ReadError),
    /// A file does not read.
    #[error("the coordinator's log cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A batch does not read.
    #[error("{topic} holds a batch that does not read: {source}; run weir doctor on the data directory")]
    Batch {
        /// The topic.
        topic: &'static str,
        /// What is wrong with it.
        source: BatchError,
    },
    /// A marker does not read.
    #[error("{topic} holds a marker that does not read: {source}; run weir doctor on the data directory")]
    Marker {
        /// The topic.
        topic: &'static str,
        /// What is wrong with it.
        source: weir_model::record_batch::ControlError,
    },
    /// The topic has fewer partitions than the coordinator was started with.
    #[error("{topic} has no partition {partition}: restart the broker")]
    NoPartition {
        /// The topic.
        topic: &'static str,
        /// Which.
        partition: i32,
    },
    /// A test's log that refuses.
    #[cfg(test)]
    #[error("refused by the test")]
    Refused,
}

/// Which topic a coordinator keeps its state in.
#[derive(Debug, Clone, Copy)]
pub(super) struct InternalTopic {
    pub(super) name: &'static str,
    /// Partitions it is made with.
    pub(super) partitions: i32,
}

/// A coordinator's log in this broker's own storage.
pub(super) struct StorageLog {
    pub(super) storage: Storage,
    pub(super) topics: Topics,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) topic: InternalTopic,
}

/// One batch of the log, as it is stored.
pub(super) struct StoredBatch {
    batch: AssignedBatch,
    from: Offset,
}

/// A stretch of the log, read as `T`.
pub(super) struct LogRead<T> {
    pub(super) entries: Vec<T>,
    pub(super) next: Offset,
}

impl StorageLog {
    pub(super) fn info(&self) -> Option<Arc<TopicInfo>> {
        self.storage.topics().by_name(self.topic.name).cloned()
    }

    /// Partitions that the topic has, or will have once it is made.
    pub(super) fn partition_count(&self) -> i32 {
        self.info().map_or(self.topic.partitions, |topic| topic.partitions())
    }

    /// Partitions with something to load.
    pub(super) fn written_partitions(&self) -> Vec<i32> {
        let Some(topic) = self.info() else { return Vec::new() };
        let partitions = self.storage.partitions(&topic).into_iter();
        partitions
            .filter(|partition| partition.offsets().high_watermark() > Offset::ZERO)
            .map(|partition| partition.id().index)
            .collect()
    }

    /// The topic, made by the first write (S-74: FindCoordinator need not wait for it).
    async fn make_topic(&self) -> Result<Arc<TopicInfo>, LogError> {
        if let Some(topic) = self.info() {
            return Ok(topic);
        }
        let topic = NewTopic {
            name: self.topic.name.to_owned(),
            partitions: self.topic.partitions,
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
                self.info().ok_or(LogError::NoPartition { topic: self.topic.name, partition: 0 })
            }
            Err(cause) => Err(cause.into()),
        }
    }

    fn partition(&self, topic: &TopicInfo, partition: i32) -> Result<Partition, LogError> {
        let id = PartitionId { topic: topic.id(), index: partition };
        self.storage.partition(id).ok_or(LogError::NoPartition { topic: self.topic.name, partition })
    }

    /// What to take before a producer's transaction is verified for a write to this partition.
    pub(super) async fn guard(&self, partition: i32, producer_id: ProducerId) -> Result<TxnGuard, LogError> {
        let topic = self.make_topic().await?;
        Ok(self.partition(&topic, partition)?.txn_guard(producer_id))
    }

    /// Whether a producer has a transaction open in this partition.
    pub(super) fn has_open_transaction(&self, partition: i32, producer_id: ProducerId) -> bool {
        let Some(topic) = self.info() else { return false };
        self.partition(&topic, partition).is_ok_and(|source| source.transaction_of(producer_id).is_some())
    }

    /// Orders a batch after everything appended to the partition before. What is returned resolves when it is durable.
    pub(super) async fn append(
        &self,
        partition: i32,
        bytes: Bytes,
        guard: Option<&TxnGuard>,
    ) -> Result<Durability, LogError> {
        let topic = self.make_topic().await?;
        let target = self.partition(&topic, partition)?;
        let size = bytes.len();
        let limits = BatchLimits { max_bytes: MAX_BATCH_BYTES, max_decompressed_bytes: MAX_BATCH_BYTES };
        let batch = ValidBatch::validate_internal(bytes, &limits).map_err(|source| self.bad_batch(source))?;
        let mut admission = self.storage.admit([size]).await?;
        let appended = target.append_guarded(&mut admission, batch, None, size, self.clock.now_ms(), guard)?;
        Ok(self.durability(appended.seq))
    }

    /// As [`Self::append`], with the end of a transaction.
    pub(super) async fn append_marker(&self, partition: i32, marker: TxnMarker) -> Result<Durability, LogError> {
        let topic = self.make_topic().await?;
        let target = self.partition(&topic, partition)?;
        let mut admission = self.storage.admit([MARKER_BATCH_BYTES]).await?;
        let appended = target.append_marker(&mut admission, &marker, self.clock.now_ms())?;
        Ok(self.durability(appended.seq))
    }

    fn durability(&self, seq: Option<weir_storage::wal::WalSeq>) -> Durability {
        let storage = self.storage.clone();
        Box::pin(async move {
            if let Some(seq) = seq {
                storage.durable(seq).await?;
            }
            Ok(())
        })
    }

    /// Reads on from `from` (the start, when `None`) with `parse`; `None` at the end.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        partition: i32,
        from: Option<Offset>,
        parse: impl Fn(StoredBatch, &mut Vec<T>) -> Result<(), LogError> + Send + 'static,
    ) -> Result<Option<LogRead<T>>, LogError> {
        let Some(topic) = self.info() else { return Ok(None) };
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
        let (chunks, size, next, name) = (read.chunks, read.bytes, read.next, self.topic.name);
        let entries = blocking(move || -> Result<Vec<T>, LogError> {
            // A batch may come in several chunks: its patched prefix and the rest.
            let mut bytes = Vec::with_capacity(size);
            for chunk in chunks {
                load_chunk(chunk, &mut bytes)?;
            }
            let mut entries = Vec::new();
            let wrap = |source| LogError::Batch { topic: name, source };
            for batch in whole_batches(Bytes::from(bytes)) {
                parse(StoredBatch { batch: batch.map_err(wrap)?, from }, &mut entries)?;
            }
            Ok(entries)
        })
        .await?;
        Ok(Some(LogRead { entries, next }))
    }

    fn bad_batch(&self, source: BatchError) -> LogError {
        LogError::Batch { topic: self.topic.name, source }
    }
}

impl StoredBatch {
    pub(super) fn batch(&self) -> &AssignedBatch {
        &self.batch
    }

    pub(super) fn header(&self) -> &BatchHeader {
        self.batch.header()
    }

    /// Calls `each` with offset, key and value of the records from where the read began.
    pub(super) fn records(
        &self,
        topic: &'static str,
        mut each: impl FnMut(i64, Option<&[u8]>, Option<&[u8]>),
    ) -> Result<(), LogError> {
        let wrap = |source| LogError::Batch { topic, source };
        let section = self.batch.records(MAX_BATCH_BYTES).map_err(wrap)?;
        for record in RecordIter::new(&section, self.header().record_count) {
            let record = record.map_err(wrap)?;
            let offset = self.header().base_offset + i64::from(record.offset_delta);
            if offset >= self.from.get() {
                each(offset, record.key, record.value);
            }
        }
        Ok(())
    }
}

/// One batch of keys and values, of a transaction when `producer` is given; such a batch of a coordinator has no sequence, as in Kafka. Offsets are assigned
/// by the partition.
pub(super) fn build_batch(
    records: impl IntoIterator<Item = (Bytes, Option<Bytes>)>,
    producer: Option<Producer>,
    now_ms: i64,
) -> Bytes {
    let mut builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
    if let Some(producer) = producer {
        builder = builder.transactional(producer.id, producer.epoch, NO_SEQUENCE);
    }
    for (offset, (key, value)) in (0_i64..).zip(records) {
        builder.push(offset, now_ms, Some(&key), value.as_deref(), None);
    }
    builder.finish()
}

fn whole_batches(mut bytes: Bytes) -> impl Iterator<Item = Result<AssignedBatch, BatchError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let next = BatchHeader::parse(&bytes).and_then(|header| {
            let size = header.total_size();
            if size > bytes.len() {
                return Err(BatchError::Length { stated: size, actual: bytes.len() });
            }
            AssignedBatch::from_stored(bytes.split_to(size), true)
        });
        if next.is_err() {
            bytes.clear();
        }
        Some(next)
    })
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
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
