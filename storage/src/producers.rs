//! What a partition remembers of its idempotent producers (KIP-98), as a plain state machine.
//!
//! The table is a function of the log: it is snapshotted with each seal and rebuilt from there by replaying the tail, so a
//! retry is recognised after a restart as before it (IDEM-1, S-39 to S-42).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use weir_model::Offset;
use weir_model::producer::{ProducerEpoch, ProducerId, Sequence, sequence_after};
use weir_model::record_batch::BatchHeader;

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

/// One producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerEntry {
    /// Its newest epoch.
    pub epoch: ProducerEpoch,
    /// Its newest batches, oldest first, at most five, all of this epoch.
    pub batches: VecDeque<RememberedBatch>,
    /// When it last wrote, by the broker's clock.
    pub last_seen_ms: i64,
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
    /// A newer incarnation of the producer has written already.
    #[error("producer {producer_id} writes with epoch {got}; epoch {current} has taken over")]
    StaleEpoch {
        /// Who.
        producer_id: ProducerId,
        /// The batch's epoch.
        got: ProducerEpoch,
        /// The newest epoch seen.
        current: ProducerEpoch,
    },
}

/// All producers of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerTable {
    producers: BTreeMap<ProducerId, ProducerEntry>,
}

impl ProducerTable {
    /// Judges a batch before it gets its place. Batches without a producer id are always appended.
    ///
    /// # Errors
    /// [`SequenceError`], with Kafka's rules of `ProducerAppendInfo.checkSequence`.
    pub fn check(&self, header: &BatchHeader) -> Result<Verdict, SequenceError> {
        if !header.is_idempotent() {
            return Ok(Verdict::Append);
        }
        // A producer that was never seen, or was forgotten, may start anywhere (S-41).
        let Some(entry) = self.producers.get(&header.producer_id) else { return Ok(Verdict::Append) };
        let (producer_id, epoch) = (header.producer_id, header.producer_epoch);
        if epoch < entry.epoch {
            return Err(SequenceError::StaleEpoch { producer_id, got: epoch, current: entry.epoch });
        }
        let got = header.base_sequence;
        if epoch > entry.epoch {
            return if got == 0 {
                Ok(Verdict::Append)
            } else {
                Err(SequenceError::OutOfOrder { producer_id, epoch, got, expected: 0 })
            };
        }
        let last_sequence = header.last_sequence();
        if let Some(known) =
            entry.batches.iter().find(|batch| batch.first_sequence == got && batch.last_sequence == last_sequence)
        {
            return Ok(Verdict::Duplicate(*known));
        }
        let Some(last) = entry.batches.back() else { return Ok(Verdict::Append) };
        let expected = sequence_after(last.last_sequence, 1);
        if got == expected {
            Ok(Verdict::Append)
        } else {
            Err(SequenceError::OutOfOrder { producer_id, epoch, got, expected })
        }
    }

    /// Takes note of a batch that now has its place.
    pub fn record(&mut self, header: &BatchHeader, now_ms: i64) {
        if !header.is_idempotent() || header.attributes.is_control() {
            return;
        }
        let entry = self.producers.entry(header.producer_id).or_insert_with(|| ProducerEntry {
            epoch: header.producer_epoch,
            batches: VecDeque::new(),
            last_seen_ms: now_ms,
        });
        if header.producer_epoch != entry.epoch {
            entry.epoch = header.producer_epoch;
            entry.batches.clear();
        }
        entry.last_seen_ms = now_ms;
        if entry.batches.len() == REMEMBERED_BATCHES {
            entry.batches.pop_front();
        }
        let offset = |value| Offset::new(value).expect("assigned offsets are not negative");
        entry.batches.push_back(RememberedBatch {
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            base_offset: offset(header.base_offset),
            last_offset: offset(header.last_offset()),
            timestamp: header.max_timestamp,
        });
    }

    /// Forgets producers that last wrote before `before_ms` (`producer.id.expiration.ms`).
    pub fn expire(&mut self, before_ms: i64) {
        self.producers.retain(|_, entry| entry.last_seen_ms >= before_ms);
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

#[cfg(test)]
mod tests {
    use weir_model::TimestampType;
    use weir_model::record_batch::{Attributes, Compression};

    use super::*;

    fn batch(epoch: i16, first: i32, count: i32, base_offset: i64) -> BatchHeader {
        BatchHeader {
            base_offset,
            batch_length: 100,
            leader_epoch: 0,
            magic: 2,
            crc: 0,
            attributes: Attributes::of(Compression::None, TimestampType::CreateTime),
            last_offset_delta: count - 1,
            base_timestamp: 0,
            max_timestamp: 9,
            producer_id: 7,
            producer_epoch: epoch,
            base_sequence: first,
            record_count: count,
        }
    }

    fn table_with(batches: &[BatchHeader]) -> ProducerTable {
        let mut table = ProducerTable::default();
        for header in batches {
            table.record(header, 1);
        }
        table
    }

    #[test]
    fn a_retry_of_any_of_the_last_five_batches_is_answered_with_its_offset() {
        let table = table_with(&(0..6).map(|n| batch(0, n * 2, 2, i64::from(n) * 2)).collect::<Vec<_>>());
        assert!(matches!(table.check(&batch(0, 0, 2, 0)), Err(SequenceError::OutOfOrder { expected: 12, .. })));
        for n in 1..6 {
            let Ok(Verdict::Duplicate(known)) = table.check(&batch(0, n * 2, 2, 0)) else {
                panic!("batch {n} forgotten")
            };
            assert_eq!(known.base_offset.get(), i64::from(n) * 2);
        }
        assert_eq!(table.check(&batch(0, 12, 1, 0)), Ok(Verdict::Append));
    }

    #[test]
    fn a_hole_in_the_sequence_is_refused() {
        let table = table_with(&[batch(0, 0, 3, 0)]);
        assert_eq!(
            table.check(&batch(0, 4, 1, 0)),
            Err(SequenceError::OutOfOrder { producer_id: 7, epoch: 0, got: 4, expected: 3 })
        );
    }

    #[test]
    fn a_newer_epoch_starts_at_zero_and_fences_the_older() {
        let mut table = table_with(&[batch(0, 0, 3, 0)]);
        assert!(matches!(table.check(&batch(1, 3, 1, 0)), Err(SequenceError::OutOfOrder { expected: 0, .. })));
        assert_eq!(table.check(&batch(1, 0, 1, 0)), Ok(Verdict::Append));
        table.record(&batch(1, 0, 1, 3), 2);
        assert!(matches!(table.check(&batch(0, 3, 1, 0)), Err(SequenceError::StaleEpoch { got: 0, current: 1, .. })));
    }

    #[test]
    fn sequences_wrap_from_the_largest_to_zero() {
        let table = table_with(&[batch(0, i32::MAX - 1, 2, 0)]);
        assert_eq!(table.check(&batch(0, 0, 1, 0)), Ok(Verdict::Append));
    }

    #[test]
    fn a_forgotten_producer_may_continue_anywhere() {
        let mut table = table_with(&[batch(3, 0, 3, 0)]);
        table.expire(2);
        assert!(table.is_empty());
        assert_eq!(table.check(&batch(3, 17, 1, 0)), Ok(Verdict::Append));
    }
}
