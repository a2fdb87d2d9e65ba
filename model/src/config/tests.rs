use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn topic(pairs: &[(&str, &str)]) -> Result<TopicConfig, ConfigError> {
    TopicConfig::resolve(&set(pairs), &BrokerConfig::default())
}

fn refusal(pairs: &[(&str, &str)]) -> String {
    topic(pairs).expect_err("this config must be refused").to_string()
}

#[test]
fn names_are_unique_and_every_row_has_a_text() {
    for table in [TOPIC_CONFIGS, BROKER_CONFIGS] {
        let names: BTreeSet<_> = table.iter().map(|def| def.name).collect();
        assert_eq!(names.len(), table.len());
        for def in table {
            assert!(def.text().len() > 10, "{} has no text", def.name);
        }
    }
}

#[test]
fn every_default_passes_its_own_row() {
    for def in TOPIC_CONFIGS.iter().chain(BROKER_CONFIGS) {
        if !def.default.is_empty() {
            assert_eq!(def.check(def.default), Ok(()), "{}", def.name);
        }
    }
    let _ = BrokerConfig::default();
    assert!(topic(&[]).is_ok());
}

#[test]
fn every_synonym_is_a_broker_config_of_the_same_default_and_type() {
    for def in TOPIC_CONFIGS {
        for synonym in def.synonyms {
            let broker =
                ConfigDef::find(BROKER_CONFIGS, synonym).unwrap_or_else(|| panic!("no broker config {synonym}"));
            let other_unit = synonym.starts_with("log.retention.") || synonym.starts_with("log.roll.");
            assert!(other_unit && def.name.ends_with(".ms") || broker.default == def.default, "{synonym}");
            assert!(other_unit || broker.kind == def.kind, "{synonym}");
        }
    }
}

#[test]
fn environment_names_are_unique() {
    let names: BTreeSet<_> = BROKER_CONFIGS.iter().map(BrokerConfig::environment_name).collect();
    assert_eq!(names.len(), BROKER_CONFIGS.len());
    assert!(names.contains("WEIR_NODE_ID") && names.contains("WEIR_WAL_SYNC"));
}

#[test]
fn every_topic_config_of_kafka_is_accepted_at_its_default() {
    // S-66, with the defaults Kafka 4.1 answers to DescribeConfigs.
    let kafka = [
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
        ("compression.gzip.level", "-1"),
        ("compression.lz4.level", "9"),
        ("compression.zstd.level", "3"),
        ("delete.retention.ms", "86400000"),
        ("file.delete.delay.ms", "60000"),
        ("flush.messages", "9223372036854775807"),
        ("flush.ms", "9223372036854775807"),
        ("follower.replication.throttled.replicas", ""),
        ("index.interval.bytes", "4096"),
        ("leader.replication.throttled.replicas", ""),
        ("local.retention.bytes", "-2"),
        ("local.retention.ms", "-2"),
        ("max.compaction.lag.ms", "9223372036854775807"),
        ("max.message.bytes", "1048588"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("message.timestamp.before.max.ms", "9223372036854775807"),
        ("message.timestamp.type", "CreateTime"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("min.compaction.lag.ms", "0"),
        ("min.insync.replicas", "1"),
        ("preallocate", "false"),
        ("remote.log.copy.disable", "false"),
        ("remote.log.delete.on.disable", "false"),
        ("remote.storage.enable", "false"),
        ("retention.bytes", "-1"),
        ("retention.ms", "604800000"),
        ("segment.bytes", "1073741824"),
        ("segment.index.bytes", "10485760"),
        ("segment.jitter.ms", "0"),
        ("segment.ms", "604800000"),
        ("unclean.leader.election.enable", "false"),
    ];
    assert!(topic(&kafka).is_ok());
    let values: BTreeMap<_, _> = topic(&[]).expect("defaults").values().into_iter().map(|(d, v)| (d.name, v)).collect();
    for (name, value) in kafka {
        assert_eq!(values[name], value, "{name}");
    }
}

#[test]
fn configs_that_streams_connect_and_debezium_set_are_accepted() {
    for pairs in [
        &[("cleanup.policy", "compact")][..],
        &[("cleanup.policy", "compact,delete"), ("retention.ms", "86400000")],
        &[("segment.bytes", "52428800"), ("retention.ms", "-1"), ("message.timestamp.type", "CreateTime")],
        &[("segment.index.bytes", "52428800"), ("segment.ms", "600000"), ("cleanup.policy", "delete")],
        &[("retention.ms", "9223372036854775807"), ("retention.bytes", "-1"), ("cleanup.policy", "delete")],
        &[("min.insync.replicas", "2"), ("unclean.leader.election.enable", "false")],
    ] {
        topic(pairs).expect("stock tools create topics with these");
    }
}

#[test]
fn retention_leaves_a_topic_alone_that_is_only_compacted() {
    assert!(!topic(&[("cleanup.policy", "compact")]).expect("valid").deletes_by_retention());
    assert!(topic(&[("cleanup.policy", "delete, compact")]).expect("valid").deletes_by_retention());
    assert!(topic(&[]).expect("valid").deletes_by_retention());
    let neither = topic(&[("cleanup.policy", "")]).expect("KIP-1161 allows neither");
    assert_eq!(neither.cleanup_policy, CleanupPolicy { delete: false, compact: false });
    assert!(!neither.deletes_by_retention());
}

#[test]
fn a_misspelt_name_is_refused_with_the_nearest_one() {
    assert_eq!(refusal(&[("retension.ms", "1")]), "unknown config `retension.ms`: did you mean `retention.ms`?");
    assert_eq!(refusal(&[("weir.shema", "1")]), "unknown config `weir.shema`: did you mean `weir.schema`?");
    assert_eq!(refusal(&[("retention_ms", "1")]), "unknown config `retention_ms`: did you mean `retention.ms`?");
    assert_eq!(
        refusal(&[("log.retention.hours", "1")]),
        "unknown config `log.retention.hours`: did you mean `retention.ms`?"
    );
    assert!(refusal(&[("no.such.thing.at.all", "1")]).contains("docs/configuration.md"));
    let error = BrokerConfig::resolve(&set(&[("node.idd", "1")])).expect_err("refused").to_string();
    assert_eq!(error, "unknown config `node.idd`: did you mean `node.id`?");
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    assert_eq!(refusal(&[("weir.primary.key", "id")]), "config `weir.primary.key` is not built yet: leave it out");
    assert_eq!(
        refusal(&[("weir.value.format", "avro")]),
        "config `weir.value.format`: `avro` is not built yet; write one of raw, json"
    );
    assert!(refusal(&[("internal.segment.bytes", "1000")]).contains("not built yet"));
    assert!(refusal(&[("weir.schema.source", "registry-latest")]).contains("not built yet"));
    assert!(refusal(&[("weir.invalid.rows", "dead-letter")]).contains("not built yet"));
    assert!(refusal(&[("weir.lake.format.version", "3")]).contains("leave it at its default `2`"));
    assert!(refusal(&[("remote.storage.enable", "true")]).contains("leave it at its default `false`"));
    assert!(BrokerConfig::resolve(&set(&[("weir.segment.url", "s3://b")])).is_err());
}

#[test]
fn values_out_of_type_or_bounds_say_what_to_write() {
    assert_eq!(refusal(&[("retention.ms", "soon")]), "config `retention.ms` is `soon`: write a 64-bit integer");
    assert_eq!(refusal(&[("retention.ms", "-2")]), "config `retention.ms` is -2: write a value of -1 or more");
    assert_eq!(refusal(&[("segment.bytes", "100")]), "config `segment.bytes` is 100: write a value of 1048576 or more");
    assert_eq!(
        refusal(&[("min.cleanable.dirty.ratio", "1.5")]),
        "config `min.cleanable.dirty.ratio` is 1.5: write a value from 0 to 1"
    );
    assert_eq!(
        refusal(&[("min.cleanable.dirty.ratio", "NaN")]),
        "config `min.cleanable.dirty.ratio` is `NaN`: write a number"
    );
    assert_eq!(refusal(&[("preallocate", "yes")]), "config `preallocate` is `yes`: write true or false");
    assert_eq!(
        refusal(&[("cleanup.policy", "shred")]),
        "config `cleanup.policy` does not know `shred`: write one of delete, compact"
    );
    assert_eq!(refusal(&[("cleanup.policy", "delete,")]), refusal(&[("cleanup.policy", ",delete")]));
    assert!(refusal(&[("compression.gzip.level", "0")]).contains("from 1 to 9, or -1"));
}

#[test]
fn a_schema_alone_makes_the_values_json() {
    let config = topic(&[("weir.schema", " id BIGINT NOT NULL ")]).expect("valid");
    assert_eq!((config.weir_value_format, config.weir_schema.as_str()), (ValueFormat::Json, "id BIGINT NOT NULL"));
    assert_eq!(
        topic(&[("weir.schema", "id BIGINT"), ("weir.value.format", "raw")]),
        Err(ConfigError::SchemaNeedsFormat)
    );
    assert_eq!(topic(&[("weir.value.format", "json")]), Err(ConfigError::FormatNeedsSchema));
}

#[test]
fn local_retention_follows_or_stays_within_the_whole() {
    let config = topic(&[("retention.ms", "1000")]).expect("valid");
    assert_eq!((config.effective_local_retention_ms(), config.effective_local_retention_bytes()), (1000, -1));
    assert!(topic(&[("retention.ms", "1000"), ("local.retention.ms", "1000")]).is_ok());
    assert!(topic(&[("retention.ms", "-1"), ("local.retention.ms", "5")]).is_ok());
    assert!(refusal(&[("retention.ms", "1000"), ("local.retention.ms", "1001")]).contains("cannot outlive"));
    assert!(refusal(&[("retention.ms", "1000"), ("local.retention.ms", "-1")]).contains("cannot outlive"));
}

#[test]
fn the_broker_sets_defaults_and_the_topic_wins() {
    let broker =
        BrokerConfig::resolve(&set(&[("log.retention.hours", "2"), ("weir.seal.bytes", "4096")])).expect("valid");
    let config = TopicConfig::resolve(&set(&[]), &broker).expect("valid");
    assert_eq!((config.retention_ms, config.weir_seal_bytes), (7_200_000, 4096));
    let config = TopicConfig::resolve(&set(&[("retention.ms", "5")]), &broker).expect("valid");
    assert_eq!(config.retention_ms, 5);

    let def = TopicConfig::def("retention.ms").expect("known");
    let (value, source) = TopicConfig::value_and_source(def, &BTreeMap::new(), &broker);
    assert_eq!((value.as_str(), source), ("7200000", TopicConfigSource::Broker("log.retention.hours")));

    let broker =
        BrokerConfig::resolve(&set(&[("log.retention.ms", "-2"), ("log.retention.minutes", "-1")])).expect("valid");
    assert_eq!(TopicConfig::resolve(&set(&[]), &broker).expect("valid").retention_ms, -1);
}

#[test]
fn throttled_replicas_are_all_or_pairs() {
    for name in ["follower.replication.throttled.replicas", "leader.replication.throttled.replicas"] {
        for value in ["", "*", "0:0", "0:1,2:3"] {
            assert!(topic(&[(name, value)]).is_ok(), "{value}");
        }
        for value in ["x", "*,0:0", "0", "0:0:0"] {
            assert!(refusal(&[(name, value)]).contains("partition:broker"), "{value}");
        }
    }
}

#[test]
fn compaction_lags_must_not_cross() {
    let crossed = [("min.compaction.lag.ms", "100"), ("max.compaction.lag.ms", "50"), ("cleanup.policy", "compact")];
    assert!(matches!(topic(&crossed), Err(ConfigError::Crossed { .. })));
    assert!(topic(&crossed[..2]).is_ok(), "they mean nothing to a topic that is not compacted");
}

#[test]
fn session_timeout_bounds_must_not_cross() {
    let given = set(&[("group.min.session.timeout.ms", "100"), ("group.max.session.timeout.ms", "50")]);
    assert!(matches!(BrokerConfig::resolve(&given), Err(ConfigError::Crossed { .. })));
}
