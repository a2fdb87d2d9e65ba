//! What a topic with a schema asks of a batch: every value becomes a row, or the batch is refused and each bad row named.

use arrow::array::RecordBatch;
use weir_model::config::{KeyFormat, TimestampKind, TopicConfig};
use weir_model::record_batch::{BatchError, BatchLimits, Compression, ValidBatch};
use weir_storage::TopicInfo;

use bytes::Bytes;

/// The largest record section that a batch may decompress to: above every `max.message.bytes` in use, below what a reader of stored batches accepts.
const MAX_DECOMPRESSED_BYTES: usize = 128 << 20;

/// The most record errors one partition's answer lists; a batch of a million bad rows must not become a response of a hundred megabytes.
const MAX_RECORD_ERRORS: usize = 100;

/// A batch that may be appended.
pub struct CheckedBatch {
    /// The batch, stamped when the topic asks for it.
    pub batch: ValidBatch,
    /// The user's columns, one row per record, when the topic has a schema.
    pub columns: Option<RecordBatch>,
}

/// A record that keeps its batch from being appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// Its position in the batch, from 0.
    pub index: usize,
    /// One sentence.
    pub message: String,
}

/// Why a batch may not be appended.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no batch.
    #[error("the partition's records are empty: send exactly one record batch")]
    Empty,
    /// The batch itself is not in order.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// zstd came with Produce v7; an older client that sends it cannot read it back (S-31).
    #[error("zstd needs Produce version 7 or later; version {version} was used")]
    ZstdTooOld {
        /// The version of the request.
        version: i16,
    },
    /// Records without a key in a compacted topic.
    #[error("topic '{topic}' is compacted: every record needs a key, {count} have none")]
    KeyMissing {
        /// The topic.
        topic: String,
        /// How many.
        count: usize,
        /// The first of them.
        records: Vec<BadRecord>,
    },
    /// Timestamps outside what the topic accepts.
    #[error(
        "{count} records have a timestamp outside {earliest}..={latest}, which message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic allow"
    )]
    Timestamps {
        /// How many.
        count: usize,
        /// The earliest accepted.
        earliest: i64,
        /// The latest accepted.
        latest: i64,
        /// The first of them.
        records: Vec<BadRecord>,
    },
    /// Keys that are not text, in a topic of text keys.
    #[error("topic '{topic}' has weir.key.format=string: {count} keys are not UTF-8")]
    KeyNotText {
        /// The topic.
        topic: String,
        /// How many.
        count: usize,
        /// The first of them.
        records: Vec<BadRecord>,
    },
    /// Values that are not rows of the table.
    #[error("{count} rows do not fit table '{topic}'; the first: {}", records.first().map_or("", |record| record.message.as_str()))]
    Rows {
        /// The topic.
        topic: String,
        /// How many, as far as they were looked for.
        count: usize,
        /// The first of them.
        records: Vec<BadRecord>,
    },
}

impl Refusal {
    /// The records at fault, by position, when it is single records.
    #[must_use]
    pub fn bad_records(&self) -> &[BadRecord] {
        match self {
            Self::Empty | Self::Batch(_) | Self::ZstdTooOld { .. } => &[],
            Self::KeyMissing { records, .. }
            | Self::KeyNotText { records, .. }
            | Self::Timestamps { records, .. }
            | Self::Rows { records, .. } => records,
        }
    }
}

/// Checks one partition's records, and decodes them when the topic is a table. Takes no lock and does no I/O; its cost is that of decompressing and decoding.
///
/// # Errors
/// [`Refusal`].
pub fn check(records: Bytes, topic: &TopicInfo, produce_version: i16, now_ms: i64) -> Result<CheckedBatch, Refusal> {
    if records.is_empty() {
        return Err(Refusal::Empty);
    }
    let limits = BatchLimits {
        max_bytes: usize::try_from(topic.config.max_message_bytes).unwrap_or(usize::MAX),
        max_decompressed_bytes: MAX_DECOMPRESSED_BYTES,
    };
    let batch = ValidBatch::validate(records, &limits)?;
    if produce_version < 7 && batch.header().attributes.compression()? == Compression::Zstd {
        return Err(Refusal::ZstdTooOld { version: produce_version });
    }
    if topic.config.cleanup_policy.compact {
        check_keys(&batch, topic)?;
    }
    if topic.config.weir_key_format == KeyFormat::Text {
        check_key_text(&batch, topic)?;
    }
    let batch = match topic.config.message_timestamp_type {
        TimestampKind::LogAppendTime => batch.with_log_append_time(now_ms),
        TimestampKind::CreateTime => {
            check_timestamps(&batch, &topic.config, now_ms)?;
            batch
        }
    };
    let batch = match topic.config.compression_type.codec() {
        None => batch,
        Some(codec) => {
            let batch = batch.with_compression(codec, topic.config.compression_level());
            // As Kafka does, once more: another codec may have made it larger.
            let size = batch.bytes().len();
            if size > limits.max_bytes {
                return Err(BatchError::TooLarge { size, limit: limits.max_bytes }.into());
            }
            batch
        }
    };
    let columns = topic.table.as_ref().map(|schema| decode(&batch, schema, topic)).transpose()?;
    Ok(CheckedBatch { batch, columns })
}

fn check_keys(batch: &ValidBatch, topic: &TopicInfo) -> Result<(), Refusal> {
    let (count, records) = faults(batch, |record| {
        record.key.is_none().then(|| "the record has no key, and the topic is compacted".to_owned())
    })?;
    if count == 0 {
        return Ok(());
    }
    Err(Refusal::KeyMissing { topic: topic.name().as_str().to_owned(), count, records })
}

fn check_key_text(batch: &ValidBatch, topic: &TopicInfo) -> Result<(), Refusal> {
    let (count, records) = faults(batch, |record| {
        record
            .key
            .and_then(|key| std::str::from_utf8(key).err())
            .map(|error| format!("the key is not UTF-8 text: {error}"))
    })?;
    if count == 0 {
        return Ok(());
    }
    Err(Refusal::KeyNotText { topic: topic.name().as_str().to_owned(), count, records })
}

fn check_timestamps(batch: &ValidBatch, config: &TopicConfig, now_ms: i64) -> Result<(), Refusal> {
    let latest = now_ms.saturating_add(config.message_timestamp_after_max_ms);
    let earliest = now_ms.saturating_sub(config.message_timestamp_before_max_ms);
    let base = batch.header().base_timestamp;
    // The header's maximum is the client's word: it decides alone only where no lower bound is set and it is innocent, as it is for every batch of an honest client.
    if batch.header().max_timestamp <= latest && earliest <= 0 {
        return Ok(());
    }
    let (count, records) = faults(batch, |record| {
        let timestamp = base.saturating_add(record.timestamp_delta);
        // A record without timestamp (-1) has none to judge.
        let accepted = timestamp < 0 || (earliest..=latest).contains(&timestamp);
        (!accepted).then(|| format!("timestamp {timestamp} is outside {earliest}..={latest}"))
    })?;
    if count == 0 {
        return Ok(());
    }
    Err(Refusal::Timestamps { count, earliest, latest, records })
}

/// The records that a rule objects to: how many, and the first of them.
fn faults(
    batch: &ValidBatch,
    objection: impl Fn(&weir_model::record_batch::Record<'_>) -> Option<String>,
) -> Result<(usize, Vec<BadRecord>), BatchError> {
    let mut count = 0;
    let mut records = Vec::new();
    for (index, record) in batch.iter().enumerate() {
        let Some(message) = objection(&record?) else { continue };
        count += 1;
        if records.len() < MAX_RECORD_ERRORS {
            records.push(BadRecord { index, message });
        }
    }
    Ok((count, records))
}

fn decode(batch: &ValidBatch, schema: &weir_table::TableSchema, topic: &TopicInfo) -> Result<RecordBatch, Refusal> {
    // The framing of every record was checked with the batch, so no row is lost by stopping at an error here.
    let values = batch.iter().map_while(|record| record.ok().map(|record| record.value));
    weir_table::decode_batch(schema, values).map_err(|errors| Refusal::Rows {
        topic: topic.name().as_str().to_owned(),
        count: errors.len(),
        records: errors
            .iter()
            .take(MAX_RECORD_ERRORS)
            .map(|error| BadRecord { index: error.row, message: error.to_string() })
            .collect(),
    })
}
