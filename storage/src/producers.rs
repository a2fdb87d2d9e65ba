//! What a partition remembers of its idempotent and transactional producers (KIP-98), as a plain state machine: Kafka's
//! `ProducerStateManager`, `ProducerAppendInfo` and `TransactionIndex`.
//!
//! The table is a function of the log: it is snapshotted with each seal and rebuilt from there by replaying the tail, so a
//! retry is recognised, and a transaction is open or ended, after a restart as before it (IDEM-1, TXN-1, S-39 to S-46).

mod aborted;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use weir_model::Offset;
use weir_model::producer::{
    CoordinatorEpoch, NO_COORDINATOR_EPOCH, ProducerEpoch, ProducerId, Sequence, TxnMarker, TxnOutcome, sequence_after,
};
use weir_model::record_batch::{AssignedBatch, BatchHeader, ControlBatch, ControlError, ControlRecord};

pub use aborted::AbortedTxn;
pub(crate) use aborted::{Decided, Deciding};

/// Batches remembered per producer: Kafka's `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`, the most that a client keeps in flight.
const REMEMBERED_BATCHES: usize = 5;

/// One batch of a producer, as far as a retry needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedBatch {
    /// Sequence of its first record.
    pub first_sequence: Sequence,
    /// Sequence of its last record.
    pub last_sequence: Sequence,
    /// Where it lies.
    pub base_offset: Offset,
    /// Its last offset.
    pub last_offset: Offset,
    /// Its max timestamp; the append time when the broker stamps batches.
    pub timestamp: i64,
}

/// One producer. The fields of transactions came later than the others: tables stored before have none of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerEntry {
    /// Its newest epoch.
    pub epoch: ProducerEpoch,
    /// Its newest batches, oldest first, at most five, all of this epoch. None when a marker brought the epoch.
    pub batches: VecDeque<RememberedBatch>,
    /// When it last wrote, or its transaction last ended, by the broker's clock.
    pub last_seen_ms: i64,
    /// Epoch of the coordinator that wrote its last marker; -1 when none did.
    #[serde(default = "no_coordinator_epoch")]
    pub coordinator_epoch: CoordinatorEpoch,
    /// First offset of its open transaction in this partition.
    #[serde(default)]
    pub current_txn_first_offset: Option<Offset>,
    /// Where its last marker lies.
    #[serde(default)]
    pub last_marker: Option<Offset>,
    /// Timestamp of that marker; -1 without one.
    #[serde(default = "no_timestamp")]
    pub last_marker_timestamp: i64,
}

fn no_coordinator_epoch() -> CoordinatorEpoch {
    NO_COORDINATOR_EPOCH
}

fn no_timestamp() -> i64 {
    -1
}

impl ProducerEntry {
    fn new(epoch: ProducerEpoch, now_ms: i64) -> Self {
        Self {
            epoch,
            batches: VecDeque::new(),
            last_seen_ms: now_ms,
            coordinator_epoch: NO_COORDINATOR_EPOCH,
            current_txn_first_offset: None,
            last_marker: None,
            last_marker_timestamp: -1,
        }
    }

    /// Sequence of its last record under its epoch.
    pub fn last_sequence(&self) -> Option<Sequence> {
        self.batches.back().map(|batch| batch.last_sequence)
    }

    /// Timestamp of what it wrote last, a batch or a marker; -1 when nothing is known.
    pub fn last_timestamp(&self) -> i64 {
        match self.batches.back() {
            Some(last) if self.last_marker.is_none_or(|marker| marker < last.base_offset) => last.timestamp,
            Some(_) | None => self.last_marker_timestamp,
        }
    }

    /// Its epoch goes up and the sequence starts anew; an open transaction goes on.
    fn raise_epoch(&mut self, epoch: ProducerEpoch) {
        if epoch != self.epoch {
            self.epoch = epoch;
            self.batches.clear();
        }
    }
}

/// A transaction that has rows here and no marker yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OngoingTxn {
    /// The newest epoch that its producer wrote with.
    pub producer_epoch: ProducerEpoch,
    /// Its first offset in this partition.
    pub first_offset: Offset,
    /// When its producer last wrote here, by the broker's clock.
    pub last_seen_ms: i64,
}

/// A transaction that a marker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTxn {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its first offset.
    pub first_offset: Offset,
    /// Offset of the marker.
    pub last_offset: Offset,
    /// How it ended.
    pub outcome: TxnOutcome,
}

/// What to do with a batch of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It continues the stream: append it.
    Append,
    /// It is already in the log: answer with where.
    Duplicate(RememberedBatch),
}

/// Why a batch of an idempotent producer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// A hole or a step back in the stream.
    #[error("sequence {got} of producer {producer_id} epoch {epoch} does not follow; {expected} is next")]
    OutOfOrder {
        /// Who.
        producer_id: ProducerId,
        /// Its epoch in the batch.
        epoch: ProducerEpoch,
        /// The batch's first sequence.
        got: Sequence,
        /// What would follow.
        expected: Sequence,
    },
    /// A newer incarnation of the producer has written already, or a marker has fenced this one.
    #[error("producer {producer_id} writes with epoch {got}; epoch {current} has taken over")]
    StaleEpoch {
        /// Who.
        producer_id: ProducerId,
        /// The batch's epoch.
        got: ProducerEpoch,
        /// The newest epoch seen.
        current: ProducerEpoch,
    },
    /// A batch outside a transaction while the producer has one open.
    #[error(
        "producer {producer_id} writes outside its transaction, which is open here since offset {first_offset}; commit or abort it first"
    )]
    OutsideTransaction {
        /// Who.
        producer_id: ProducerId,
        /// Where the open transaction begins.
        first_offset: Offset,
    },
    /// The transaction that the batch was verified for ended before the batch got its place.
    #[error("the transaction of producer {producer_id} ended while its batch was on the way")]
    TransactionEnded {
        /// Who.
        producer_id: ProducerId,
    },
}

/// Why a marker is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// A newer incarnation of the producer has written already.
    #[error("marker for epoch {got} of producer {producer_id}; epoch {current} has taken over")]
    StaleEpoch {
        /// Who.
        producer_id: ProducerId,
        /// The marker's producer epoch.
        got: ProducerEpoch,
        /// The newest epoch seen.
        current: ProducerEpoch,
    },
    /// A newer coordinator has ended a transaction of the producer already.
    #[error("marker for producer {producer_id} from coordinator epoch {got}; epoch {current} has taken over")]
    CoordinatorFenced {
        /// Whose transaction.
        producer_id: ProducerId,
        /// The marker's coordinator epoch.
        got: CoordinatorEpoch,
        /// The newest coordinator epoch seen.
        current: CoordinatorEpoch,
    },
}

/// What a batch was verified against before it was ordered (KIP-890; Kafka's `VerificationGuard`). Taken before the
/// coordinator is asked whether the partition belongs to the transaction; a marker that comes in between voids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnGuard {
    last_marker: Option<Offset>,
    from_zero: bool,
}

impl TxnGuard {
    /// Has a producer that nothing is known of begin with sequence 0, as the second version of transactions asks for (S-41).
    #[must_use]
    pub fn from_zero(self) -> Self {
        Self { from_zero: true, ..self }
    }
}

/// All producers of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredTable")]
pub struct ProducerTable {
    producers: BTreeMap<ProducerId, ProducerEntry>,
    /// Aborted transactions whose rows may still be met: they have some in the tail or in an undecided segment. By marker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aborted: Vec<AbortedTxn>,
    /// Open transactions by their first offset: those of the entries.
    #[serde(skip)]
    ongoing: BTreeMap<Offset, ProducerId>,
}

/// The table as it is stored.
#[derive(Deserialize)]
struct StoredTable {
    producers: BTreeMap<ProducerId, ProducerEntry>,
    #[serde(default)]
    aborted: Vec<AbortedTxn>,
}

impl From<StoredTable> for ProducerTable {
    fn from(stored: StoredTable) -> Self {
        let StoredTable { producers, aborted } = stored;
        let open = producers.iter().filter_map(|(id, entry)| Some((entry.current_txn_first_offset?, *id)));
        let ongoing = open.collect();
        Self { producers, aborted, ongoing }
    }
}

impl ProducerTable {
    /// Judges a batch before it gets its place. Batches without a producer id are always appended.
    ///
    /// # Errors
    /// [`SequenceError`], with Kafka's rules of `ProducerAppendInfo.appendDataBatch`.
    pub fn check(&self, header: &BatchHeader, guard: Option<&TxnGuard>) -> Result<Verdict, SequenceError> {
        if !header.is_idempotent() {
            return Ok(Verdict::Append);
        }
        let (producer_id, epoch, got) = (header.producer_id, header.producer_epoch, header.base_sequence);
        let Some(entry) = self.producers.get(&producer_id) else {
            // A producer that was never seen, or was forgotten, may start anywhere (S-41).
            return match guard {
                Some(TxnGuard { from_zero: true, .. }) if got > 0 => {
                    Err(SequenceError::OutOfOrder { producer_id, epoch, got, expected: 0 })
                }
                Some(TxnGuard { last_marker: Some(_), .. }) => Err(SequenceError::TransactionEnded { producer_id }),
                Some(_) | None => Ok(Verdict::Append),
            };
        };
        let verdict = entry.follows(header)?;
        if verdict == Verdict::Append {
            entry.check_transaction(header, guard)?;
        }
        Ok(verdict)
    }

    /// Judges a marker before it gets its place. One for a producer without an open transaction passes (S-46): it fences.
    ///
    /// # Errors
    /// [`MarkerError`], with Kafka's rules of `ProducerAppendInfo.appendEndTxnMarker`.
    pub fn check_marker(&self, marker: &TxnMarker) -> Result<(), MarkerError> {
        let producer_id = marker.producer_id;
        let Some(entry) = self.producers.get(&producer_id) else { return Ok(()) };
        let (got, current) = (marker.producer_epoch, entry.epoch);
        if got < current {
            return Err(MarkerError::StaleEpoch { producer_id, got, current });
        }
        let (got, current) = (marker.coordinator_epoch, entry.coordinator_epoch);
        if got < current {
            return Err(MarkerError::CoordinatorFenced { producer_id, got, current });
        }
        Ok(())
    }

    /// Takes note of a batch, of data or of control, that now has its place. The transaction that it ended, if it did.
    ///
    /// # Errors
    /// [`ControlError`] for a control batch that does not read; the table is as it was.
    pub fn record(&mut self, batch: &AssignedBatch, now_ms: i64) -> Result<Option<CompletedTxn>, ControlError> {
        match ControlBatch::parse(batch)? {
            Some(control) => Ok(self.record_control(&control, now_ms)),
            None => {
                self.record_data(batch.header(), now_ms);
                Ok(None)
            }
        }
    }

    fn record_data(&mut self, header: &BatchHeader, now_ms: i64) {
        if !header.is_idempotent() {
            return;
        }
        let (base_offset, last_offset) = (at(header.base_offset), at(header.last_offset()));
        let fresh = || ProducerEntry::new(header.producer_epoch, now_ms);
        let entry = self.producers.entry(header.producer_id).or_insert_with(fresh);
        entry.raise_epoch(header.producer_epoch);
        entry.last_seen_ms = now_ms;
        if header.base_sequence >= 0 {
            if entry.batches.len() == REMEMBERED_BATCHES {
                entry.batches.pop_front();
            }
            entry.batches.push_back(RememberedBatch {
                first_sequence: header.base_sequence,
                last_sequence: header.last_sequence(),
                base_offset,
                last_offset,
                timestamp: header.max_timestamp,
            });
        }
        if header.attributes.is_transactional() && entry.current_txn_first_offset.is_none() {
            entry.current_txn_first_offset = Some(base_offset);
            self.ongoing.insert(base_offset, header.producer_id);
        }
    }

    fn record_control(&mut self, control: &ControlBatch, now_ms: i64) -> Option<CompletedTxn> {
        let ControlRecord::EndTxn { outcome, coordinator_epoch } = control.record else { return None };
        let producer_id = control.producer_id;
        let fresh = || ProducerEntry::new(control.producer_epoch, now_ms);
        let entry = self.producers.entry(producer_id).or_insert_with(fresh);
        let last_offset = at(control.offset);
        entry.raise_epoch(control.producer_epoch);
        entry.last_seen_ms = now_ms;
        entry.coordinator_epoch = coordinator_epoch;
        entry.last_marker = Some(last_offset);
        entry.last_marker_timestamp = control.timestamp_ms;
        let first_offset = entry.current_txn_first_offset.take()?;
        self.ongoing.remove(&first_offset);
        if outcome == TxnOutcome::Abort {
            let last_stable = self.first_ongoing().unwrap_or(last_offset.next());
            self.aborted.push(AbortedTxn { producer_id, first_offset, last_offset, last_stable });
        }
        Some(CompletedTxn { producer_id, first_offset, last_offset, outcome })
    }

    /// First offset of the oldest open transaction.
    pub fn first_ongoing(&self) -> Option<Offset> {
        self.ongoing.first_key_value().map(|(first, _)| *first)
    }

    /// How many transactions are open.
    pub fn ongoing_count(&self) -> usize {
        self.ongoing.len()
    }

    /// A producer's open transaction.
    pub fn transaction_of(&self, producer_id: ProducerId) -> Option<OngoingTxn> {
        let entry = self.producers.get(&producer_id)?;
        let first_offset = entry.current_txn_first_offset?;
        Some(OngoingTxn { producer_epoch: entry.epoch, first_offset, last_seen_ms: entry.last_seen_ms })
    }

    /// What to take before a batch is verified.
    pub fn guard(&self, producer_id: ProducerId) -> TxnGuard {
        let last_marker = self.producers.get(&producer_id).and_then(|entry| entry.last_marker);
        TxnGuard { last_marker, from_zero: false }
    }

    /// Aborted transactions that have rows, or their marker, in `from..to`, by marker (`LogSegment.collectAbortedTxns`).
    pub(crate) fn aborted_between(&self, from: Offset, to: Offset) -> Vec<AbortedTxn> {
        let first = self.aborted.partition_point(|txn| txn.last_offset < from);
        let mut found = Vec::new();
        for txn in &self.aborted[first..] {
            if txn.first_offset < to {
                found.push(*txn);
            }
            // Whatever ended later began at or after what was the last stable offset then.
            if txn.last_stable >= to {
                break;
            }
        }
        found
    }

    /// What became of the transactions that have rows in `from..to`.
    pub(crate) fn decided(&self, from: Offset, to: Offset) -> Decided {
        let open = self.ongoing.range(..to).map(|(first, id)| (*id, *first)).collect();
        Decided::new(self.aborted_between(from, to), open)
    }

    /// Forgets aborted transactions that have nothing at or above `offset`: their rows are gone.
    pub(crate) fn forget_aborted_below(&mut self, offset: Offset) {
        let gone = self.aborted.partition_point(|txn| txn.last_offset < offset);
        self.aborted.drain(..gone);
    }

    /// Forgets producers that last wrote before `before_ms` (`producer.id.expiration.ms`), but none with an open transaction.
    pub fn expire(&mut self, before_ms: i64) {
        self.producers.retain(|_, entry| entry.last_seen_ms >= before_ms || entry.current_txn_first_offset.is_some());
    }

    /// The producers, by id.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.producers.iter().map(|(id, entry)| (*id, entry))
    }

    /// How many producers are remembered.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }
}

impl ProducerEntry {
    /// `ProducerAppendInfo.checkSequence`, and the search for a batch that is here already.
    fn follows(&self, header: &BatchHeader) -> Result<Verdict, SequenceError> {
        let (producer_id, epoch, got) = (header.producer_id, header.producer_epoch, header.base_sequence);
        if epoch < self.epoch {
            return Err(SequenceError::StaleEpoch { producer_id, got: epoch, current: self.epoch });
        }
        // A coordinator's batch has no sequence; its epoch alone is checked (Kafka's `AppendOrigin.COORDINATOR`).
        if got < 0 {
            return Ok(Verdict::Append);
        }
        if epoch == self.epoch {
            let last_sequence = header.last_sequence();
            let same = |batch: &&RememberedBatch| batch.first_sequence == got && batch.last_sequence == last_sequence;
            if let Some(known) = self.batches.iter().find(same) {
                return Ok(Verdict::Duplicate(*known));
            }
        }
        // A new epoch, be it the batch's or a marker's, starts the sequence anew.
        let last_sequence = self.last_sequence().filter(|_| epoch == self.epoch);
        let expected = last_sequence.map_or(0, |last| sequence_after(last, 1));
        if got == expected {
            Ok(Verdict::Append)
        } else {
            Err(SequenceError::OutOfOrder { producer_id, epoch, got, expected })
        }
    }

    fn check_transaction(&self, header: &BatchHeader, guard: Option<&TxnGuard>) -> Result<(), SequenceError> {
        let producer_id = header.producer_id;
        match (self.current_txn_first_offset, header.attributes.is_transactional()) {
            (Some(first_offset), false) => Err(SequenceError::OutsideTransaction { producer_id, first_offset }),
            (None, true) if guard.is_some_and(|guard| guard.last_marker != self.last_marker) => {
                Err(SequenceError::TransactionEnded { producer_id })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

fn at(offset: i64) -> Offset {
    Offset::new(offset).expect("assigned offsets are not negative")
}
