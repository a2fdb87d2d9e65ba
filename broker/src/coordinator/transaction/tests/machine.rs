use std::sync::Arc;

use proptest::prelude::*;
use weir_model::producer::TxnOutcome::{self, Abort, Commit};

use super::super::machine::{Prepared, Transaction, TransactionMetadata};
use super::super::state::{ClientVersion, Partitions, Producer, TransactionError, TransactionState};

const TIMEOUT: i32 = 60_000;

/// An id, driven as the coordinator drives it: what is to be written is durable at once.
struct Bench {
    transaction: Transaction,
    now: i64,
    next_id: i64,
}

impl Bench {
    fn new() -> Self {
        Self { transaction: Transaction::new(1, TIMEOUT, 0), now: 0, next_id: 100 }
    }

    fn at(state: TransactionState, epoch: i16) -> Self {
        let mut bench = Self::new();
        let current = bench.transaction.current().clone();
        let (partitions, started_wall_ms) = match state {
            TransactionState::Empty => (Partitions::default(), None),
            TransactionState::CompleteCommit | TransactionState::CompleteAbort => (Partitions::default(), Some(0)),
            _ => (Partitions::one("t", 0), Some(0)),
        };
        bench.transaction = Transaction::replayed(TransactionMetadata {
            producer_epoch: epoch,
            state,
            partitions,
            started_wall_ms,
            client_version: ClientVersion::V2,
            ..current
        });
        bench
    }

    fn fresh(&mut self) -> Option<i64> {
        self.next_id += 1;
        Some(self.next_id)
    }

    fn take(&mut self, prepared: Result<Prepared, TransactionError>) -> Result<Producer, TransactionError> {
        match prepared? {
            Prepared::Nothing(producer) => Ok(producer),
            Prepared::NeedsProducerId => panic!("a fresh id was given"),
            Prepared::Log(transition) => {
                assert!(self.transaction.is_pending());
                self.transaction.finish(transition);
                Ok(self.transaction.current().producer())
            }
        }
    }

    fn init(&mut self, expected: Option<Producer>) -> Result<Producer, TransactionError> {
        let fresh = self.fresh();
        let prepared = self.transaction.init(self.now, TIMEOUT, expected, fresh);
        self.take(prepared)
    }

    fn add(&mut self, producer: Producer, topic: &str) -> Result<Producer, TransactionError> {
        let partitions = Partitions::one(topic, 0);
        let prepared = self.transaction.add_partitions(self.now, producer, &partitions, ClientVersion::V2);
        self.take(prepared)
    }

    fn end(
        &mut self,
        producer: Producer,
        outcome: TxnOutcome,
        version: ClientVersion,
    ) -> Result<Producer, TransactionError> {
        let fresh = self.fresh();
        let prepared = self.transaction.end(self.now, producer, outcome, version, fresh);
        self.take(prepared)
    }

    fn complete(&mut self) {
        let transition = self.transaction.complete(self.now).expect("something was prepared");
        self.transaction.finish(transition);
    }

    fn state(&self) -> TransactionState {
        self.transaction.current().state
    }
}

fn producer(id: i64, epoch: i16) -> Producer {
    Producer { id, epoch }
}

#[test]
fn a_new_id_starts_at_epoch_0_and_each_instance_fences_the_one_before() {
    let mut bench = Bench::new();
    assert_eq!(bench.init(None), Ok(producer(1, 0)));
    assert_eq!(bench.init(None), Ok(producer(1, 1)));
    assert_eq!(bench.add(producer(1, 0), "t"), Err(TransactionError::ProducerFenced));
    assert_eq!(bench.add(producer(2, 1), "t"), Err(TransactionError::InvalidProducerIdMapping));
}

#[test]
fn an_id_is_busy_while_a_change_is_written_and_as_before_when_that_fails() {
    let mut bench = Bench::at(TransactionState::Ongoing, 3);
    let before = bench.transaction.current().clone();
    let prepared = bench.transaction.end(0, producer(1, 3), Commit, ClientVersion::V2, None);
    assert!(matches!(prepared, Ok(Prepared::Log(_))));
    assert_eq!(bench.add(producer(1, 3), "u"), Err(TransactionError::ConcurrentTransactions));
    assert_eq!(bench.init(None), Err(TransactionError::ConcurrentTransactions));
    assert_eq!(bench.end(producer(1, 3), Commit, ClientVersion::V2), Err(TransactionError::ConcurrentTransactions));
    bench.transaction.give_up();
    assert_eq!(bench.transaction.current(), &before);
    assert_eq!(bench.end(producer(1, 3), Commit, ClientVersion::V2), Ok(producer(1, 4)));
}

#[test]
fn the_second_version_ends_the_epoch_with_the_transaction_and_the_first_keeps_it() {
    for (version, epoch) in [(ClientVersion::V0, 3), (ClientVersion::V1, 3), (ClientVersion::V2, 4)] {
        let mut bench = Bench::at(TransactionState::Ongoing, 3);
        assert_eq!(bench.end(producer(1, 3), Commit, version), Ok(producer(1, epoch)));
        assert_eq!(bench.state(), TransactionState::PrepareCommit);
        assert!(bench.transaction.current().partitions.contains("t", 0), "markers go there");
        bench.complete();
        assert_eq!(bench.state(), TransactionState::CompleteCommit);
        assert!(bench.transaction.current().partitions.is_empty());
        assert_eq!(bench.transaction.current().producer(), producer(1, epoch));
    }
}

/// The table above `Transaction::end`, and Kafka's for the states that markers are written in.
#[test]
fn s96_what_may_be_ended_how() {
    use TransactionError::{ConcurrentTransactions, InvalidTxnState, ProducerFenced};
    use TransactionState::{CompleteAbort, CompleteCommit, Empty, PrepareAbort, PrepareCommit};
    let (before, now) = (producer(1, 4), producer(1, 5));
    let next = Ok(producer(1, 6));
    let as_it_was = Ok(now);
    let second = [
        (Empty, before, Abort, Err(ProducerFenced)),
        (Empty, now, Abort, next),
        (Empty, before, Commit, Err(ProducerFenced)),
        (Empty, now, Commit, Err(InvalidTxnState)),
        (CompleteAbort, before, Abort, as_it_was),
        (CompleteAbort, now, Abort, next),
        (CompleteAbort, before, Commit, Err(InvalidTxnState)),
        (CompleteAbort, now, Commit, Err(InvalidTxnState)),
        (CompleteCommit, before, Abort, Err(InvalidTxnState)),
        (CompleteCommit, now, Abort, next),
        (CompleteCommit, before, Commit, as_it_was),
        (CompleteCommit, now, Commit, Err(InvalidTxnState)),
        (PrepareCommit, before, Commit, Err(ConcurrentTransactions)),
        (PrepareCommit, before, Abort, Err(InvalidTxnState)),
        (PrepareCommit, now, Commit, Err(ProducerFenced)),
        (PrepareAbort, before, Abort, Err(ConcurrentTransactions)),
        (PrepareAbort, before, Commit, Err(InvalidTxnState)),
        (PrepareAbort, now, Abort, Err(ProducerFenced)),
    ];
    for (state, who, outcome, expected) in second {
        assert_eq!(Bench::at(state, 5).end(who, outcome, ClientVersion::V2), expected, "{state:?} {who:?} {outcome:?}");
    }
    let first = [
        (Empty, Abort, Err(InvalidTxnState)),
        (Empty, Commit, Err(InvalidTxnState)),
        (CompleteAbort, Abort, as_it_was),
        (CompleteAbort, Commit, Err(InvalidTxnState)),
        (CompleteCommit, Commit, as_it_was),
        (CompleteCommit, Abort, Err(InvalidTxnState)),
        (PrepareCommit, Commit, Err(ConcurrentTransactions)),
        (PrepareCommit, Abort, Err(InvalidTxnState)),
        (PrepareAbort, Abort, Err(ConcurrentTransactions)),
        (PrepareAbort, Commit, Err(InvalidTxnState)),
    ];
    for (state, outcome, expected) in first {
        assert_eq!(Bench::at(state, 5).end(now, outcome, ClientVersion::V0), expected, "{state:?} {outcome:?}");
        let fenced = Err(TransactionError::ProducerFenced);
        assert_eq!(Bench::at(state, 5).end(before, outcome, ClientVersion::V0), fenced, "{state:?} {outcome:?}");
    }
}

#[test]
fn s94_a_new_instance_aborts_what_the_old_one_left_open_and_asks_again() {
    let mut bench = Bench::at(TransactionState::Ongoing, 3);
    // The fence and the end of the transaction take an epoch each.
    assert_eq!(bench.init(None), Ok(producer(1, 5)));
    assert_eq!(bench.state(), TransactionState::PrepareAbort);
    assert_eq!(bench.init(None), Err(TransactionError::ConcurrentTransactions));
    assert_eq!(bench.end(producer(1, 3), Commit, ClientVersion::V2), Err(TransactionError::ProducerFenced));
    bench.complete();
    assert_eq!(bench.init(None), Ok(producer(1, 6)));
    assert_eq!(bench.state(), TransactionState::Empty);
}

#[test]
fn under_the_first_version_a_fence_takes_one_epoch() {
    let mut bench = Bench::at(TransactionState::Ongoing, 3);
    let metadata = bench.transaction.current().clone();
    bench.transaction = Transaction::replayed(TransactionMetadata { client_version: ClientVersion::V0, ..metadata });
    assert_eq!(bench.init(None), Ok(producer(1, 4)));
    bench.complete();
    assert_eq!(bench.init(None), Ok(producer(1, 5)));
}

#[test]
fn s97_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced() {
    let mut bench = Bench::at(TransactionState::Ongoing, 3);
    assert_eq!(bench.transaction.time_out(i64::from(TIMEOUT)), None);
    let transition = bench.transaction.time_out(i64::from(TIMEOUT) + 1).expect("over");
    assert_eq!(transition.metadata.state, TransactionState::PrepareAbort);
    bench.transaction.finish(transition);
    bench.complete();
    assert_eq!(bench.add(producer(1, 3), "t"), Err(TransactionError::ProducerFenced));
    for state in [TransactionState::Empty, TransactionState::PrepareCommit, TransactionState::CompleteAbort] {
        assert_eq!(Bench::at(state, 3).transaction.time_out(i64::MAX), None, "{state:?}");
    }
}

#[test]
fn kip360_a_producer_recovers_with_its_own_epoch_and_a_retry_is_answered_the_same() {
    let mut bench = Bench::new();
    let first = bench.init(None).expect("new");
    let second = bench.init(Some(first));
    assert_eq!(second, Ok(producer(1, 1)));
    assert_eq!(bench.init(Some(first)), second, "the answer was lost");
    assert_eq!(bench.init(None), Ok(producer(1, 2)), "another instance");
    assert_eq!(bench.init(Some(first)), Err(TransactionError::ProducerFenced));
    assert_eq!(bench.init(Some(producer(1, 1))), Err(TransactionError::ProducerFenced));
    assert_eq!(bench.init(Some(producer(9, 2))), Err(TransactionError::ProducerFenced));
}

#[test]
fn used_up_epochs_change_the_producer_id() {
    let last = i16::MAX - 1;
    let mut bench = Bench::at(TransactionState::Empty, last);
    let prepared = bench.transaction.init(0, TIMEOUT, None, None);
    assert_eq!(prepared, Ok(Prepared::NeedsProducerId));
    let changed = bench.init(Some(producer(1, last)));
    assert_eq!(changed, Ok(producer(101, 0)), "with the id it was given at the second time of asking");
    assert_eq!(bench.transaction.current().previous_producer_id, Some(1));
}

#[test]
fn a_transaction_that_ends_the_last_epoch_goes_on_with_a_new_id() {
    let last = i16::MAX - 1;
    let mut bench = Bench::at(TransactionState::Ongoing, last);
    bench.end(producer(1, last), Commit, ClientVersion::V2).expect("it commits");
    assert_eq!(bench.transaction.current().producer(), producer(1, i16::MAX), "the markers fence the last epoch");
    assert_eq!(bench.transaction.next_producer(), producer(101, 0), "the client is told the next");
    // A restart in between.
    let metadata = bench.transaction.current().clone();
    bench.transaction = Transaction::replayed(TransactionMetadata { last_producer_epoch: None, ..metadata });
    bench.complete();
    assert_eq!(bench.transaction.current().producer(), producer(101, 0));
    assert_eq!(bench.end(producer(1, last), Commit, ClientVersion::V2), Ok(producer(101, 0)), "a retry");
    assert_eq!(
        bench.end(producer(1, last), Abort, ClientVersion::V2),
        Err(TransactionError::InvalidTxnState),
        "not a retry of what was asked"
    );
}

#[test]
fn fencing_the_last_epoch_does_not_overflow() {
    let mut bench = Bench::at(TransactionState::Ongoing, i16::MAX - 1);
    assert_eq!(bench.init(None), Ok(producer(1, i16::MAX)));
    bench.complete();
    assert_eq!(bench.init(None), Ok(producer(102, 0)));
}

#[test]
fn kip890_only_partitions_that_were_added_are_verified() {
    let mut bench = Bench::at(TransactionState::Ongoing, 3);
    let verify = |bench: &Bench, who: Producer, topic: &str| bench.transaction.verify(who, topic, 0);
    assert_eq!(verify(&bench, producer(1, 3), "t"), Ok(()));
    assert_eq!(verify(&bench, producer(1, 3), "u"), Err(TransactionError::Abortable));
    assert_eq!(verify(&bench, producer(1, 2), "t"), Err(TransactionError::ProducerFenced));
    assert_eq!(verify(&bench, producer(2, 3), "t"), Err(TransactionError::InvalidProducerIdMapping));
    bench.end(producer(1, 3), Commit, ClientVersion::V0).expect("it commits");
    assert_eq!(verify(&bench, producer(1, 3), "t"), Err(TransactionError::ConcurrentTransactions));
    bench.complete();
    assert_eq!(verify(&bench, producer(1, 3), "t"), Err(TransactionError::Abortable));
}

#[test]
fn adding_what_is_there_writes_nothing() {
    let mut bench = Bench::at(TransactionState::Ongoing, 3);
    let partitions = Partitions::one("t", 0);
    let again = bench.transaction.add_partitions(5, producer(1, 3), &partitions, ClientVersion::V0);
    assert_eq!(again, Ok(Prepared::Nothing(producer(1, 3))));
}

#[test]
fn the_time_of_a_transaction_runs_from_its_first_partition() {
    let mut bench = Bench::at(TransactionState::CompleteCommit, 3);
    bench.now = 7;
    bench.add(producer(1, 3), "t").expect("added");
    bench.now = 9;
    bench.add(producer(1, 3), "u").expect("added");
    assert_eq!(
        (bench.transaction.current().started_wall_ms, bench.transaction.current().updated_wall_ms),
        (Some(7), 9)
    );
}

#[test]
fn s97_only_idle_ids_expire() {
    for state in TransactionState::ALL {
        let mut bench = Bench::at(state, 3);
        let expires = matches!(
            state,
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort
        );
        assert!(!bench.transaction.expire(99, 100), "{state:?}");
        assert_eq!(bench.transaction.expire(100, 100), expires, "{state:?}");
        assert_eq!(bench.transaction.is_pending(), expires);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Init { recovers: bool },
    Add { stale: bool },
    End { outcome: TxnOutcome, stale: bool },
    Complete,
    TimeOut,
    Fail,
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![Just(Commit), Just(Abort)];
    prop_oneof![
        2 => any::<bool>().prop_map(|recovers| Step::Init { recovers }),
        6 => prop::bool::weighted(0.2).prop_map(|stale| Step::Add { stale }),
        6 => (outcome, prop::bool::weighted(0.2)).prop_map(|(outcome, stale)| Step::End { outcome, stale }),
        6 => Just(Step::Complete),
        1 => Just(Step::TimeOut),
        1 => Just(Step::Fail),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// What the log holds is enough to go on, epochs never go back under one id, and nothing is committed that was not asked to be.
    #[test]
    fn epochs_rise_and_a_decision_is_never_changed(steps in prop::collection::vec(any_step(), 0..80), first in prop_oneof![Just(0_i16), Just(i16::MAX - 4)]) {
        let mut bench = Bench::at(TransactionState::Empty, first);
        for step in steps {
            let before = bench.transaction.current().clone();
            let current = before.producer();
            let who = |stale: bool| if stale { producer(current.id, current.epoch.saturating_sub(1)) } else { current };
            match step {
                Step::Init { recovers } => drop(bench.init(recovers.then_some(current))),
                Step::Add { stale } => drop(bench.add(who(stale), "t")),
                Step::End { outcome, stale } => drop(bench.end(who(stale), outcome, ClientVersion::V2)),
                Step::Complete => {
                    if let Some(transition) = bench.transaction.complete(bench.now) {
                        bench.transaction.finish(transition);
                    }
                }
                Step::TimeOut => {
                    bench.now += i64::from(TIMEOUT) * 2;
                    if let Some(transition) = bench.transaction.time_out(bench.now) {
                        bench.transaction.finish(transition);
                    }
                }
                Step::Fail => {
                    let fresh = bench.fresh();
                    let _ = bench.transaction.end(bench.now, current, Commit, ClientVersion::V2, fresh);
                    bench.transaction.give_up();
                    prop_assert_eq!(bench.transaction.current(), &before);
                }
                Step::Restart => {
                    let record = super::super::records::TransactionRecord { id: Arc::from("x"), metadata: Some(before.clone()) };
                    let value = record.value_bytes().expect("not a tombstone");
                    let read = super::super::records::TransactionRecord::parse(&record.key_bytes(), Some(&value)).expect("our own");
                    bench.transaction = Transaction::replayed(read.metadata.expect("not a tombstone"));
                }
            }
            let after = bench.transaction.current();
            prop_assert!(!bench.transaction.is_pending());
            if after.producer_id == before.producer_id {
                prop_assert!(after.producer_epoch >= before.producer_epoch);
            }
            if let Some(outcome) = before.state.prepared() {
                let complete = match outcome { Commit => TransactionState::CompleteCommit, Abort => TransactionState::CompleteAbort };
                prop_assert!(after.state == before.state || after.state == complete, "{:?} became {:?}", before.state, after.state);
            }
            if after.state == TransactionState::PrepareCommit {
                prop_assert!(!after.partitions.is_empty());
            }
        }
    }
}
