use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use weir_model::producer::TxnOutcome;
use weir_model::{Offset, SystemClock};
use weir_storage::StorageOptions;

use super::group::MemberProtocol;
use super::group::log::{GroupBatch, GroupEntry};
use super::log::{Durability, LogRead};
use super::*;

/// A log in memory that can refuse.
#[derive(Default)]
struct MemoryLog {
    entries: Mutex<std::collections::BTreeMap<i32, Vec<GroupEntry>>>,
    refuses: AtomicBool,
}

#[async_trait]
impl GroupLog for MemoryLog {
    async fn append(&self, partition: i32, batch: GroupBatch) -> Result<Durability, LogError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(LogError::Refused);
        }
        let mut all = self.entries.lock();
        let entries = all.entry(partition).or_default();
        match batch {
            GroupBatch::Records(records) => entries.extend(records.into_iter().map(GroupEntry::Record)),
            GroupBatch::Transactional { producer, records, .. } => entries.extend(
                records.into_iter().map(|record| GroupEntry::Transactional { producer_id: producer.id, record }),
            ),
            GroupBatch::Marker(marker) => entries.push(GroupEntry::Marker(marker)),
        }
        Ok(Box::pin(std::future::ready(Ok(()))))
    }

    async fn read(&self, partition: i32, from: Option<Offset>) -> Result<Option<LogRead<GroupEntry>>, LogError> {
        let entries = self.entries.lock().get(&partition).cloned().unwrap_or_default();
        if from.is_some() || entries.is_empty() {
            return Ok(None);
        }
        let next = Offset::new(i64::try_from(entries.len()).expect("few")).expect("positive");
        Ok(Some(LogRead { entries, next }))
    }

    async fn guard(&self, _partition: i32, producer_id: ProducerId) -> Result<TxnGuard, LogError> {
        Ok(weir_storage::producers::ProducerTable::default().guard(producer_id))
    }

    fn has_open_transaction(&self, _partition: i32, _producer_id: ProducerId) -> bool {
        true
    }
}

fn coordinator(log: &Arc<MemoryLog>) -> GroupCoordinator {
    let given = [("group.initial.rebalance.delay.ms", "0"), ("group.min.session.timeout.ms", "50")];
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let config = Arc::new(BrokerConfig::resolve(&given).expect("valid"));
    let configs = Arc::new(GroupConfigs::in_memory(Arc::clone(&config)));
    let topics = Arc::new(group::consumer::test_topics::TestTopicSource::default());
    GroupCoordinator::with_log(log.clone(), topics, configs, 3, config, Arc::new(SystemClock), CancellationToken::new())
}

fn join(session_timeout_ms: i64) -> Join {
    Join {
        member_id: Arc::from(""),
        generated_id: Arc::from(format!("m-{}", uuid::Uuid::new_v4())),
        instance_id: None,
        client_id: Arc::from("c"),
        client_host: Arc::from("/127.0.0.1"),
        session_timeout_ms,
        rebalance_timeout_ms: 10_000,
        protocol_type: Arc::from("consumer"),
        protocols: vec![MemberProtocol { name: Arc::from("range"), metadata: Bytes::new() }],
        require_known_member_id: false,
        can_skip_assignment: false,
    }
}

fn commit(offset: i64) -> Commit {
    Commit {
        member_id: Arc::from(""),
        instance_id: None,
        generation: -1,
        knows_member_epochs: false,
        retention_ms: None,
        offsets: vec![OffsetToCommit {
            topic: Arc::from("t"),
            partition: 0,
            offset,
            leader_epoch: None,
            metadata: Arc::from(""),
        }],
    }
}

fn sync(member_id: &Arc<str>, generation: i32) -> Sync {
    Sync {
        member_id: member_id.clone(),
        instance_id: None,
        generation,
        protocol_type: None,
        protocol_name: None,
        assignments: Vec::new(),
    }
}

fn group(name: &str) -> Arc<str> {
    Arc::from(name)
}

#[test]
fn groups_go_to_the_partition_that_kafka_would_choose() {
    // As Java computes them: "group".hashCode() is 98629247, "kafka-connect".hashCode() is -1306768061.
    assert_eq!(shard_of("group", 50), 98_629_247 % 50);
    assert_eq!(shard_of("kafka-connect", 50), 1_306_768_061 % 50);
    assert_eq!(shard_of("", 50), 0);
    // Of UTF-16 units, not bytes: "é" is 233.
    assert_eq!(shard_of("é", 50), 233 % 50);
    // The one string hash without an absolute value.
    assert_eq!(shard_of("polygenelubricants", 50), 0);
}

#[tokio::test]
async fn commits_survive_a_restart_of_the_coordinator() {
    let log = Arc::new(MemoryLog::default());
    let first = coordinator(&log);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(first.commit(group(name), commit(7)).await.wait().await, Ok(Ok(())));
    }
    first.stop().await;
    let second = coordinator(&log);
    for name in ["a", "b", "c", "d"] {
        let topics = second.fetch(group(name), None, None).await.wait().await.expect("served").expect("fetched");
        assert_eq!(topics[0].partitions[0].1.as_ref().map(|committed| committed.offset), Some(7));
    }
    let mut names: Vec<_> =
        second.list().await.expect("served").into_iter().map(|listing| listing.group.to_string()).collect();
    names.sort();
    assert_eq!(names, ["a", "b", "c", "d"]);
    second.stop().await;
}

#[tokio::test]
async fn a_member_joins_syncs_and_is_removed_when_it_falls_silent() {
    let log = Arc::new(MemoryLog::default());
    let coordinator = coordinator(&log);
    let joined = coordinator.join(group("g"), join(60)).await.wait().await.expect("served");
    assert_eq!((joined.error, joined.generation), (None, 1));
    let synced = coordinator.sync(group("g"), sync(&joined.member_id, 1)).await.wait().await.expect("served");
    assert_eq!(synced.error, None);
    let gone = async {
        loop {
            let description = coordinator.describe(group("g")).await.wait().await.expect("served").expect("there");
            if description.members.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the session ends by itself");
    coordinator.stop().await;
}

#[tokio::test]
async fn s12_a_join_that_nobody_waits_for_is_carried_out_and_does_not_wedge_the_group() {
    let log = Arc::new(MemoryLog::default());
    let coordinator = coordinator(&log);
    drop(coordinator.join(group("g"), join(60)).await);
    let alone = async {
        loop {
            let joined = coordinator.join(group("g"), join(60)).await.wait().await.expect("served");
            if joined.error.is_none() && joined.members.len() == 1 {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), alone).await.expect("the one that is gone is removed");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_log_that_refuses_is_answered_and_served_again_when_it_recovers() {
    let log = Arc::new(MemoryLog::default());
    let coordinator = coordinator(&log);
    log.refuses.store(true, Ordering::SeqCst);
    assert_eq!(
        coordinator.commit(group("g"), commit(1)).await.wait().await,
        Ok(Err(GroupError::CoordinatorNotAvailable))
    );
    log.refuses.store(false, Ordering::SeqCst);
    assert_eq!(coordinator.commit(group("g"), commit(2)).await.wait().await, Ok(Ok(())));
    coordinator.stop().await;
}

#[tokio::test]
async fn what_is_parked_when_the_coordinator_stops_is_sent_elsewhere() {
    let log = Arc::new(MemoryLog::default());
    let coordinator = coordinator(&log);
    let first = coordinator.join(group("g"), join(10_000)).await.wait().await.expect("served");
    assert_eq!(first.error, None);
    let parked = coordinator.join(group("g"), join(10_000)).await;
    coordinator.stop().await;
    assert_eq!(parked.wait().await, Err(GroupError::NotCoordinator));
    assert_eq!(coordinator.commit(group("g"), commit(1)).await.wait().await, Err(GroupError::NotCoordinator));
}

#[tokio::test]
async fn an_empty_group_id_is_refused_where_members_are_concerned() {
    let coordinator = coordinator(&Arc::new(MemoryLog::default()));
    let joined = coordinator.join(group(""), join(10_000)).await.wait().await.expect("served");
    assert_eq!(joined.error, Some(GroupError::InvalidGroupId));
    // Old simple consumers commit under the empty id.
    assert_eq!(coordinator.commit(group(""), commit(1)).await.wait().await, Ok(Ok(())));
}

#[tokio::test]
async fn many_commits_at_once_are_all_answered() {
    let log = Arc::new(MemoryLog::default());
    let coordinator = coordinator(&log);
    let mut answers = Vec::new();
    for offset in 0..3_000 {
        answers.push(coordinator.commit(group(&format!("g{}", offset % 7)), commit(offset)).await);
    }
    for answer in answers {
        assert_eq!(answer.wait().await, Ok(Ok(())));
    }
    coordinator.stop().await;
}

/// The coordinator on real storage in `directory`.
async fn on_disk(directory: &std::path::Path) -> (Storage, GroupCoordinator) {
    let given = [("offsets.topic.num.partitions", "3"), ("group.initial.rebalance.delay.ms", "0")];
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let config = Arc::new(BrokerConfig::resolve(&given).expect("valid"));
    let clock = Arc::new(SystemClock);
    let storage =
        Storage::open(StorageOptions::new(directory.to_owned(), Arc::clone(&config), clock.clone())).expect("opens");
    let topics = Topics::new(storage.clone(), Arc::clone(&config), clock.clone());
    let started = GroupCoordinator::start(storage.clone(), config, clock, topics, CancellationToken::new()).await;
    (storage, started.expect("starts"))
}

async fn committed(coordinator: &GroupCoordinator, name: &str) -> Option<i64> {
    let topics = coordinator.fetch(group(name), None, None).await.wait().await.expect("served").expect("fetched");
    topics.first().and_then(|topic| topic.partitions[0].1.as_ref()).map(|committed| committed.offset)
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_found_again_in_the_wal_and_in_segments() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = ["a", "b", "c", "d", "e"];
    for round in 0..3 {
        let (storage, coordinator) = on_disk(directory.path()).await;
        for name in names {
            assert_eq!(
                committed(&coordinator, name).await,
                (round > 0).then_some(round - 1),
                "{name} in round {round}"
            );
            assert_eq!(coordinator.commit(group(name), commit(round)).await.wait().await, Ok(Ok(())));
        }
        if round == 0 {
            let member = coordinator.join(group("m"), join(1_800_000)).await.wait().await.expect("served");
            assert_eq!(
                coordinator.sync(group("m"), sync(&member.member_id, 1)).await.wait().await.expect("served").error,
                None
            );
        }
        let found = coordinator.describe(group("m")).await.wait().await.expect("served").expect("there");
        assert_eq!((found.state, found.members.len()), (group::GroupState::Stable, 1), "round {round}");
        if round == 1 {
            let topic = storage.topics().by_name(GROUP_TOPIC).cloned().expect("made by the first write");
            assert!(topic.record.internal && topic.partitions() == 3);
            storage.seal_topic(&topic).expect("sealed");
        }
        coordinator.stop().await;
        storage.close().expect("closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topic_of_groups_is_made_by_the_first_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let (storage, coordinator) = on_disk(directory.path()).await;
    assert_eq!(committed(&coordinator, "a").await, None);
    assert!(coordinator.describe(group("a")).await.wait().await.expect("served").is_err());
    assert!(storage.topics().by_name(GROUP_TOPIC).is_none());
    assert_eq!(coordinator.commit(group("a"), commit(1)).await.wait().await, Ok(Ok(())));
    assert!(storage.topics().by_name(GROUP_TOPIC).is_some());
    coordinator.stop().await;
    storage.close().expect("closed");
}

fn marker(producer: Producer, outcome: TxnOutcome) -> TxnMarker {
    TxnMarker {
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        outcome,
        coordinator_epoch: 0,
        timestamp_ms: 1_000,
    }
}

async fn commit_in(coordinator: &GroupCoordinator, name: &str, producer: Producer, offset: i64) {
    let guard = coordinator.guard(name, producer.id).await.expect("the topic can be made");
    let answer = coordinator.commit_in_transaction(group(name), commit(offset), producer, guard).await;
    assert_eq!(answer.wait().await, Ok(Ok(())));
}

async fn is_unstable(coordinator: &GroupCoordinator, name: &str) -> bool {
    let wanted = Some(vec![(group("t"), vec![0])]);
    let fetched = coordinator.fetch(group(name), wanted, None).await.wait().await.expect("served");
    let topics = fetched.expect("no member is named");
    !topics[0].unstable.is_empty()
}

async fn end(coordinator: &GroupCoordinator, name: &str, marker: TxnMarker) {
    let ended = coordinator.end_transaction(coordinator.partition_of(name), marker).await.wait().await;
    assert_eq!(ended, Ok(Ok(())));
}

#[tokio::test(flavor = "multi_thread")]
async fn s97_offsets_of_a_transaction_count_from_its_marker_on_also_after_restarts_and_seals() {
    let directory = tempfile::tempdir().expect("a directory");
    let producers: Vec<Producer> = (1..=3).map(|id| Producer { id, epoch: 0 }).collect();
    let (storage, coordinator) = on_disk(directory.path()).await;
    commit_in(&coordinator, "committed", producers[0], 5).await;
    commit_in(&coordinator, "aborted", producers[1], 6).await;
    commit_in(&coordinator, "open", producers[2], 7).await;
    coordinator.stop().await;
    storage.close().expect("closed");
    drop((coordinator, storage));

    let (mut storage, mut coordinator) = on_disk(directory.path()).await;
    for name in ["committed", "aborted", "open"] {
        assert_eq!(committed(&coordinator, name).await, None, "{name}");
        assert!(is_unstable(&coordinator, name).await, "{name}");
    }
    end(&coordinator, "committed", marker(Producer { epoch: 1, ..producers[0] }, TxnOutcome::Commit)).await;
    end(&coordinator, "aborted", marker(Producer { epoch: 1, ..producers[1] }, TxnOutcome::Abort)).await;
    for round in 0..3 {
        assert_eq!(committed(&coordinator, "committed").await, Some(5), "round {round}");
        assert_eq!(committed(&coordinator, "aborted").await, None, "round {round}");
        assert_eq!(committed(&coordinator, "open").await, None, "round {round}");
        assert!(
            is_unstable(&coordinator, "open").await && !is_unstable(&coordinator, "aborted").await,
            "round {round}"
        );
        if round == 1 {
            let topic = storage.topics().by_name(GROUP_TOPIC).cloned().expect("made by the first write");
            storage.seal_topic(&topic).expect("sealed");
        }
        coordinator.stop().await;
        storage.close().expect("closed");
        drop((coordinator, storage));
        (storage, coordinator) = on_disk(directory.path()).await;
    }
    end(&coordinator, "open", marker(Producer { epoch: 1, ..producers[2] }, TxnOutcome::Commit)).await;
    assert_eq!(committed(&coordinator, "open").await, Some(7));
    coordinator.stop().await;
    storage.close().expect("closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn kip890_a_commit_that_comes_after_its_transaction_ended_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (storage, coordinator) = on_disk(directory.path()).await;
    let producer = Producer { id: 1, epoch: 0 };
    let guard = coordinator.guard("g", producer.id).await.expect("the topic can be made");
    end(&coordinator, "g", marker(producer, TxnOutcome::Abort)).await;
    let late = coordinator.commit_in_transaction(group("g"), commit(5), producer, guard).await.wait().await;
    assert_eq!(late, Ok(Err(GroupError::InvalidTxnState)));
    end(&coordinator, "g", marker(Producer { epoch: 1, ..producer }, TxnOutcome::Abort)).await;
    let guard = coordinator.guard("g", producer.id).await.expect("the topic is there");
    let stale = coordinator.commit_in_transaction(group("g"), commit(5), producer, guard).await.wait().await;
    assert_eq!(stale, Ok(Err(GroupError::InvalidProducerEpoch)));
    assert!(!is_unstable(&coordinator, "g").await);
    coordinator.stop().await;
    storage.close().expect("closed");
}

#[tokio::test]
async fn the_later_of_a_plain_and_a_transactional_commit_stands() {
    let log = Arc::new(MemoryLog::default());
    let coordinator = coordinator(&log);
    let producer = Producer { id: 1, epoch: 0 };
    commit_in(&coordinator, "plain-last", producer, 5).await;
    assert_eq!(coordinator.commit(group("plain-last"), commit(9)).await.wait().await, Ok(Ok(())));
    assert_eq!(coordinator.commit(group("plain-first"), commit(9)).await.wait().await, Ok(Ok(())));
    commit_in(&coordinator, "plain-first", producer, 5).await;
    for shard in 0..3 {
        let ended = coordinator.end_transaction(shard, marker(producer, TxnOutcome::Commit)).await.wait().await;
        assert_eq!(ended, Ok(Ok(())));
    }
    assert_eq!(committed(&coordinator, "plain-last").await, Some(9));
    assert_eq!(committed(&coordinator, "plain-first").await, Some(5));
    coordinator.stop().await;
    let again = self::coordinator(&log);
    assert_eq!(committed(&again, "plain-last").await, Some(9));
    assert_eq!(committed(&again, "plain-first").await, Some(5));
    again.stop().await;
}

#[tokio::test]
async fn s70_offsets_of_a_deleted_topic_do_not_come_back_with_a_transaction() {
    let log = Arc::new(MemoryLog::default());
    let coordinator = coordinator(&log);
    let producer = Producer { id: 1, epoch: 0 };
    commit_in(&coordinator, "g", producer, 5).await;
    coordinator.topic_deleted("t").await;
    end(&coordinator, "g", marker(producer, TxnOutcome::Commit)).await;
    assert_eq!(committed(&coordinator, "g").await, None);
    coordinator.stop().await;
}

#[tokio::test]
async fn s85_a_group_with_offsets_of_an_open_transaction_is_deleted_with_them() {
    let log = Arc::new(MemoryLog::default());
    let coordinator = coordinator(&log);
    let producer = Producer { id: 1, epoch: 0 };
    commit_in(&coordinator, "g", producer, 5).await;
    assert_eq!(coordinator.delete(group("g")).await.wait().await, Ok(Ok(())));
    end(&coordinator, "g", marker(producer, TxnOutcome::Commit)).await;
    assert_eq!(committed(&coordinator, "g").await, None);
    coordinator.stop().await;
}
