//! Words of idempotent producers (KIP-98).

/// Identity of a producer, handed out by InitProducerId; -1 in a batch means "not idempotent".
pub type ProducerId = i64;
/// Bumped to fence an older incarnation of the same producer.
pub type ProducerEpoch = i16;
/// Number of a record in a producer's stream to one partition; wraps from `i32::MAX` to 0.
pub type Sequence = i32;

/// No producer id.
pub const NO_PRODUCER_ID: ProducerId = -1;

/// The sequence `count` records after `sequence`, wrapping past `i32::MAX` to 0 as Kafka does
/// (`DefaultRecordBatch.incrementSequence`).
pub fn sequence_after(sequence: Sequence, count: i32) -> Sequence {
    let wrapped = (i64::from(sequence) + i64::from(count)) % (i64::from(i32::MAX) + 1);
    i32::try_from(wrapped).expect("a remainder of 2^31 fits in i32")
}

/// How a transaction ends (`TransactionResult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxnOutcome {
    /// Its records count.
    Commit,
    /// Its records never were.
    Abort,
}

/// Epoch of the transaction coordinator that wrote a marker; -1 where none did.
pub type CoordinatorEpoch = i32;

/// No coordinator has written a marker.
pub const NO_COORDINATOR_EPOCH: CoordinatorEpoch = -1;

/// What a transaction coordinator writes into every partition of a transaction to end it there (`WriteTxnMarkers`, KIP-98).
/// [`crate::record_batch::ControlBatch`] is its form in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnMarker {
    /// Whose transaction.
    pub producer_id: ProducerId,
    /// Every lower epoch of the producer is fenced from here on. Under KIP-890 it is one above that of the records.
    pub producer_epoch: ProducerEpoch,
    /// How it ended.
    pub outcome: TxnOutcome,
    /// Epoch of the coordinator that decided.
    pub coordinator_epoch: CoordinatorEpoch,
    /// When, by the broker's clock.
    pub timestamp_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero_after_the_largest() {
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 1, 3), 1);
        assert_eq!(sequence_after(0, 5), 5);
    }
}
