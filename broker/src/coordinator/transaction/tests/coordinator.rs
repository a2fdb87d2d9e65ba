//! The coordinator with a log in memory, partitions that remember their markers, and a clock that is set.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir_model::config::BrokerConfig;
use weir_model::producer::{TxnMarker, TxnOutcome};
use weir_model::{Clock, Offset};

use super::super::log::TransactionLog;
use super::super::markers::{Markers, MarkersError};
use super::super::records::TransactionRecord;
use super::super::*;
use crate::coordinator::log::{Durability, LogError, LogRead};

const TIMEOUT: i32 = 60_000;

#[derive(Default)]
struct MemoryLog {
    records: Mutex<BTreeMap<i32, Vec<TransactionRecord>>>,
    refuses: AtomicBool,
}

#[async_trait]
impl TransactionLog for MemoryLog {
    async fn append(&self, partition: i32, record: TransactionRecord) -> Result<Durability, LogError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(LogError::Refused);
        }
        self.records.lock().entry(partition).or_default().push(record);
        Ok(Box::pin(std::future::ready(Ok(()))))
    }

    async fn read(&self, partition: i32, from: Option<Offset>) -> Result<Option<LogRead<TransactionRecord>>, LogError> {
        let entries = self.records.lock().get(&partition).cloned().unwrap_or_default();
        if from.is_some() || entries.is_empty() {
            return Ok(None);
        }
        Ok(Some(LogRead { entries, next: Offset::new(1).expect("positive") }))
    }
}

#[derive(Default)]
struct MemoryMarkers {
    written: Mutex<Vec<(TxnMarker, Partitions)>>,
    refuses: AtomicBool,
}

#[async_trait]
impl Markers for MemoryMarkers {
    async fn write(&self, marker: TxnMarker, partitions: &Partitions) -> Result<(), MarkersError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(MarkersError::Refused);
        }
        self.written.lock().push((marker, partitions.clone()));
        Ok(())
    }
}

#[derive(Default)]
struct Counting(AtomicI64);

#[async_trait]
impl ProducerIds for Counting {
    async fn next(&self) -> Option<ProducerId> {
        Some(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

#[derive(Debug, Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

#[derive(Default, Clone)]
struct World {
    log: Arc<MemoryLog>,
    markers: Arc<MemoryMarkers>,
    ids: Arc<Counting>,
    clock: Arc<SetClock>,
}

impl World {
    /// A coordinator over what is in the log.
    fn start(&self, set: &[(&str, &str)]) -> TransactionCoordinator {
        let quick = [
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "5"),
            ("transaction.remove.expired.transaction.cleanup.interval.ms", "5"),
        ];
        let given = quick.iter().chain(set).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let config = Arc::new(BrokerConfig::resolve(&given).expect("valid"));
        let written =
            self.log.records.lock().keys().map(|partition| usize::try_from(*partition).expect("one")).collect();
        TransactionCoordinator::with_parts(
            self.log.clone(),
            self.markers.clone(),
            self.ids.clone(),
            (3, written),
            config,
            self.clock.clone(),
            &CancellationToken::new(),
        )
    }
}

fn t0() -> Partitions {
    Partitions::one("t", 0)
}

/// Waits until `found` says so.
async fn until(what: &str, mut found: impl FnMut() -> bool) {
    let waited = async {
        while !found() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waited).await.unwrap_or_else(|_| panic!("never: {what}"));
}

async fn begun(coordinator: &TransactionCoordinator, id: &str) -> Producer {
    let producer = coordinator.init(id, TIMEOUT, None).await.expect("initialized");
    coordinator.add_partitions(id, producer, t0(), ClientVersion::V2).await.expect("added");
    producer
}

fn state(coordinator: &TransactionCoordinator, id: &str) -> TransactionState {
    coordinator.describe(id).expect("known").state
}

#[tokio::test]
async fn a_transaction_is_prepared_marked_and_completed_in_that_order() {
    let world = World::default();
    let coordinator = world.start(&[]);
    let producer = begun(&coordinator, "a").await;
    let next = coordinator.end("a", producer, TxnOutcome::Commit, ClientVersion::V2).await.expect("committed");
    assert_eq!(next, Producer { epoch: producer.epoch + 1, ..producer });
    until("completed", || state(&coordinator, "a") == TransactionState::CompleteCommit).await;
    let written = world.markers.written.lock().clone();
    assert_eq!(written.len(), 1);
    assert_eq!((written[0].0.producer_epoch, written[0].0.outcome), (next.epoch, TxnOutcome::Commit));
    assert!(written[0].1.contains("t", 0));
    let states: Vec<_> = world.log.records.lock().values().flatten().cloned().collect();
    let states: Vec<_> = states.into_iter().map(|record| record.metadata.expect("kept").state).collect();
    use TransactionState::{CompleteCommit, Empty, Ongoing, PrepareCommit};
    assert_eq!(states, [Empty, Ongoing, PrepareCommit, CompleteCommit]);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_restart_completes_what_was_prepared_and_leaves_open_what_was_open() {
    let world = World::default();
    let first = world.start(&[]);
    world.markers.refuses.store(true, Ordering::SeqCst);
    let (prepared, open) = (begun(&first, "prepared").await, begun(&first, "open").await);
    first.end("prepared", prepared, TxnOutcome::Abort, ClientVersion::V2).await.expect("decided");
    assert_eq!(state(&first, "prepared"), TransactionState::PrepareAbort);
    first.stop().await;
    assert_eq!(first.describe("open"), Err(TransactionError::NotCoordinator));

    world.markers.refuses.store(false, Ordering::SeqCst);
    let second = world.start(&[]);
    until("loaded", || second.list(&TransactionFilter { duration_ms: -1, ..TransactionFilter::default() }).is_ok())
        .await;
    until("completed", || state(&second, "prepared") == TransactionState::CompleteAbort).await;
    assert_eq!(world.markers.written.lock()[0].0.outcome, TxnOutcome::Abort);
    // A retry of the decision is answered as it was; what was open is ended with EndTxn alone (S-98).
    let again = second.end("prepared", prepared, TxnOutcome::Abort, ClientVersion::V2).await;
    assert_eq!(again, Ok(Producer { epoch: prepared.epoch + 1, ..prepared }));
    assert_eq!(state(&second, "open"), TransactionState::Ongoing);
    second.end("open", open, TxnOutcome::Commit, ClientVersion::V2).await.expect("committed");
    until("completed", || state(&second, "open") == TransactionState::CompleteCommit).await;
    second.stop().await;
}

#[tokio::test]
async fn s94_a_second_instance_aborts_the_first_ones_transaction() {
    let world = World::default();
    let coordinator = world.start(&[]);
    let first = begun(&coordinator, "a").await;
    assert_eq!(coordinator.init("a", TIMEOUT, None).await, Err(TransactionError::ConcurrentTransactions));
    until("aborted", || state(&coordinator, "a") == TransactionState::CompleteAbort).await;
    let second = coordinator.init("a", TIMEOUT, None).await.expect("initialized");
    assert!(second.id == first.id && second.epoch > first.epoch);
    let late = coordinator.end("a", first, TxnOutcome::Commit, ClientVersion::V2).await;
    assert_eq!(late, Err(TransactionError::ProducerFenced));
    assert_eq!(world.markers.written.lock().len(), 1);
    coordinator.stop().await;
}

#[tokio::test]
async fn s97_transactions_time_out_and_idle_ids_are_forgotten() {
    let world = World::default();
    let coordinator = world.start(&[("transactional.id.expiration.ms", "1000000")]);
    let producer = begun(&coordinator, "a").await;
    world.clock.0.store(i64::from(TIMEOUT) + 1, Ordering::SeqCst);
    until("aborted", || state(&coordinator, "a") == TransactionState::CompleteAbort).await;
    assert!(world.markers.written.lock()[0].0.producer_epoch > producer.epoch, "a late batch is fenced where it goes");
    world.clock.0.store(10_000_000, Ordering::SeqCst);
    until("forgotten", || coordinator.describe("a") == Err(TransactionError::TransactionalIdNotFound)).await;
    let last = world.log.records.lock().values().flatten().last().cloned().expect("written");
    assert_eq!(last, TransactionRecord { id: Arc::from("a"), metadata: None });
    coordinator.stop().await;
    let again = world.start(&[]);
    until("loaded", || again.describe("a") == Err(TransactionError::TransactionalIdNotFound)).await;
    again.stop().await;
}

#[tokio::test]
async fn what_cannot_be_written_did_not_happen() {
    let world = World::default();
    let coordinator = world.start(&[]);
    let producer = begun(&coordinator, "a").await;
    world.log.refuses.store(true, Ordering::SeqCst);
    let refused = coordinator.end("a", producer, TxnOutcome::Commit, ClientVersion::V2).await;
    assert_eq!(refused, Err(TransactionError::NotAvailable));
    assert_eq!(state(&coordinator, "a"), TransactionState::Ongoing);
    world.log.refuses.store(false, Ordering::SeqCst);
    coordinator.end("a", producer, TxnOutcome::Abort, ClientVersion::V2).await.expect("decided otherwise");
    until("completed", || state(&coordinator, "a") == TransactionState::CompleteAbort).await;
    coordinator.stop().await;
}

#[tokio::test]
async fn a_write_waits_a_little_for_the_end_of_the_transaction_before() {
    let world = World::default();
    let coordinator = world.start(&[("add.partitions.to.txn.retry.backoff.max.ms", "10000")]);
    let producer = begun(&coordinator, "a").await;
    world.markers.refuses.store(true, Ordering::SeqCst);
    let next = coordinator.end("a", producer, TxnOutcome::Commit, ClientVersion::V2).await.expect("decided");
    let busy = coordinator.add_partitions("a", next, t0(), ClientVersion::V2).await;
    assert_eq!(busy, Err(TransactionError::ConcurrentTransactions));
    let waiting = coordinator.add_by_writing("a", next, t0());
    world.markers.refuses.store(false, Ordering::SeqCst);
    assert_eq!(waiting.await, Ok(()));
    assert_eq!(state(&coordinator, "a"), TransactionState::Ongoing);
    coordinator.stop().await;
}

#[tokio::test]
async fn s99_ids_are_listed_through_every_filter() {
    let world = World::default();
    world.clock.0.store(1_000, Ordering::SeqCst);
    let coordinator = world.start(&[]);
    let open = begun(&coordinator, "open").await;
    let idle = coordinator.init("idle", TIMEOUT, None).await.expect("initialized");
    world.clock.0.store(1_500, Ordering::SeqCst);
    let all = TransactionFilter { duration_ms: -1, ..TransactionFilter::default() };
    let names = |filter: TransactionFilter| {
        let listed = coordinator.list(&filter).expect("loaded");
        let mut names: Vec<String> = listed.into_iter().map(|(id, ..)| id.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(all.clone()), ["idle", "open"]);
    assert_eq!(names(TransactionFilter { states: Some(vec![TransactionState::Ongoing]), ..all.clone() }), ["open"]);
    assert!(names(TransactionFilter { states: Some(Vec::new()), ..all.clone() }).is_empty(), "only unknown names");
    assert_eq!(names(TransactionFilter { producer_ids: vec![idle.id], ..all.clone() }), ["idle"]);
    assert_eq!(names(TransactionFilter { duration_ms: 499, ..all.clone() }), ["idle", "open"]);
    assert_eq!(names(TransactionFilter { duration_ms: 500, ..all }), ["idle"]);
    assert_ne!(open.id, idle.id);
    coordinator.stop().await;
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_by_name() {
    let world = World::default();
    let coordinator = world.start(&[("transaction.max.timeout.ms", "1000"), ("weir.transactional.ids.max", "1")]);
    let nobody = Producer { id: 1, epoch: 0 };
    assert_eq!(coordinator.init("", 10, None).await, Err(TransactionError::InvalidRequest));
    for timeout_ms in [0, -1, 1001] {
        assert_eq!(coordinator.init("a", timeout_ms, None).await, Err(TransactionError::InvalidTimeout));
    }
    let unknown = coordinator.end("a", nobody, TxnOutcome::Commit, ClientVersion::V2).await;
    assert_eq!(unknown, Err(TransactionError::InvalidProducerIdMapping));
    let unknown = coordinator.add_partitions("a", nobody, t0(), ClientVersion::V0).await;
    assert_eq!(unknown, Err(TransactionError::InvalidProducerIdMapping));
    assert_eq!(coordinator.describe("a"), Err(TransactionError::TransactionalIdNotFound));
    coordinator.init("a", 1000, None).await.expect("as long as it may be");
    assert_eq!(coordinator.init("b", 1000, None).await, Err(TransactionError::TooManyIds));
    coordinator.init("a", 1000, None).await.expect("it is there already");
    coordinator.stop().await;
}
