//! Broker configs: Kafka's names where Kafka has them, and Weir's.

use std::collections::BTreeMap;

use super::macros::configs;
use super::suggest::nearest;
use super::{
    CleanupPolicy, CompressionType, ConfigDef, ConfigError, ConsumerAssignors, GroupConfig, GroupProtocols,
    MigrationPolicy, TimestampKind, WalSync,
};

configs! {
    /// The configs of this broker, resolved.
    pub struct BrokerConfig, table
    /// Every broker config that is accepted, in the order DescribeConfigs lists them.
    BROKER_CONFIGS {
        /// How long a write that adds its partition to a transaction waits for the end of the one before.
        add_partitions_to_txn_retry_backoff_max_ms: i32 = ConfigDef::new("add.partitions.to.txn.retry.backoff.max.ms", "100").at_least(0).read_only();
        /// The address that clients are told to connect to, as PLAINTEXT://HOST:PORT. Empty: the address listened on.
        advertised_listeners: String = ConfigDef::new("advertised.listeners", "").read_only();
        /// Create a topic when a client asks for its metadata and allows it.
        auto_create_topics_enable: bool = ConfigDef::new("auto.create.topics.enable", "true").read_only();
        /// Threads for background work. Weir's are as many as the work has kinds, and log.cleaner.threads.
        background_threads: i32 = ConfigDef::new("background.threads", "10").at_least(1).hint();
        /// Where this broker stands, for clients that prefer near replicas.
        broker_rack: String = ConfigDef::new("broker.rack", "").read_only().unset();
        /// How the broker stores batches: producer keeps them as they came, another value brings those of other codecs to this one.
        compression_type: CompressionType = ConfigDef::new("compression.type", "producer");
        /// See the topic config compression.gzip.level.
        compression_gzip_level: i32 = ConfigDef::new("compression.gzip.level", "-1").between(-1, 9);
        /// See the topic config compression.lz4.level.
        compression_lz4_level: i32 = ConfigDef::new("compression.lz4.level", "9").between(1, 17).hint();
        /// See the topic config compression.zstd.level.
        compression_zstd_level: i32 = ConfigDef::new("compression.zstd.level", "3").between(-131_072, 22);
        /// Close a connection that sends nothing for this long.
        connections_max_idle_ms: i64 = ConfigDef::new("connections.max.idle.ms", "600000").at_least(-1).read_only();
        /// Replicas of a topic created without a count. One broker keeps one copy, see weir.replication.clamp.
        default_replication_factor: i32 = ConfigDef::new("default.replication.factor", "1").at_least(1).read_only();
        /// Whether topics may be deleted.
        delete_topic_enable: bool = ConfigDef::new("delete.topic.enable", "true").read_only();
        /// Most bytes one fetch answers, but for a first batch that is larger.
        fetch_max_bytes: i32 = ConfigDef::new("fetch.max.bytes", "57671680").at_least(1024).read_only();
        /// The server-side assignors on offer to members of consumer-protocol groups, the default first.
        group_consumer_assignors: ConsumerAssignors = ConfigDef::new("group.consumer.assignors", "uniform,range").read_only();
        /// How often members of consumer-protocol groups send heartbeats; a group may override it.
        group_consumer_heartbeat_interval_ms: i32 = ConfigDef::new("group.consumer.heartbeat.interval.ms", "5000").at_least(1).read_only();
        /// Longest heartbeat interval that a group may set.
        group_consumer_max_heartbeat_interval_ms: i32 = ConfigDef::new("group.consumer.max.heartbeat.interval.ms", "15000").at_least(1).read_only();
        /// Longest session timeout that a group may set.
        group_consumer_max_session_timeout_ms: i32 = ConfigDef::new("group.consumer.max.session.timeout.ms", "60000").at_least(1).read_only();
        /// Most members a consumer-protocol group may have.
        group_consumer_max_size: i32 = ConfigDef::new("group.consumer.max.size", "2147483647").at_least(1).read_only();
        /// Whether groups with members become groups of the other protocol, when a member of it joins or the last one leaves.
        group_consumer_migration_policy: MigrationPolicy = ConfigDef::new("group.consumer.migration.policy", "bidirectional").read_only();
        /// Shortest heartbeat interval that a group may set.
        group_consumer_min_heartbeat_interval_ms: i32 = ConfigDef::new("group.consumer.min.heartbeat.interval.ms", "5000").at_least(1).read_only();
        /// Shortest session timeout that a group may set.
        group_consumer_min_session_timeout_ms: i32 = ConfigDef::new("group.consumer.min.session.timeout.ms", "45000").at_least(1).read_only();
        /// How long a member of a consumer-protocol group may be silent; a group may override it.
        group_consumer_session_timeout_ms: i32 = ConfigDef::new("group.consumer.session.timeout.ms", "45000").at_least(1).read_only();
        /// Which group protocols are served; classic always is.
        group_coordinator_rebalance_protocols: GroupProtocols = ConfigDef::new("group.coordinator.rebalance.protocols", "classic,consumer").read_only();
        /// How long the first join of an empty group waits for further members.
        group_initial_rebalance_delay_ms: i32 = ConfigDef::new("group.initial.rebalance.delay.ms", "3000").at_least(0).read_only();
        /// Longest session timeout a group member may ask for.
        group_max_session_timeout_ms: i32 = ConfigDef::new("group.max.session.timeout.ms", "1800000").at_least(1).read_only();
        /// Most members a group may have.
        group_max_size: i32 = ConfigDef::new("group.max.size", "2147483647").at_least(1).read_only();
        /// Shortest session timeout a group member may ask for.
        group_min_session_timeout_ms: i32 = ConfigDef::new("group.min.session.timeout.ms", "6000").at_least(1).read_only();
        /// The address listened on, as PLAINTEXT://HOST:PORT; `--kafka` sets it. Port 0 picks a free one.
        listeners: String = ConfigDef::new("listeners", "PLAINTEXT://127.0.0.1:9092").read_only();
        /// See the topic config cleanup.policy.
        log_cleanup_policy: CleanupPolicy = ConfigDef::new("log.cleanup.policy", "delete");
        /// See the topic config delete.retention.ms.
        log_cleaner_delete_retention_ms: i64 = ConfigDef::new("log.cleaner.delete.retention.ms", "86400000").at_least(0);
        /// Longest time between two looks for what has to be compacted. Topics whose segment.ms, max.compaction.lag.ms or
        /// delete.retention.ms is shorter are looked at as often as that.
        log_cleaner_backoff_ms: i64 = ConfigDef::new("log.cleaner.backoff.ms", "15000").at_least(0);
        /// Memory for the newest offset of each key, of all log.cleaner.threads together, at 24 bytes a key. What does not fit
        /// is compacted by the next pass.
        log_cleaner_dedupe_buffer_size: i64 = ConfigDef::new("log.cleaner.dedupe.buffer.size", "134217728").at_least(1_048_576);
        /// Whether topics with cleanup.policy=compact are compacted. Without it they keep everything.
        log_cleaner_enable: bool = ConfigDef::new("log.cleaner.enable", "true").read_only();
        /// How full log.cleaner.dedupe.buffer.size may get.
        log_cleaner_io_buffer_load_factor: f64 = ConfigDef::new("log.cleaner.io.buffer.load.factor", "0.9").between(0, 1);
        /// Size of the buffers that compaction reads with. They are as large as they need to be.
        log_cleaner_io_buffer_size: i32 = ConfigDef::new("log.cleaner.io.buffer.size", "524288").at_least(0).hint();
        /// Bytes per second that compaction may read and write, all log.cleaner.threads together.
        log_cleaner_io_max_bytes_per_second: f64 = ConfigDef::new("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308");
        /// See the topic config max.compaction.lag.ms.
        log_cleaner_max_compaction_lag_ms: i64 = ConfigDef::new("log.cleaner.max.compaction.lag.ms", "9223372036854775807").at_least(1);
        /// See the topic config min.cleanable.dirty.ratio.
        log_cleaner_min_cleanable_ratio: f64 = ConfigDef::new("log.cleaner.min.cleanable.ratio", "0.5").between(0, 1);
        /// See the topic config min.compaction.lag.ms.
        log_cleaner_min_compaction_lag_ms: i64 = ConfigDef::new("log.cleaner.min.compaction.lag.ms", "0").at_least(0);
        /// How many partitions are compacted at a time.
        log_cleaner_threads: i32 = ConfigDef::new("log.cleaner.threads", "1").between(1, 64);
        /// The data directory; `--data` sets it. One directory.
        log_dirs: String = ConfigDef::new("log.dirs", "./weir-data").read_only();
        /// See the topic config flush.messages.
        log_flush_interval_messages: i64 = ConfigDef::new("log.flush.interval.messages", "9223372036854775807").at_least(1).hint();
        /// See the topic config flush.ms.
        log_flush_interval_ms: i64 = ConfigDef::new("log.flush.interval.ms", "9223372036854775807").at_least(0).unset().hint();
        /// See the topic config index.interval.bytes.
        log_index_interval_bytes: i32 = ConfigDef::new("log.index.interval.bytes", "4096").at_least(0).hint();
        /// See the topic config segment.index.bytes.
        log_index_size_max_bytes: i32 = ConfigDef::new("log.index.size.max.bytes", "10485760").at_least(4).hint();
        /// See the topic config local.retention.bytes.
        log_local_retention_bytes: i64 = ConfigDef::new("log.local.retention.bytes", "-2").at_least(-2);
        /// See the topic config local.retention.ms.
        log_local_retention_ms: i64 = ConfigDef::new("log.local.retention.ms", "-2").at_least(-2);
        /// See the topic config message.timestamp.after.max.ms.
        log_message_timestamp_after_max_ms: i64 = ConfigDef::new("log.message.timestamp.after.max.ms", "3600000").at_least(0);
        /// See the topic config message.timestamp.before.max.ms.
        log_message_timestamp_before_max_ms: i64 = ConfigDef::new("log.message.timestamp.before.max.ms", "9223372036854775807").at_least(0);
        /// See the topic config message.timestamp.type.
        log_message_timestamp_type: TimestampKind = ConfigDef::new("log.message.timestamp.type", "CreateTime");
        /// See the topic config preallocate.
        log_preallocate: bool = ConfigDef::new("log.preallocate", "false").hint();
        /// Bytes per partition beyond which the oldest data is deleted; -1 keeps all.
        log_retention_bytes: i64 = ConfigDef::new("log.retention.bytes", "-1").at_least(-1);
        /// How often retention is applied.
        log_retention_check_interval_ms: i64 = ConfigDef::new("log.retention.check.interval.ms", "300000").at_least(1).read_only();
        /// Hours that data is kept; used where log.retention.ms and .minutes are not set. -1 keeps it for ever.
        log_retention_hours: i32 = ConfigDef::new("log.retention.hours", "168").at_least(-1).read_only();
        /// Minutes that data is kept; used where log.retention.ms is not set. -1 keeps it for ever; -2, the default, leaves it to log.retention.hours.
        log_retention_minutes: i32 = ConfigDef::new("log.retention.minutes", "-2").at_least(-2).read_only().unset();
        /// Milliseconds that data is kept. -1 keeps it for ever; -2, the default, leaves it to log.retention.minutes.
        log_retention_ms: i64 = ConfigDef::new("log.retention.ms", "-2").at_least(-2).synonyms(&["log.retention.minutes", "log.retention.hours"]).unset();
        /// Threads that answer requests. Weir has as many as the machine has processors.
        num_io_threads: i32 = ConfigDef::new("num.io.threads", "8").at_least(1).hint();
        /// Threads that read and write connections. Weir has as many as the machine has processors.
        num_network_threads: i32 = ConfigDef::new("num.network.threads", "3").at_least(1).hint();
        /// Threads that load data at the start. Weir's start is bound by the disk.
        num_recovery_threads_per_data_dir: i32 = ConfigDef::new("num.recovery.threads.per.data.dir", "2").at_least(1).hint();
        /// See the topic config segment.ms; used where log.roll.ms is not set.
        log_roll_hours: i32 = ConfigDef::new("log.roll.hours", "168").at_least(1).read_only();
        /// See the topic config segment.ms. -2, the default, leaves it to log.roll.hours.
        log_roll_ms: i64 = ConfigDef::new("log.roll.ms", "-2").at_least(-2).synonyms(&["log.roll.hours"]).unset();
        /// Size that small segments are merged toward.
        log_segment_bytes: i32 = ConfigDef::new("log.segment.bytes", "1073741824").at_least(1_048_576);
        /// See the topic config file.delete.delay.ms.
        log_segment_delete_delay_ms: i64 = ConfigDef::new("log.segment.delete.delay.ms", "60000").at_least(0).hint();
        /// Most connections of Kafka clients at once; a newer one is closed when it comes. Kafka lets it wait instead.
        max_connections: i32 = ConfigDef::new("max.connections", "2147483647").at_least(1);
        /// Most fetch sessions kept; a consumer that finds none free sends its fetches in full.
        max_incremental_fetch_session_cache_slots: i32 = ConfigDef::new("max.incremental.fetch.session.cache.slots", "1000").at_least(0).read_only();
        /// Largest record batch that is accepted, compressed and with its header.
        message_max_bytes: i32 = ConfigDef::new("message.max.bytes", "1048588").at_least(0);
        /// See the topic config min.insync.replicas.
        min_insync_replicas: i32 = ConfigDef::new("min.insync.replicas", "1").at_least(1).hint();
        /// The id of this broker.
        node_id: i32 = ConfigDef::new("node.id", "0").at_least(0).read_only();
        /// Partitions of a topic created without a count.
        num_partitions: i32 = ConfigDef::new("num.partitions", "1").between(1, 100_000).read_only();
        /// Longest metadata a committed offset may carry, in bytes.
        offset_metadata_max_bytes: i32 = ConfigDef::new("offset.metadata.max.bytes", "4096").at_least(0).read_only();
        /// How often expired offsets and groups are looked for.
        offsets_retention_check_interval_ms: i64 = ConfigDef::new("offsets.retention.check.interval.ms", "600000").at_least(1).read_only();
        /// How long the offsets of a group without members are kept.
        offsets_retention_minutes: i32 = ConfigDef::new("offsets.retention.minutes", "10080").at_least(1).read_only();
        /// Partitions of __consumer_offsets; fixed once the topic exists, which is from the first use of a group.
        offsets_topic_num_partitions: i32 = ConfigDef::new("offsets.topic.num.partitions", "50").between(1, 10_000).read_only();
        /// Replicas of __consumer_offsets. One broker keeps one copy.
        offsets_topic_replication_factor: i32 = ConfigDef::new("offsets.topic.replication.factor", "3").at_least(1).read_only().hint();
        /// How long an idle producer's sequence numbers are remembered.
        producer_id_expiration_ms: i64 = ConfigDef::new("producer.id.expiration.ms", "86400000").at_least(1);
        /// Bytes of requests that may be in memory at once; -1 leaves it to the broker.
        queued_max_request_bytes: i64 = ConfigDef::new("queued.max.request.bytes", "-1").at_least(-1).read_only();
        /// Largest request that is read; a larger one closes its connection.
        socket_request_max_bytes: i32 = ConfigDef::new("socket.request.max.bytes", "104857600").at_least(1024).read_only();
        /// How often transactions that are open too long are looked for.
        transaction_abort_timed_out_transaction_cleanup_interval_ms: i32 = ConfigDef::new("transaction.abort.timed.out.transaction.cleanup.interval.ms", "10000").at_least(1).read_only();
        /// Longest time a producer may let a transaction stay open.
        transaction_max_timeout_ms: i32 = ConfigDef::new("transaction.max.timeout.ms", "900000").at_least(1).read_only();
        /// Whether a write is checked against its transaction (KIP-890); it always is.
        transaction_partition_verification_enable: bool = ConfigDef::new("transaction.partition.verification.enable", "true").read_only().default_only();
        /// How often transactional ids that nobody uses are looked for.
        transaction_remove_expired_transaction_cleanup_interval_ms: i32 = ConfigDef::new("transaction.remove.expired.transaction.cleanup.interval.ms", "3600000").at_least(1).read_only();
        /// Most in-sync replicas __transaction_state waits for. One broker keeps one copy.
        transaction_state_log_min_isr: i32 = ConfigDef::new("transaction.state.log.min.isr", "2").at_least(1).read_only().hint();
        /// Partitions of __transaction_state; fixed once the topic exists, which is from the first use of a transaction.
        transaction_state_log_num_partitions: i32 = ConfigDef::new("transaction.state.log.num.partitions", "50").between(1, 10_000).read_only();
        /// Replicas of __transaction_state. One broker keeps one copy.
        transaction_state_log_replication_factor: i32 = ConfigDef::new("transaction.state.log.replication.factor", "3").at_least(1).read_only().hint();
        /// How long a transactional id is kept that nobody uses.
        transactional_id_expiration_ms: i32 = ConfigDef::new("transactional.id.expiration.ms", "604800000").at_least(1).read_only();
        /// See the topic config unclean.leader.election.enable.
        unclean_leader_election_enable: bool = ConfigDef::new("unclean.leader.election.enable", "false").hint();
        /// An external Iceberg REST catalog; empty: the one built in.
        weir_catalog_url: String = ConfigDef::new("weir.catalog.url", "").read_only().default_only();
        /// Where data files of the lake go: a folder, file://, s3://, gs:// or az://. Empty: `lake` in the data directory.
        weir_lake_url: String = ConfigDef::new("weir.lake.url", "").read_only();
        /// Answer a topic creation that asks for more replicas than there are brokers with what is possible, rather than refuse it.
        weir_replication_clamp: bool = ConfigDef::new("weir.replication.clamp", "true").read_only();
        /// Size a partition's tail reaches before it is sealed into a segment; a topic may override it.
        weir_seal_bytes: i64 = ConfigDef::new("weir.seal.bytes", "67108864").at_least(1_024).read_only();
        /// Where sealed segments go; empty: the data directory.
        weir_segment_url: String = ConfigDef::new("weir.segment.url", "").read_only().default_only();
        /// Memory for rows that are durable but not sealed, over all partitions; beyond it the largest tail is sealed.
        weir_tail_bytes: i64 = ConfigDef::new("weir.tail.bytes", "268435456").at_least(65_536).read_only();
        /// Most transactional ids that are kept; a further one is refused until idle ones expire, see transactional.id.expiration.ms.
        weir_transactional_ids_max: i32 = ConfigDef::new("weir.transactional.ids.max", "1000000").at_least(1).read_only();
        /// Size of one WAL file.
        weir_wal_segment_bytes: i64 = ConfigDef::new("weir.wal.segment.bytes", "67108864").between(65_536, 4_294_967_296).read_only();
        /// When written rows count as durable: group (after the sync of their group), interval, none.
        weir_wal_sync: WalSync = ConfigDef::new("weir.wal.sync", "group").read_only();
        /// Time between syncs when weir.wal.sync=interval.
        weir_wal_sync_interval_ms: i64 = ConfigDef::new("weir.wal.sync.interval.ms", "50").between(1, 60_000).read_only();
    }
}

impl BrokerConfig {
    /// Types and checks the configs of the broker.
    ///
    /// # Errors
    /// [`ConfigError`] names the first config that is unknown, not built, out of bounds, or at odds with another.
    pub fn resolve(given: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        for name in given.keys() {
            Self::def(name)?;
        }
        let config = Self::parse(given, |def| given.get(def.name).cloned().unwrap_or_else(|| def.default.to_owned()))?;
        if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms {
            return Err(ConfigError::Crossed {
                low: "group.min.session.timeout.ms",
                low_value: i64::from(config.group_min_session_timeout_ms),
                high: "group.max.session.timeout.ms",
                high_value: i64::from(config.group_max_session_timeout_ms),
            });
        }
        // The broker's own defaults obey the bounds that groups do.
        GroupConfig::resolve(&BTreeMap::new(), &config)?;
        Ok(config)
    }

    /// The row of a broker config.
    ///
    /// # Errors
    /// `Unknown`, with the nearest name.
    pub fn def(name: &str) -> Result<&'static ConfigDef, ConfigError> {
        ConfigDef::find(BROKER_CONFIGS, name)
            .ok_or_else(|| ConfigError::Unknown { name: name.to_owned(), nearest: nearest(BROKER_CONFIGS, &[], name) })
    }

    /// The environment variable of a config: `node.id` is `WEIR_NODE_ID`, `weir.wal.sync` is `WEIR_WAL_SYNC`.
    pub fn environment_name(def: &ConfigDef) -> String {
        let name = def.name.strip_prefix("weir.").unwrap_or(def.name);
        format!("WEIR_{}", name.to_ascii_uppercase().replace('.', "_"))
    }
}

impl Default for BrokerConfig {
    /// Nothing set.
    fn default() -> Self {
        Self::resolve(&BTreeMap::new()).expect("every default passes its own row, as a test proves")
    }
}
