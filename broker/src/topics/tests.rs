use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use weir_model::SystemClock;
use weir_model::config::{BrokerConfig, BrokerLayers};
use weir_storage::{BrokerConfigs, Storage, StorageOptions};

use super::errors::topic_error;
use super::*;

struct Bench {
    topics: Topics,
    storage: Storage,
    _directory: tempfile::TempDir,
}

fn bench(given: &[(&str, &str)]) -> Bench {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Arc::new(BrokerConfig::resolve(&map(given)).expect("valid"));
    let clock = Arc::new(SystemClock);
    let options = StorageOptions::new(directory.path().to_owned(), Arc::clone(&config), clock.clone());
    let storage = Storage::open(options).expect("opens");
    Bench { topics: Topics::new(storage.clone(), config, clock), storage, _directory: directory }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn named(name: &str) -> NewTopic {
    NewTopic { name: name.to_owned(), ..NewTopic::default() }
}

fn with(name: &str, overrides: &[(&str, &str)]) -> NewTopic {
    NewTopic { overrides: map(overrides), ..named(name) }
}

fn change(name: &str, operation: ConfigOperation, value: Option<&str>) -> ConfigChange {
    ConfigChange { name: name.to_owned(), operation, value: value.map(str::to_owned) }
}

async fn refusal(bench: &Bench, topic: NewTopic) -> (ResponseError, String) {
    let error = bench.topics.create_topic(topic).await.expect_err("refused");
    (topic_error(&error), error.to_string())
}

#[tokio::test]
async fn s64_counts_of_minus_one_are_the_brokers() {
    let bench = bench(&[("num.partitions", "4")]);
    let created = bench.topics.create_topic(named("a")).await.expect("made");
    assert_eq!((created.topic.partitions(), created.replication_factor), (4, 1));
    let created =
        bench.topics.create_topic(NewTopic { partitions: 2, replication_factor: 1, ..named("b") }).await.expect("made");
    assert_eq!(created.topic.partitions(), 2);
}

#[tokio::test]
async fn s64_what_is_refused_and_with_which_code() {
    let bench = bench(&[]);
    bench.topics.create_topic(named("a.b")).await.expect("made");
    let cases = [
        (named("a.b"), ResponseError::TopicAlreadyExists),
        (NewTopic { validate_only: true, ..named("a.b") }, ResponseError::TopicAlreadyExists),
        (named("a_b"), ResponseError::InvalidTopicException),
        (named("no spaces"), ResponseError::InvalidTopicException),
        (named(".."), ResponseError::InvalidTopicException),
        (NewTopic { partitions: 0, ..named("c") }, ResponseError::InvalidPartitions),
        (NewTopic { partitions: -2, ..named("c") }, ResponseError::InvalidPartitions),
        (NewTopic { replication_factor: 0, ..named("c") }, ResponseError::InvalidReplicationFactor),
        (NewTopic { replication_factor: -2, ..named("c") }, ResponseError::InvalidReplicationFactor),
        (NewTopic { partitions: 1, assignments: vec![(0, vec![0])], ..named("c") }, ResponseError::InvalidRequest),
        (NewTopic { assignments: vec![(1, vec![0])], ..named("c") }, ResponseError::InvalidReplicaAssignment),
        (NewTopic { assignments: vec![(0, vec![])], ..named("c") }, ResponseError::InvalidReplicaAssignment),
        (with("c", &[("retention.ms", "soon")]), ResponseError::InvalidConfig),
        (with("c", &[("retension.ms", "1")]), ResponseError::InvalidConfig),
        (with("c", &[("weir.schema", "id WHATEVER")]), ResponseError::InvalidConfig),
    ];
    for (topic, code) in cases {
        let asked = format!("{topic:?}");
        assert_eq!(refusal(&bench, topic).await.0, code, "{asked}");
    }
    assert!(bench.topics.by_name("c").is_err(), "nothing was made");
}

#[tokio::test]
async fn s64_more_replicas_than_brokers_are_clamped_or_refused_as_configured() {
    let clamping = bench(&[]);
    let created = clamping.topics.create_topic(NewTopic { replication_factor: 3, ..named("a") }).await.expect("made");
    assert_eq!(created.replication_factor, 1);
    let assigned = NewTopic { assignments: vec![(1, vec![0, 1]), (0, vec![2])], ..named("b") };
    assert_eq!(clamping.topics.create_topic(assigned).await.expect("made").topic.partitions(), 2);

    let strict = bench(&[("weir.replication.clamp", "false")]);
    let (code, text) = refusal(&strict, NewTopic { replication_factor: 3, ..named("a") }).await;
    assert_eq!(code, ResponseError::InvalidReplicationFactor);
    assert!(text.contains("one copy"), "{text}");
}

#[tokio::test]
async fn s64_validate_only_checks_and_makes_nothing() {
    let bench = bench(&[]);
    let topic = NewTopic { validate_only: true, ..with("a", &[("retention.ms", "5")]) };
    let created = bench.topics.create_topic(topic).await.expect("valid");
    assert_eq!(created.topic.config.retention_ms, 5);
    assert!(bench.topics.by_name("a").is_err());
}

#[tokio::test]
async fn auto_creation_is_fine_with_a_topic_that_is_there() {
    let bench = bench(&[]);
    let name = TopicName::new("a").expect("legal");
    bench.topics.auto_create(&name).await.expect("made");
    bench.topics.auto_create(&name).await.expect("there");
}

#[tokio::test]
async fn s69_changes_take_effect_at_once_and_defaults_come_back() {
    let bench = bench(&[]);
    let id = bench.topics.create_topic(named("a")).await.expect("made").topic.id();
    let set = [
        change("retention.ms", ConfigOperation::Set, Some("5")),
        change("segment.ms", ConfigOperation::Set, Some("9")),
    ];
    bench.topics.change_configs("a", &set, true).await.expect("valid");
    assert_eq!(bench.topics.config(id).expect("there").retention_ms, 604_800_000);
    bench.topics.change_configs("a", &set, false).await.expect("changed");
    assert_eq!(bench.topics.config(id).expect("there").retention_ms, 5);
    bench
        .topics
        .change_configs("a", &[change("retention.ms", ConfigOperation::Delete, None)], false)
        .await
        .expect("changed");
    let config = bench.topics.config(id).expect("there");
    assert_eq!((config.retention_ms, config.segment_ms), (604_800_000, 9));
    bench.topics.replace_configs("a", map(&[("retention.ms", "7")]), false).await.expect("changed");
    let config = bench.topics.config(id).expect("there");
    assert_eq!((config.retention_ms, config.segment_ms), (7, 604_800_000));
}

#[tokio::test]
async fn s69_lists_are_appended_to_and_subtracted_from() {
    let bench = bench(&[]);
    let id = bench.topics.create_topic(named("a")).await.expect("made").topic.id();
    let policy = |topics: &Topics| topics.config(id).expect("there").cleanup_policy;
    bench
        .topics
        .change_configs("a", &[change("cleanup.policy", ConfigOperation::Append, Some("compact,delete"))], false)
        .await
        .expect("changed");
    assert!(policy(&bench.topics).compact && policy(&bench.topics).delete);
    bench
        .topics
        .change_configs("a", &[change("cleanup.policy", ConfigOperation::Subtract, Some("delete"))], false)
        .await
        .expect("changed");
    assert!(policy(&bench.topics).compact && !policy(&bench.topics).delete);
}

#[tokio::test]
async fn s69_changes_that_are_refused() {
    let bench = bench(&[]);
    bench.topics.create_topic(with("a", &[("weir.schema", "id BIGINT")])).await.expect("made");
    let cases: Vec<(Vec<ConfigChange>, ResponseError)> = vec![
        (vec![change("retention.ms", ConfigOperation::Append, Some("5"))], ResponseError::InvalidConfig),
        (vec![change("retention.ms", ConfigOperation::Set, None)], ResponseError::InvalidConfig),
        (vec![change("nonsense", ConfigOperation::Delete, None)], ResponseError::InvalidConfig),
        (vec![change("weir.schema", ConfigOperation::Set, Some("id INT"))], ResponseError::InvalidConfig),
        (vec![change("weir.schema", ConfigOperation::Delete, None)], ResponseError::InvalidConfig),
        (
            vec![
                change("retention.ms", ConfigOperation::Set, Some("5")),
                change("retention.ms", ConfigOperation::Delete, None),
            ],
            ResponseError::InvalidRequest,
        ),
    ];
    for (changes, code) in cases {
        let error = bench.topics.change_configs("a", &changes, false).await.expect_err("refused");
        assert_eq!(topic_error(&error), code, "{changes:?}: {error}");
    }
    let same = [change("weir.schema", ConfigOperation::Set, Some("id BIGINT"))];
    bench.topics.change_configs("a", &same, false).await.expect("the same schema is no change");
    let error = bench.topics.change_configs("ghost", &[], false).await.expect_err("refused");
    assert_eq!(topic_error(&error), ResponseError::UnknownTopicOrPartition);
}

#[tokio::test]
async fn s70_partitions_only_grow() {
    let bench = bench(&[]);
    bench.topics.create_topic(NewTopic { partitions: 2, ..named("a") }).await.expect("made");
    for count in [2, 1, 0, -1] {
        let error = bench.topics.create_partitions("a", count, None, false).await.expect_err("refused");
        assert_eq!(topic_error(&error), ResponseError::InvalidPartitions);
    }
    let error = bench.topics.create_partitions("a", 4, Some(&[vec![0]]), false).await.expect_err("refused");
    assert_eq!(topic_error(&error), ResponseError::InvalidReplicaAssignment);
    bench.topics.create_partitions("a", 4, Some(&[vec![0], vec![0]]), true).await.expect("valid");
    assert_eq!(bench.topics.by_name("a").expect("there").partitions(), 2);
    bench.topics.create_partitions("a", 4, None, false).await.expect("made");
    assert_eq!(bench.topics.by_name("a").expect("there").partitions(), 4);
}

#[tokio::test]
async fn s70_a_topic_made_again_has_another_id() {
    let bench = bench(&[]);
    let first = bench.topics.create_topic(named("a")).await.expect("made").topic;
    bench.topics.delete(&first).await.expect("deleted");
    assert!(bench.topics.by_name("a").is_err());
    let second = bench.topics.create_topic(named("a")).await.expect("made").topic;
    assert_ne!(first.id(), second.id());
    let error = bench.topics.delete(&first).await.expect_err("gone");
    assert_eq!(topic_error(&error), ResponseError::UnknownTopicId);
}

#[tokio::test]
async fn s70_deletion_can_be_disabled_and_the_brokers_own_topics_stay() {
    let disabled = bench(&[("delete.topic.enable", "false")]);
    let topic = disabled.topics.create_topic(named("a")).await.expect("made").topic;
    let error = disabled.topics.delete(&topic).await.expect_err("refused");
    assert_eq!(topic_error(&error), ResponseError::TopicDeletionDisabled);

    let bench = bench(&[]);
    let own = bench.topics.create_topic(NewTopic { internal: true, ..named("__own") }).await.expect("made").topic;
    let error = bench.topics.delete(&own).await.expect_err("refused");
    assert_eq!(topic_error(&error), ResponseError::InvalidRequest);
    assert!(bench.topics.create_partitions("__own", 9, None, false).await.is_err());
}

#[tokio::test]
async fn s67_entries_say_where_a_value_comes_from() {
    let bench = bench(&[("log.retention.hours", "2"), ("message.max.bytes", "5000")]);
    let topic = bench.topics.create_topic(with("a", &[("cleanup.policy", "compact")])).await.expect("made").topic;
    let entries = topic_entries(&topic, &bench.storage.broker_configs());
    let entry = |name: &str| entries.iter().find(|entry| entry.def.name == name).expect("listed");

    let policy = entry("cleanup.policy");
    assert_eq!((policy.value.as_deref(), policy.source), (Some("compact"), ConfigSource::Topic));
    assert_eq!(
        policy.synonyms[0],
        ConfigSynonym { name: "cleanup.policy", value: Some("compact".to_owned()), source: ConfigSource::Topic }
    );
    assert_eq!(policy.synonyms[1].name, "log.cleanup.policy");

    let retention = entry("retention.ms");
    assert_eq!((retention.value.as_deref(), retention.source), (Some("7200000"), ConfigSource::StaticBroker));
    assert_eq!(entry("max.message.bytes").value.as_deref(), Some("5000"));
    let segment = entry("segment.bytes");
    assert_eq!((segment.value.as_deref(), segment.source), (Some("1073741824"), ConfigSource::Default));
    assert!(entry("weir.schema").read_only && !entry("retention.ms").read_only);
}

#[test]
fn s68_the_broker_configs_that_tools_read_are_listed() {
    let layers = BrokerLayers::at_start(map(&[("node.id", "3")]));
    let config = Arc::new(layers.resolve().expect("valid"));
    let entries = broker_entries(&BrokerConfigs { layers, config });
    for name in [
        "default.replication.factor",
        "num.partitions",
        "auto.create.topics.enable",
        "delete.topic.enable",
        "message.max.bytes",
        "min.insync.replicas",
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.bytes",
        "log.cleanup.policy",
        "offsets.topic.replication.factor",
        "advertised.listeners",
        "log.dirs",
        "offsets.retention.minutes",
        "group.initial.rebalance.delay.ms",
    ] {
        assert!(entries.iter().any(|entry| entry.def.name == name), "{name}");
    }
    let node = entries.iter().find(|entry| entry.def.name == "node.id").expect("listed");
    assert_eq!((node.value.as_deref(), node.source, node.read_only), (Some("3"), ConfigSource::StaticBroker, true));
}
