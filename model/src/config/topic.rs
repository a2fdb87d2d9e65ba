//! Topic configs: Kafka's own (S-66) and Weir's.

use std::collections::BTreeMap;

use super::macros::configs;
use super::suggest::nearest;
use super::{
    BrokerConfig, CleanupPolicy, CompressionType, ConfigDef, ConfigError, InvalidRows, KeepRaw, KeyFormat, List,
    SchemaSource, TimestampKind, ValueFormat,
};

/// Names of section 10 of the public contract, and of Kafka's own tests, whose behaviour does not exist yet. They are refused by
/// name.
pub static NOT_BUILT_TOPIC_CONFIGS: &[&str] = &[
    "internal.segment.bytes",
    "weir.primary.key",
    "weir.merge.engine",
    "weir.changelog.image",
    "weir.delete.behavior",
    "weir.key.partitioner",
    "weir.lake.partition.by",
    "weir.view.source",
    "weir.columns",
    "weir.filter",
    "weir.format",
    "weir.changelog",
];

configs! {
    /// The configs of one topic, resolved: what the topic sets, else what the broker sets, else the default.
    pub struct TopicConfig, table
    /// Every topic config that is accepted, in the order DescribeConfigs lists them.
    TOPIC_CONFIGS {
        /// How old data goes: delete (by time and size), compact (the latest row of each key stays), both, or empty for neither.
        /// Topics with a schema are not compacted yet: they keep every row that delete does not take.
        cleanup_policy: CleanupPolicy = ConfigDef::new("cleanup.policy", "delete").synonyms(&["log.cleanup.policy"]);
        /// How the broker stores batches: producer keeps them as they came, another value brings those of other codecs to this one.
        compression_type: CompressionType = ConfigDef::new("compression.type", "producer").synonyms(&["compression.type"]);
        /// Level of gzip when the broker compresses, 1 to 9; -1 leaves it to gzip.
        compression_gzip_level: i32 = ConfigDef::new("compression.gzip.level", "-1").between(-1, 9).synonyms(&["compression.gzip.level"]);
        /// Level of lz4 when the broker compresses. Every level compresses as the fastest does.
        compression_lz4_level: i32 = ConfigDef::new("compression.lz4.level", "9").between(1, 17).synonyms(&["compression.lz4.level"]).hint();
        /// Level of zstd when the broker compresses.
        compression_zstd_level: i32 = ConfigDef::new("compression.zstd.level", "3").between(-131_072, 22).synonyms(&["compression.zstd.level"]);
        /// How long a tombstone of a compacted topic stays readable once compaction has found it.
        delete_retention_ms: i64 = ConfigDef::new("delete.retention.ms", "86400000").at_least(0).synonyms(&["log.cleaner.delete.retention.ms"]);
        /// How long a deleted file stays on disk. Weir removes it once no reader holds it.
        file_delete_delay_ms: i64 = ConfigDef::new("file.delete.delay.ms", "60000").at_least(0).synonyms(&["log.segment.delete.delay.ms"]).hint();
        /// Sync after this many records. Weir syncs every group before it acknowledges (weir.wal.sync), which is stricter.
        flush_messages: i64 = ConfigDef::new("flush.messages", "9223372036854775807").at_least(1).synonyms(&["log.flush.interval.messages"]).hint();
        /// Sync after this time. Weir syncs every group before it acknowledges (weir.wal.sync), which is stricter.
        flush_ms: i64 = ConfigDef::new("flush.ms", "9223372036854775807").at_least(0).synonyms(&["log.flush.interval.ms"]).hint();
        /// Replicas whose fetching is throttled; there are no followers to throttle.
        follower_replication_throttled_replicas: List = ConfigDef::new("follower.replication.throttled.replicas", "").hint();
        /// Bytes between entries of a segment's offset index.
        index_interval_bytes: i32 = ConfigDef::new("index.interval.bytes", "4096").at_least(0).synonyms(&["log.index.interval.bytes"]).hint();
        /// Replicas whose serving is throttled; there are no followers to throttle.
        leader_replication_throttled_replicas: List = ConfigDef::new("leader.replication.throttled.replicas", "").hint();
        /// Local data older than this may go once it is in the lake; -2 means retention.ms.
        local_retention_ms: i64 = ConfigDef::new("local.retention.ms", "-2").at_least(-2).synonyms(&["log.local.retention.ms"]);
        /// Local data beyond this many bytes per partition may go once it is in the lake; -2 means retention.bytes.
        local_retention_bytes: i64 = ConfigDef::new("local.retention.bytes", "-2").at_least(-2).synonyms(&["log.local.retention.bytes"]);
        /// How long a row of a compacted topic may stay uncompacted.
        max_compaction_lag_ms: i64 = ConfigDef::new("max.compaction.lag.ms", "9223372036854775807").at_least(1).synonyms(&["log.cleaner.max.compaction.lag.ms"]);
        /// Largest record batch that is accepted, compressed and with its header.
        max_message_bytes: i32 = ConfigDef::new("max.message.bytes", "1048588").at_least(0).synonyms(&["message.max.bytes"]);
        /// How far a record's timestamp may lie ahead of the broker's clock.
        message_timestamp_after_max_ms: i64 = ConfigDef::new("message.timestamp.after.max.ms", "3600000").at_least(0).synonyms(&["log.message.timestamp.after.max.ms"]);
        /// How far a record's timestamp may lie behind the broker's clock.
        message_timestamp_before_max_ms: i64 = ConfigDef::new("message.timestamp.before.max.ms", "9223372036854775807").at_least(0).synonyms(&["log.message.timestamp.before.max.ms"]);
        /// Whose time a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).
        message_timestamp_type: TimestampKind = ConfigDef::new("message.timestamp.type", "CreateTime").synonyms(&["log.message.timestamp.type"]);
        /// How much of a compacted log, by size, may be uncompacted before compaction starts. A tail is sealed for it from 4 MiB on.
        min_cleanable_dirty_ratio: f64 = ConfigDef::new("min.cleanable.dirty.ratio", "0.5").between(0, 1).synonyms(&["log.cleaner.min.cleanable.ratio"]);
        /// How long a row of a compacted topic stays uncompacted.
        min_compaction_lag_ms: i64 = ConfigDef::new("min.compaction.lag.ms", "0").at_least(0).synonyms(&["log.cleaner.min.compaction.lag.ms"]);
        /// How many replicas must hold a row before acks=all is answered; clamped to the one replica there is, which has synced it.
        min_insync_replicas: i32 = ConfigDef::new("min.insync.replicas", "1").at_least(1).synonyms(&["min.insync.replicas"]).hint();
        /// Allocate segment files ahead. The WAL always is.
        preallocate: bool = ConfigDef::new("preallocate", "false").synonyms(&["log.preallocate"]).hint();
        /// Kafka's tiered storage. Weir's is weir.lake.enable.
        remote_storage_enable: bool = ConfigDef::new("remote.storage.enable", "false").default_only();
        /// Kafka's tiered storage: stop copying.
        remote_log_copy_disable: bool = ConfigDef::new("remote.log.copy.disable", "false").default_only();
        /// Kafka's tiered storage: delete the remote copy when it is turned off.
        remote_log_delete_on_disable: bool = ConfigDef::new("remote.log.delete.on.disable", "false").default_only();
        /// Delete the oldest data beyond this many bytes per partition; -1 keeps all.
        retention_bytes: i64 = ConfigDef::new("retention.bytes", "-1").at_least(-1).synonyms(&["log.retention.bytes"]);
        /// Delete data older than this; -1 keeps it for ever.
        retention_ms: i64 = ConfigDef::new("retention.ms", "604800000").at_least(-1).synonyms(&["log.retention.ms", "log.retention.minutes", "log.retention.hours"]);
        /// Size that small segments are merged toward. A compacted topic's tail is sealed when it has this size.
        segment_bytes: i32 = ConfigDef::new("segment.bytes", "1073741824").at_least(1_048_576).synonyms(&["log.segment.bytes"]);
        /// Size of a segment's index files. They are as large as they need to be.
        segment_index_bytes: i32 = ConfigDef::new("segment.index.bytes", "10485760").at_least(4).synonyms(&["log.index.size.max.bytes"]).hint();
        /// Random spread of segment.ms.
        segment_jitter_ms: i64 = ConfigDef::new("segment.jitter.ms", "0").at_least(0).hint();
        /// Seal a compacted topic's tail when its oldest row is this old, so that it can be compacted. Other topics are sealed by size
        /// alone; their retention does not need it.
        segment_ms: i64 = ConfigDef::new("segment.ms", "604800000").at_least(1).synonyms(&["log.roll.ms", "log.roll.hours"]);
        /// Let a replica lead that lacks acknowledged rows; there is one replica.
        unclean_leader_election_enable: bool = ConfigDef::new("unclean.leader.election.enable", "false").synonyms(&["unclean.leader.election.enable"]).hint();
        /// What a record's key holds: raw bytes or string (UTF-8 text).
        weir_key_format: KeyFormat = ConfigDef::new("weir.key.format", "raw").read_only();
        /// Pour this topic into an Iceberg table, exactly once.
        weir_lake_enable: bool = ConfigDef::new("weir.lake.enable", "false");
        /// Iceberg format version of the table.
        weir_lake_format_version: i32 = ConfigDef::new("weir.lake.format.version", "2").default_only();
        /// How old a row may become before it is in the lake.
        weir_lake_freshness_ms: i64 = ConfigDef::new("weir.lake.freshness.ms", "60000").at_least(100);
        /// What happens to a row that does not fit the schema: reject refuses its batch and names the row.
        weir_invalid_rows: InvalidRows = ConfigDef::new("weir.invalid.rows", "reject");
        /// The columns, as SQL: `id BIGINT NOT NULL, item STRING, amount DECIMAL(10,2), at TIMESTAMP`. Empty for a topic of raw bytes.
        weir_schema: String = ConfigDef::new("weir.schema", "").read_only();
        /// Where the columns come from.
        weir_schema_source: SchemaSource = ConfigDef::new("weir.schema.source", "declared").read_only();
        /// Size a partition's tail reaches before it is sealed into a segment.
        weir_seal_bytes: i64 = ConfigDef::new("weir.seal.bytes", "67108864").at_least(1_024).synonyms(&["weir.seal.bytes"]);
        /// What a record's value holds: json (one object per record, checked against weir.schema) or raw bytes. Defaults to json once a schema is given.
        weir_value_format: ValueFormat = ConfigDef::new("weir.value.format", "raw").read_only();
        /// Which rows keep their produced bytes beside their columns: when-needed (those the encoder cannot reproduce) or always.
        weir_value_keep_raw: KeepRaw = ConfigDef::new("weir.value.keep.raw", "when-needed");
    }
}

/// Where a topic config's value comes from, in Kafka's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopicConfigSource {
    /// Set on the topic.
    Topic,
    /// Set on the broker, under this name.
    Broker(&'static str),
    /// Nowhere set.
    Default,
}

impl TopicConfig {
    /// Types and checks the configs of a topic. A schema's text is not parsed here: that takes the table crate.
    ///
    /// # Errors
    /// [`ConfigError`] names the first config, in name order, that is unknown, not built, out of bounds, or at odds
    /// with another one.
    pub fn resolve(overrides: &BTreeMap<String, String>, broker: &BrokerConfig) -> Result<Self, ConfigError> {
        for name in overrides.keys() {
            Self::def(name)?;
        }
        let mut config = Self::parse(overrides, |def| Self::value_and_source(def, overrides, broker).0)?;
        config.settle()?;
        Ok(config)
    }

    /// The row of a topic config.
    ///
    /// # Errors
    /// `NotBuilt` or `Unknown`, with the nearest name.
    pub fn def(name: &str) -> Result<&'static ConfigDef, ConfigError> {
        if let Some(def) = ConfigDef::find(TOPIC_CONFIGS, name) {
            return Ok(def);
        }
        if let Some(name) = NOT_BUILT_TOPIC_CONFIGS.iter().find(|reserved| **reserved == name) {
            return Err(ConfigError::NotBuilt { name });
        }
        Err(ConfigError::Unknown {
            name: name.to_owned(),
            nearest: nearest(TOPIC_CONFIGS, NOT_BUILT_TOPIC_CONFIGS, name),
        })
    }

    /// The text of one config and where it comes from.
    pub fn value_and_source(
        def: &'static ConfigDef,
        overrides: &BTreeMap<String, String>,
        broker: &BrokerConfig,
    ) -> (String, TopicConfigSource) {
        if let Some(value) = overrides.get(def.name) {
            return (value.clone(), TopicConfigSource::Topic);
        }
        for synonym in def.synonyms {
            // -2 is how the broker writes "not set here" for its times that have several names.
            let times = ["log.retention.", "log.roll."];
            let set = broker
                .given()
                .get(*synonym)
                .filter(|value| !(times.iter().any(|prefix| synonym.starts_with(prefix)) && value.trim() == "-2"));
            if let Some(value) = set {
                return (in_topic_unit(synonym, value), TopicConfigSource::Broker(synonym));
            }
        }
        if def.name == "weir.value.format"
            && overrides.get("weir.schema").is_some_and(|schema| !schema.trim().is_empty())
        {
            return (ValueFormat::Json.as_str().to_owned(), TopicConfigSource::Default);
        }
        (def.default.to_owned(), TopicConfigSource::Default)
    }

    /// Whether retention by time and size applies. A purely compacted topic keeps everything (S-73).
    pub fn deletes_by_retention(&self) -> bool {
        self.cleanup_policy.delete
    }

    /// The level at which the broker compresses with its `compression.type`; `None` for the codec's own.
    pub fn compression_level(&self) -> Option<i32> {
        match self.compression_type {
            CompressionType::Gzip => Some(self.compression_gzip_level).filter(|level| *level > 0),
            CompressionType::Zstd => Some(self.compression_zstd_level),
            CompressionType::Producer
            | CompressionType::Uncompressed
            | CompressionType::Lz4
            | CompressionType::Snappy => None,
        }
    }

    /// `local.retention.ms` with -2 replaced by what it stands for.
    pub fn effective_local_retention_ms(&self) -> i64 {
        if self.local_retention_ms == -2 { self.retention_ms } else { self.local_retention_ms }
    }

    /// `local.retention.bytes` with -2 replaced by what it stands for.
    pub fn effective_local_retention_bytes(&self) -> i64 {
        if self.local_retention_bytes == -2 { self.retention_bytes } else { self.local_retention_bytes }
    }

    /// The rules that span configs.
    fn settle(&mut self) -> Result<(), ConfigError> {
        self.weir_schema = self.weir_schema.trim().to_owned();
        if self.compression_gzip_level == 0 {
            let (name, value) = ("compression.gzip.level", "0".to_owned());
            return Err(ConfigError::WrongType { name, value, expected: "a level from 1 to 9, or -1 for gzip's own" });
        }
        match (self.weir_schema.is_empty(), self.weir_value_format) {
            (false, ValueFormat::Raw) => return Err(ConfigError::SchemaNeedsFormat),
            (true, ValueFormat::Json) => return Err(ConfigError::FormatNeedsSchema),
            (false, ValueFormat::Json) | (true, ValueFormat::Raw) => {}
        }
        for (name, replicas) in [
            ("follower.replication.throttled.replicas", &self.follower_replication_throttled_replicas),
            ("leader.replication.throttled.replicas", &self.leader_replication_throttled_replicas),
        ] {
            if !are_replicas(&replicas.0) {
                let expected = "* or partition:broker,partition:broker,...";
                return Err(ConfigError::WrongType { name, value: replicas.0.join(","), expected });
            }
        }
        if self.cleanup_policy.compact && self.min_compaction_lag_ms > self.max_compaction_lag_ms {
            return Err(ConfigError::Crossed {
                low: "min.compaction.lag.ms",
                low_value: self.min_compaction_lag_ms,
                high: "max.compaction.lag.ms",
                high_value: self.max_compaction_lag_ms,
            });
        }
        let pairs = [
            ("local.retention.ms", self.local_retention_ms, "retention.ms", self.retention_ms),
            ("local.retention.bytes", self.local_retention_bytes, "retention.bytes", self.retention_bytes),
        ];
        for (local, local_value, total, total_value) in pairs {
            // -2 follows the total; a total of -1 is unlimited; a local of -1 is unlimited and needs an unlimited total.
            let exceeds = total_value != -1 && local_value != -2 && (local_value == -1 || local_value > total_value);
            if exceeds {
                return Err(ConfigError::LocalRetentionExceedsRetention { local, local_value, total, total_value });
            }
        }
        Ok(())
    }
}

/// Kafka's `ThrottledReplicaListValidator`.
fn are_replicas(list: &[String]) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let is_pair = |text: &String| {
        text.split_once(':').is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
    };
    list == ["*"] || list.iter().all(is_pair)
}

/// The broker's text in the unit of the topic config: `log.retention.hours` and friends are turned into milliseconds.
fn in_topic_unit(synonym: &str, value: &str) -> String {
    let factor = match synonym {
        "log.retention.hours" | "log.roll.hours" => 3_600_000,
        "log.retention.minutes" => 60_000,
        _ => return value.to_owned(),
    };
    match value.trim().parse::<i64>() {
        Ok(units) if units >= 0 => units.saturating_mul(factor).to_string(),
        _ => value.to_owned(),
    }
}
