//! One transactional id: what may follow what, with no clock, task or log in it.
//!
//! A change is prepared, then made durable, then taken in: `init`, `add_partitions`, `end`, ... give a [`Transition`], whose metadata is the next record of
//! the log; [`Transaction::finish`] makes it the state, [`Transaction::give_up`] says that it could not be written. In between the id is busy, and answers
//! `ConcurrentTransactions` to everything that would change it. The rules are those of Kafka's `TransactionMetadata` and `TransactionCoordinator`.
//!
//! ```text
//!               init            add partitions          end                  markers everywhere
//!   (new) --> Empty ----------------> Ongoing --------> PrepareCommit ----------> CompleteCommit
//!               ^                       |    \--------> PrepareAbort -----------> CompleteAbort
//!               |                       |  init, time-out: epoch + 1  ^                |
//!               |                       \-----------------------------/                |
//!               +-------- init --------------------------------------------------------+--> Ongoing ...
//! ```

use weir_model::producer::{ProducerEpoch, ProducerId, TxnOutcome};

use super::state::{ClientVersion, NO_PRODUCER_EPOCH, Partitions, Producer, TransactionError, TransactionState};

/// The last epoch that a client is given. The one above is kept for fencing it.
const LAST_EPOCH: ProducerEpoch = ProducerEpoch::MAX - 1;

/// Everything that is kept of a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionMetadata {
    /// Its producer's id.
    pub producer_id: ProducerId,
    /// The id before the last change of ids.
    pub previous_producer_id: Option<ProducerId>,
    /// The id that the producer goes on with when the prepared transaction is complete: its epochs are used up.
    pub next_producer_id: Option<ProducerId>,
    /// Its producer's epoch; -1 until the first InitProducerId is durable.
    pub producer_epoch: ProducerEpoch,
    /// The epoch before, while a retry of the request that raised it is still good. Not in the log.
    pub last_producer_epoch: Option<ProducerEpoch>,
    /// How long a transaction may stay open.
    pub timeout_ms: i32,
    /// Where it stands.
    pub state: TransactionState,
    /// What the transaction has written to.
    pub partitions: Partitions,
    /// When the transaction began, in wall-clock time.
    pub started_wall_ms: Option<i64>,
    /// When anything last happened, in wall-clock time.
    pub updated_wall_ms: i64,
    /// What the client spoke when it changed the state last.
    pub client_version: ClientVersion,
}

impl TransactionMetadata {
    /// The producer.
    pub fn producer(&self) -> Producer {
        Producer { id: self.producer_id, epoch: self.producer_epoch }
    }

    fn is_epoch_exhausted(&self) -> bool {
        self.producer_epoch >= LAST_EPOCH
    }
}

/// A change that is to be made durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The state it leads to.
    pub metadata: TransactionMetadata,
}

/// What a request leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared {
    /// Write this first.
    Log(Transition),
    /// Nothing changes; this is the producer.
    Nothing(Producer),
    /// The epochs are used up: ask again with a fresh producer id.
    NeedsProducerId,
}

/// A transactional id.
#[derive(Debug, Clone)]
pub struct Transaction {
    current: TransactionMetadata,
    pending: Option<TransactionState>,
}

impl Transaction {
    /// An id that was never seen.
    pub fn new(producer_id: ProducerId, timeout_ms: i32, now_ms: i64) -> Self {
        Self::replayed(TransactionMetadata {
            producer_id,
            previous_producer_id: None,
            next_producer_id: None,
            producer_epoch: NO_PRODUCER_EPOCH,
            last_producer_epoch: None,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: Partitions::default(),
            started_wall_ms: None,
            updated_wall_ms: now_ms,
            client_version: ClientVersion::V0,
        })
    }

    /// An id as its last record has it.
    pub fn replayed(metadata: TransactionMetadata) -> Self {
        Self { current: metadata, pending: None }
    }

    /// What is known of it, all of it durable.
    pub fn current(&self) -> &TransactionMetadata {
        &self.current
    }

    /// Whether a change is on its way into the log.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// InitProducerId. `expected` is what a producer that recovers believes itself to be (KIP-360). An open transaction is aborted first, with the producer
    /// fenced: the answer then is the way to PrepareAbort, and the client asks again.
    ///
    /// # Errors
    /// `ConcurrentTransactions` while a change or markers are being written, `ProducerFenced` when `expected` is not, or no longer, this producer.
    pub fn init(
        &mut self,
        now_ms: i64,
        timeout_ms: i32,
        expected: Option<Producer>,
        fresh: Option<ProducerId>,
    ) -> Result<Prepared, TransactionError> {
        if self.is_pending() {
            return Err(TransactionError::ConcurrentTransactions);
        }
        let current = &self.current;
        let is_ours = |expected: Producer| {
            current.producer_epoch == NO_PRODUCER_EPOCH
                || expected.id == current.producer_id
                // A retry of the request that changed the id, whose answer was lost.
                || (Some(expected.id) == current.previous_producer_id && expected.epoch >= LAST_EPOCH)
        };
        if !expected.is_none_or(is_ours) {
            return Err(TransactionError::ProducerFenced);
        }
        match current.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                Err(TransactionError::ConcurrentTransactions)
            }
            TransactionState::Ongoing => Ok(Prepared::Log(self.fence(now_ms))),
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort => {
                self.init_idle(now_ms, timeout_ms, expected, fresh)
            }
            // Both are passing states that no id rests in: whoever meets one is to ask again.
            TransactionState::Dead | TransactionState::PrepareEpochFence => {
                Err(TransactionError::ConcurrentTransactions)
            }
        }
    }

    fn init_idle(
        &mut self,
        now_ms: i64,
        timeout_ms: i32,
        expected: Option<Producer>,
        fresh: Option<ProducerId>,
    ) -> Result<Prepared, TransactionError> {
        let current = &self.current;
        let epoch = current.producer_epoch;
        let mut next = TransactionMetadata {
            timeout_ms,
            state: TransactionState::Empty,
            partitions: Partitions::default(),
            started_wall_ms: None,
            updated_wall_ms: now_ms,
            ..current.clone()
        };
        if current.is_epoch_exhausted() && expected.is_none_or(|expected| expected.epoch == epoch) {
            let Some(fresh) = fresh else { return Ok(Prepared::NeedsProducerId) };
            next.previous_producer_id = Some(current.producer_id);
            (next.producer_id, next.producer_epoch) = (fresh, 0);
            next.last_producer_epoch = expected.map(|_| epoch);
            return Ok(Prepared::Log(self.go(next)));
        }
        match expected {
            // A new instance: whoever had the id before is fenced for good.
            None => (next.producer_epoch, next.last_producer_epoch) = (epoch + 1, None),
            // The same instance goes on after an error.
            Some(expected) if epoch == NO_PRODUCER_EPOCH || expected.epoch == epoch => {
                next.producer_epoch = epoch + 1;
                next.last_producer_epoch = (epoch != NO_PRODUCER_EPOCH).then_some(epoch);
            }
            // It asks again, because the answer was lost: no other instance came in between, or there were no last epoch.
            Some(expected) if Some(expected.epoch) == current.last_producer_epoch => {}
            Some(_) => return Err(TransactionError::ProducerFenced),
        }
        Ok(Prepared::Log(self.go(next)))
    }

    /// AddPartitionsToTxn, AddOffsetsToTxn, or a write that adds its partition.
    ///
    /// # Errors
    /// `InvalidProducerIdMapping`, `ProducerFenced`, `ConcurrentTransactions`.
    pub fn add_partitions(
        &mut self,
        now_ms: i64,
        producer: Producer,
        partitions: &Partitions,
        version: ClientVersion,
    ) -> Result<Prepared, TransactionError> {
        self.check_producer(producer)?;
        if self.is_pending() || self.current.state.prepared().is_some() {
            return Err(TransactionError::ConcurrentTransactions);
        }
        let current = &self.current;
        let is_ongoing = current.state == TransactionState::Ongoing;
        if is_ongoing && current.partitions.includes(partitions) {
            return Ok(Prepared::Nothing(producer));
        }
        let mut next = current.clone();
        next.state = TransactionState::Ongoing;
        next.partitions.add_all(partitions);
        next.started_wall_ms = if is_ongoing { current.started_wall_ms } else { Some(now_ms) };
        next.updated_wall_ms = now_ms;
        next.client_version = version;
        Ok(Prepared::Log(self.go(next)))
    }

    /// Whether a producer may write to a partition: it was added to the open transaction before (KIP-890). A change on its way is no hindrance, since the
    /// partition itself has the last word.
    ///
    /// # Errors
    /// `InvalidProducerIdMapping`, `ProducerFenced`, `ConcurrentTransactions`, and `Abortable` for a partition that was not added.
    pub fn verify(&self, producer: Producer, topic: &str, partition: i32) -> Result<(), TransactionError> {
        self.check_producer(producer)?;
        if self.current.state.prepared().is_some() {
            return Err(TransactionError::ConcurrentTransactions);
        }
        let is_in = self.current.partitions.contains(topic, partition);
        if is_in { Ok(()) } else { Err(TransactionError::Abortable) }
    }

    fn check_producer(&self, producer: Producer) -> Result<(), TransactionError> {
        if producer.id != self.current.producer_id {
            return Err(TransactionError::InvalidProducerIdMapping);
        }
        if producer.epoch != self.current.producer_epoch {
            return Err(TransactionError::ProducerFenced);
        }
        Ok(())
    }

    /// EndTxn. A retry of a request that succeeded is answered as it was.
    ///
    /// | state | v2: abort, retried | abort | commit, retried | commit |
    /// |---|---|---|---|---|
    /// | Empty | fenced | new epoch | fenced | invalid |
    /// | CompleteAbort | as before | new epoch | invalid | invalid |
    /// | CompleteCommit | invalid | new epoch | as before | invalid |
    ///
    /// Before v2 a retry cannot be told from another request: Complete* answers its own outcome again, all else is invalid.
    ///
    /// # Errors
    /// `InvalidProducerIdMapping`, `ProducerFenced`, `ConcurrentTransactions`, `InvalidTxnState`.
    pub fn end(
        &mut self,
        now_ms: i64,
        producer: Producer,
        outcome: TxnOutcome,
        version: ClientVersion,
        fresh: Option<ProducerId>,
    ) -> Result<Prepared, TransactionError> {
        let current = &self.current;
        let epoch = current.producer_epoch;
        let bumps = version.bumps_epochs();
        let changed_id = bumps
            && Some(producer.id) == current.previous_producer_id
            && producer.id != current.producer_id
            && producer.epoch == LAST_EPOCH
            && epoch == 0;
        let is_retry = changed_id || (bumps && i32::from(epoch) == i32::from(producer.epoch) + 1);
        if producer.id != current.producer_id && !changed_id {
            return Err(TransactionError::InvalidProducerIdMapping);
        }
        let is_current = producer.epoch == epoch;
        let may = match current.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort if bumps => is_retry && !changed_id,
            TransactionState::CompleteCommit | TransactionState::CompleteAbort => is_current || is_retry,
            TransactionState::Empty
            | TransactionState::Ongoing
            | TransactionState::PrepareCommit
            | TransactionState::PrepareAbort
            | TransactionState::Dead
            | TransactionState::PrepareEpochFence => is_current,
        };
        if !may {
            return Err(TransactionError::ProducerFenced);
        }
        if self.is_pending() {
            return Err(TransactionError::ConcurrentTransactions);
        }
        match (current.state, outcome) {
            (TransactionState::Ongoing, _) => Ok(self.prepare(now_ms, outcome, version, fresh)),
            (TransactionState::PrepareCommit, TxnOutcome::Commit)
            | (TransactionState::PrepareAbort, TxnOutcome::Abort) => Err(TransactionError::ConcurrentTransactions),
            (TransactionState::CompleteCommit, TxnOutcome::Commit)
            | (TransactionState::CompleteAbort, TxnOutcome::Abort)
                if is_retry || !bumps =>
            {
                Ok(Prepared::Nothing(current.producer()))
            }
            // The client cannot know whether its writes arrived and added anything: an abort of nothing is an abort, and ends the epoch.
            (
                TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort,
                TxnOutcome::Abort,
            ) if bumps && !is_retry => Ok(self.prepare(now_ms, outcome, version, fresh)),
            (
                TransactionState::Empty
                | TransactionState::PrepareCommit
                | TransactionState::PrepareAbort
                | TransactionState::CompleteCommit
                | TransactionState::CompleteAbort
                | TransactionState::Dead
                | TransactionState::PrepareEpochFence,
                _,
            ) => Err(TransactionError::InvalidTxnState),
        }
    }

    fn prepare(
        &mut self,
        now_ms: i64,
        outcome: TxnOutcome,
        version: ClientVersion,
        fresh: Option<ProducerId>,
    ) -> Prepared {
        let current = &self.current;
        let mut next = current.clone();
        if version.bumps_epochs() {
            if current.is_epoch_exhausted() {
                let Some(fresh) = fresh else { return Prepared::NeedsProducerId };
                next.next_producer_id = Some(fresh);
            }
            next.last_producer_epoch = Some(current.producer_epoch);
            next.producer_epoch = current.producer_epoch.saturating_add(1);
        }
        Prepared::Log(self.go_prepared(next, now_ms, outcome, version))
    }

    /// Aborts the open transaction and fences its producer: a new instance takes over, or time is up. The epoch goes up by one for the fence, and under the
    /// second version by one more because the transaction ends.
    fn fence(&mut self, now_ms: i64) -> Transition {
        let version = self.current.client_version;
        let mut next = self.current.clone();
        let fenced = next.producer_epoch.saturating_add(1);
        (next.producer_epoch, next.last_producer_epoch) = match version {
            ClientVersion::V0 | ClientVersion::V1 => (fenced, None),
            ClientVersion::V2 => (fenced.saturating_add(1), Some(fenced)),
        };
        self.go_prepared(next, now_ms, TxnOutcome::Abort, version)
    }

    fn go_prepared(
        &mut self,
        mut next: TransactionMetadata,
        now_ms: i64,
        outcome: TxnOutcome,
        version: ClientVersion,
    ) -> Transition {
        // An abort of nothing begins and ends now.
        if self.current.state != TransactionState::Ongoing {
            next.started_wall_ms = Some(now_ms);
        }
        next.state = match outcome {
            TxnOutcome::Commit => TransactionState::PrepareCommit,
            TxnOutcome::Abort => TransactionState::PrepareAbort,
        };
        next.updated_wall_ms = now_ms;
        next.client_version = version;
        self.go(next)
    }

    /// The way to PrepareAbort when the open transaction has been open too long.
    pub fn time_out(&mut self, now_ms: i64) -> Option<Transition> {
        let since = self.current.started_wall_ms?;
        let is_over = since.saturating_add(i64::from(self.current.timeout_ms)) < now_ms;
        let is_due = self.current.state == TransactionState::Ongoing && !self.is_pending() && is_over;
        is_due.then(|| self.fence(now_ms))
    }

    /// The markers are durable in every partition: the way to Complete*. `None` when nothing was prepared.
    pub fn complete(&mut self, now_ms: i64) -> Option<Transition> {
        let outcome = self.current.state.prepared().filter(|_| !self.is_pending())?;
        let mut next = self.completed();
        next.updated_wall_ms = now_ms;
        next.state = match outcome {
            TxnOutcome::Commit => TransactionState::CompleteCommit,
            TxnOutcome::Abort => TransactionState::CompleteAbort,
        };
        Some(self.go(next))
    }

    /// The producer that goes on once the prepared transaction is complete: what EndTxn v5 answers.
    pub fn next_producer(&self) -> Producer {
        self.completed().producer()
    }

    fn completed(&self) -> TransactionMetadata {
        let current = &self.current;
        let mut next = TransactionMetadata { partitions: Partitions::default(), ..current.clone() };
        // Of a fence there is no next id: the next InitProducerId changes it.
        if let Some(fresh) = next.next_producer_id.take() {
            next.previous_producer_id = Some(current.producer_id);
            (next.producer_id, next.producer_epoch) = (fresh, 0);
        }
        next
    }

    /// Whether the id was idle so long that it is to be forgotten; it is busy from now on, until its tombstone is durable.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> bool {
        let current = &self.current;
        let is_idle = current.updated_wall_ms.saturating_add(expiration_ms) <= now_ms;
        let expires = is_idle && current.state.is_expiration_allowed() && !self.is_pending();
        if expires {
            self.pending = Some(TransactionState::Dead);
        }
        expires
    }

    /// The transition is durable.
    ///
    /// # Panics
    /// When it is not the one that was prepared last.
    pub fn finish(&mut self, transition: Transition) {
        assert_eq!(self.pending, Some(transition.metadata.state), "a transition was prepared before it was written");
        self.current = transition.metadata;
        self.pending = None;
    }

    /// What was prepared could not be written: all is as before.
    pub fn give_up(&mut self) {
        self.pending = None;
    }

    fn go(&mut self, next: TransactionMetadata) -> Transition {
        assert!(self.pending.is_none(), "an id has one change on its way at most");
        assert!(next.producer_epoch >= 0, "an epoch that goes into the log is not negative");
        self.pending = Some(next.state);
        Transition { metadata: next }
    }
}
