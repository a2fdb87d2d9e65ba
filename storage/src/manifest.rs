//! What the metadata store holds, key by key. One seal, one retention step, one topic change is one atomic commit.
//!
//! ```text
//! cluster                                  cluster id, 22 characters
//! producer-ids                             first producer id not yet handed to a block
//! broker-configs/cluster                   broker configs set while running, for all brokers: name to value
//! broker-configs/<node id>                 the same, for one broker
//! topic/<topic id>                         TopicRecord
//! partition/<topic id>/<index>             PartitionRecord
//! segment/<topic id>/<index>/<base offset> SegmentRecord
//! producers/<topic id>/<index>             ProducerTable as of the sealed end: sequences, open transactions, and the aborted
//!                                          ones that have rows in undecided segments
//! ```

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_model::{Offset, PartitionId, TopicId};

use crate::segment::SegmentMeta;

/// A partition's durable offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    /// First offset that can be read.
    pub log_start: Offset,
    /// First offset that is in no segment.
    pub sealed_end: Offset,
    /// First offset that is not in the lake, as the marker read back said. `None` before the first pour.
    pub lake_end: Option<Offset>,
    /// Of a compacted topic: the last pass of compaction ended here, the next one begins here. `None` before the first.
    #[serde(default)]
    pub compacted_end: Option<Offset>,
    /// From when on tombstones that compaction has kept may go, in milliseconds since the epoch; `None` when it kept none.
    #[serde(default)]
    pub tombstones_due_ms: Option<i64>,
}

impl PartitionRecord {
    /// A new partition.
    pub const NEW: Self = Self {
        log_start: Offset::ZERO,
        sealed_end: Offset::ZERO,
        lake_end: None,
        compacted_end: None,
        tombstones_due_ms: None,
    };
}

/// A stretch of a partition's offsets, and where its rows are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentRecord {
    /// The file as it was written.
    pub meta: SegmentMeta,
    /// Whether the local file is still there. When not, the lake alone holds the rows (LAKE-2).
    pub local: bool,
}

/// A value in the metadata store that does not decode.
#[derive(Debug, thiserror::Error)]
#[error("metadata key '{key}' does not decode: {reason}; run weir doctor before anything else")]
pub struct DecodeError {
    /// Which key.
    pub key: String,
    /// What the decoder said.
    pub reason: String,
}

/// Key of the cluster id.
pub const CLUSTER: &str = "cluster";
/// Key of the next producer id block.
pub const PRODUCER_IDS: &str = "producer-ids";
/// First part of the keys of broker configs.
pub const BROKER_CONFIGS: &str = "broker-configs";
/// Key of the broker configs of all brokers.
pub const CLUSTER_CONFIGS: &str = "broker-configs/cluster";
/// Prefix of all topics.
pub const TOPICS: &str = "topic/";

/// Key of the broker configs of one broker.
pub fn broker_configs_key(node_id: i32) -> String {
    format!("{BROKER_CONFIGS}/{node_id}")
}

/// Key of a topic.
pub fn topic_key(topic: TopicId) -> String {
    format!("{TOPICS}{}", topic.as_uuid().simple())
}

/// Prefix of everything of a topic in one kind of keys.
fn of_topic(kind: &str, topic: TopicId) -> String {
    format!("{kind}/{}/", topic.as_uuid().simple())
}

/// The kinds of keys that a topic's partitions have.
const PARTITION_KINDS: [&str; 3] = ["partition", "segment", "producers"];

/// The prefixes below which everything belongs to the partitions of a topic.
pub fn topic_prefixes(topic: TopicId) -> [String; 3] {
    PARTITION_KINDS.map(|kind| of_topic(kind, topic))
}

/// Key of a partition's record.
pub fn partition_key(partition: PartitionId) -> String {
    format!("{}{:010}", of_topic("partition", partition.topic), partition.index)
}

/// Prefix of a partition's segments, which sort by base offset.
pub fn segments_prefix(partition: PartitionId) -> String {
    format!("{}{:010}/", of_topic("segment", partition.topic), partition.index)
}

/// The partition that a key of the form `<kind>/<topic id>/<index>...` speaks of.
pub fn partition_of(key: &str) -> Option<PartitionId> {
    let mut parts = key.split('/').skip(1);
    let topic = TopicId::from_uuid(parts.next()?.parse().ok()?);
    let index = parts.next()?.parse().ok()?;
    Some(PartitionId { topic, index })
}

/// Key of one segment.
pub fn segment_key(partition: PartitionId, base_offset: Offset) -> String {
    format!("{}{:020}", segments_prefix(partition), base_offset.get())
}

/// Key of a partition's producer table.
pub fn producers_key(partition: PartitionId) -> String {
    format!("{}{:010}", of_topic("producers", partition.topic), partition.index)
}

/// A value as it is stored.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("manifest values have string keys and finite numbers")
}

/// A stored value.
///
/// # Errors
/// [`DecodeError`], which names the key. Nothing is deleted on its account.
pub fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(value).map_err(|error| DecodeError { key: key.to_owned(), reason: error.to_string() })
}
