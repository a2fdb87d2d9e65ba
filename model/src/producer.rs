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
