//! The types of config values.

use super::macros::choices;
use super::{Choice, ConfigType};
use crate::record_batch::Compression;

/// A type that a config's text turns into.
pub trait ConfigValue: Sized {
    /// Kafka's type of it.
    const TYPE: ConfigType;
    /// The fixed set of values; empty when free.
    const CHOICES: &'static [Choice] = &[];
    /// Reads trimmed text.
    fn parse(text: &str) -> Option<Self>;
    /// Writes it as a user would.
    fn text(&self) -> String;
}

impl ConfigValue for bool {
    const TYPE: ConfigType = ConfigType::Boolean;
    fn parse(text: &str) -> Option<Self> {
        // Kafka's own parser ignores case.
        text.to_ascii_lowercase().parse().ok()
    }
    fn text(&self) -> String {
        self.to_string()
    }
}

impl ConfigValue for i32 {
    const TYPE: ConfigType = ConfigType::Int;
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn text(&self) -> String {
        self.to_string()
    }
}

impl ConfigValue for i64 {
    const TYPE: ConfigType = ConfigType::Long;
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn text(&self) -> String {
        self.to_string()
    }
}

impl ConfigValue for f64 {
    const TYPE: ConfigType = ConfigType::Double;
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn text(&self) -> String {
        // As Java writes it, so that a default reads as Kafka documents it.
        if self.abs() >= 1e7 { format!("{self:E}") } else { format!("{self:?}") }
    }
}

impl ConfigValue for String {
    const TYPE: ConfigType = ConfigType::String;
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn text(&self) -> String {
        self.clone()
    }
}

/// A free comma-separated list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List(pub Vec<String>);

impl ConfigValue for List {
    const TYPE: ConfigType = ConfigType::List;
    fn parse(text: &str) -> Option<Self> {
        Some(Self(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()))
    }
    fn text(&self) -> String {
        self.0.join(",")
    }
}

/// `cleanup.policy`: which of the two ways of losing data apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Old data is deleted by time and size.
    pub delete: bool,
    /// Superseded rows of a key may be dropped; the latest of each key stays.
    pub compact: bool,
}

impl ConfigValue for CleanupPolicy {
    const TYPE: ConfigType = ConfigType::List;
    const CHOICES: &'static [Choice] =
        &[Choice { text: "delete", built: true }, Choice { text: "compact", built: true }];
    fn parse(text: &str) -> Option<Self> {
        let mut policy = Self { delete: false, compact: false };
        for part in text.split(',').map(str::trim) {
            match part {
                "" => {}
                "delete" => policy.delete = true,
                "compact" => policy.compact = true,
                _ => return None,
            }
        }
        Some(policy)
    }
    fn text(&self) -> String {
        match (self.compact, self.delete) {
            (true, true) => "compact,delete".to_owned(),
            (true, false) => "compact".to_owned(),
            (false, true) => "delete".to_owned(),
            // Neither: the topic keeps everything (KIP-1161).
            (false, false) => String::new(),
        }
    }
}

/// `group.coordinator.rebalance.protocols`: which kinds of groups are served. The classic protocol always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupProtocols {
    /// KIP-848 groups.
    pub consumer: bool,
}

impl ConfigValue for GroupProtocols {
    const TYPE: ConfigType = ConfigType::List;
    const CHOICES: &'static [Choice] = &[
        Choice { text: "classic", built: true },
        Choice { text: "consumer", built: true },
        Choice { text: "share", built: false },
        Choice { text: "streams", built: false },
    ];
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        // Kafka does not start without the classic protocol either.
        parts.contains(&"classic").then(|| Self { consumer: parts.contains(&"consumer") })
    }
    fn text(&self) -> String {
        if self.consumer { "classic,consumer".to_owned() } else { "classic".to_owned() }
    }
}

/// `group.consumer.assignors`: the server-side assignors on offer, the default first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerAssignors(pub Vec<String>);

impl ConfigValue for ConsumerAssignors {
    const TYPE: ConfigType = ConfigType::List;
    const CHOICES: &'static [Choice] =
        &[Choice { text: "uniform", built: true }, Choice { text: "range", built: true }];
    fn parse(text: &str) -> Option<Self> {
        let mut names: Vec<String> = Vec::new();
        for name in text.split(',').map(str::trim) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Some(Self(names))
    }
    fn text(&self) -> String {
        self.0.join(",")
    }
}

choices! {
    /// `group.consumer.migration.policy`: whether groups with members become groups of the other protocol.
    pub enum MigrationPolicy {
        /// Both ways.
        Bidirectional = "bidirectional",
        /// Classic groups become consumer groups.
        Upgrade = "upgrade",
        /// Consumer groups become classic groups.
        Downgrade = "downgrade",
        /// Neither.
        Disabled = "disabled",
    }
}

choices! {
    /// `compression.type`: how the broker stores batches.
    pub enum CompressionType {
        /// Not compressed.
        Uncompressed = "uncompressed",
        /// With zstd.
        Zstd = "zstd",
        /// With lz4.
        Lz4 = "lz4",
        /// With snappy.
        Snappy = "snappy",
        /// With gzip.
        Gzip = "gzip",
        /// As the producer sent them.
        Producer = "producer",
    }
}

impl CompressionType {
    /// The codec that batches are brought to; `None` when they stay as they came.
    pub fn codec(self) -> Option<Compression> {
        Some(match self {
            Self::Producer => return None,
            Self::Uncompressed => Compression::None,
            Self::Zstd => Compression::Zstd,
            Self::Lz4 => Compression::Lz4,
            Self::Snappy => Compression::Snappy,
            Self::Gzip => Compression::Gzip,
        })
    }
}

choices! {
    /// `message.timestamp.type`.
    pub enum TimestampKind {
        /// The producer's time.
        CreateTime = "CreateTime",
        /// The broker's time of append.
        LogAppendTime = "LogAppendTime",
    }
}

choices! {
    /// `weir.schema.source`: where the columns of a topic come from.
    pub enum SchemaSource {
        /// From `weir.schema`.
        Declared = "declared",
    }
    not built: "registry-latest", "registry-id", "value_schema_latest", "value_schema_id_prefix"
}

choices! {
    /// `weir.value.format`: what a record's value holds.
    pub enum ValueFormat {
        /// Bytes that Weir does not look into.
        Raw = "raw",
        /// One JSON object per record.
        Json = "json",
    }
    not built: "avro", "protobuf"
}

choices! {
    /// `weir.key.format`: what a record's key holds.
    pub enum KeyFormat {
        /// Bytes that Weir does not look into.
        Raw = "raw",
        /// UTF-8 text.
        Text = "string",
    }
    not built: "json", "avro", "protobuf"
}

choices! {
    /// `weir.value.keep.raw`: which rows keep their produced bytes beside their columns.
    pub enum KeepRaw {
        /// Those whose bytes the encoder cannot reproduce.
        WhenNeeded = "when-needed",
        /// Every row: more disk, cheaper row reads.
        Always = "always",
    }
}

choices! {
    /// `weir.invalid.rows`: what happens to a row that does not fit the schema.
    pub enum InvalidRows {
        /// Its batch is refused with a record error naming it.
        Reject = "reject",
    }
    not built: "dead-letter", "keep-raw"
}

choices! {
    /// `weir.wal.sync`: when written data counts as durable.
    pub enum WalSync {
        /// After the data sync of its group; nothing is acknowledged before.
        Group = "group",
        /// At once; a sync follows every `weir.wal.sync.interval.ms`.
        Interval = "interval",
        /// At once; the operating system decides when to write.
        None = "none",
    }
}
