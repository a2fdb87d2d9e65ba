//! Control batches: the markers that end transactions (KIP-98), and what stands for a gap at the end of an answer.
//!
//! ```text
//! key    version i16 = 0 | type i16: 0 abort, 1 commit
//! value  version i16 = 0 | coordinator epoch i32
//! ```
//! As Kafka's `ControlRecordType` and `EndTransactionMarker` have them. A control batch has one record, takes one offset, has
//! no sequence, and is never shown to an application.

use bytes::Bytes;

use super::{AssignedBatch, BatchBuilder, BatchError, Compression, HEADER_SIZE, RecordIter};
use crate::TimestampType;
use crate::producer::{CoordinatorEpoch, NO_COORDINATOR_EPOCH, NO_PRODUCER_ID, TxnMarker, TxnOutcome};

/// Size of a marker's batch in bytes: the header, and a record of 17 bytes.
pub const MARKER_BATCH_BYTES: usize = HEADER_SIZE + 17;

const CURRENT_VERSION: i16 = 0;
const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// What the record of a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    /// The producer's transaction ends here.
    EndTxn {
        /// How.
        outcome: TxnOutcome,
        /// Epoch of the coordinator that decided.
        coordinator_epoch: CoordinatorEpoch,
    },
    /// A type that belongs to Kafka's own quorum, or to a later version: skipped by readers.
    Other {
        /// Its number.
        record_type: i16,
    },
}

/// Why a control batch does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// It is no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Its record is not a control record.
    #[error("control batch at offset {base_offset} is malformed: {what}")]
    Malformed {
        /// Where.
        base_offset: i64,
        /// What is wrong.
        what: &'static str,
    },
}

/// A control batch at its place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlBatch {
    /// Its offset; it has but one.
    pub offset: i64,
    /// Whose transaction; -1 for what stands for a gap.
    pub producer_id: i64,
    /// The producer's epoch from here on.
    pub producer_epoch: i16,
    /// What it says.
    pub record: ControlRecord,
    /// When it was written.
    pub timestamp_ms: i64,
}

impl ControlBatch {
    /// The batch of a marker, [`MARKER_BATCH_BYTES`] long, at its place in the log.
    pub fn of_marker(marker: &TxnMarker, offset: i64, leader_epoch: i32) -> AssignedBatch {
        let bytes = end_txn_batch(
            offset,
            leader_epoch,
            (marker.producer_id, marker.producer_epoch),
            (marker.outcome, marker.coordinator_epoch),
            marker.timestamp_ms,
        );
        AssignedBatch::from_stored(bytes, false).expect("the batch was just built")
    }

    /// Reads a control batch; `None` for a batch of data.
    ///
    /// # Errors
    /// [`ControlError`] when it claims to be one and is not.
    pub fn parse(batch: &AssignedBatch) -> Result<Option<Self>, ControlError> {
        let header = batch.header();
        if !header.attributes.is_control() {
            return Ok(None);
        }
        let malformed = |what| ControlError::Malformed { base_offset: header.base_offset, what };
        // A control batch is small and uncompressed.
        let records = batch.records(1 << 20)?;
        let record = RecordIter::new(&records, header.record_count).next().ok_or(malformed("it has no record"))??;
        let key = record.key.ok_or(malformed("its record has no key"))?;
        let [_, _, type_high, type_low, ..] = *key else { return Err(malformed("its key is shorter than 4 bytes")) };
        let record = match i16::from_be_bytes([type_high, type_low]) {
            ABORT => ControlRecord::EndTxn { outcome: TxnOutcome::Abort, coordinator_epoch: epoch_of(record.value) },
            COMMIT => ControlRecord::EndTxn { outcome: TxnOutcome::Commit, coordinator_epoch: epoch_of(record.value) },
            record_type => ControlRecord::Other { record_type },
        };
        Ok(Some(Self {
            offset: header.base_offset,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            record,
            timestamp_ms: header.max_timestamp,
        }))
    }
}

/// A value too short for an epoch has none; later versions append fields (`EndTransactionMarker.deserializeValue`).
fn epoch_of(value: Option<&[u8]>) -> CoordinatorEpoch {
    match value {
        Some([_, _, epoch @ ..]) => {
            epoch.first_chunk().map_or(NO_COORDINATOR_EPOCH, |bytes| i32::from_be_bytes(*bytes))
        }
        Some(_) | None => NO_COORDINATOR_EPOCH,
    }
}

/// A batch that tells a reader that the log has nothing up to and including `last_offset`: a control batch of nobody. Every
/// client moves on past a control batch and shows it to nobody, where some stop at a batch without records. So an answer
/// whose last offsets were aborted, or were a marker, still brings a consumer to the end of the log (S-54).
pub fn gap_batch(last_offset: i64, leader_epoch: i32) -> Bytes {
    end_txn_batch(last_offset, leader_epoch, (NO_PRODUCER_ID, -1), (TxnOutcome::Commit, NO_COORDINATOR_EPOCH), -1)
}

fn end_txn_batch(
    offset: i64,
    leader_epoch: i32,
    (producer_id, producer_epoch): (i64, i16),
    (outcome, coordinator_epoch): (TxnOutcome, CoordinatorEpoch),
    timestamp_ms: i64,
) -> Bytes {
    let record_type = match outcome {
        TxnOutcome::Abort => ABORT,
        TxnOutcome::Commit => COMMIT,
    };
    let mut key = [0; 4];
    key[..2].copy_from_slice(&CURRENT_VERSION.to_be_bytes());
    key[2..].copy_from_slice(&record_type.to_be_bytes());
    let mut value = [0; 6];
    value[..2].copy_from_slice(&CURRENT_VERSION.to_be_bytes());
    value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
    let builder = BatchBuilder::new(offset, Compression::None, TimestampType::CreateTime);
    let mut builder = builder.leader_epoch(leader_epoch).control(producer_id, producer_epoch);
    builder.push(offset, timestamp_ms, Some(&key), Some(&value), None);
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_batch::{BatchLimits, ValidBatch};

    const MARKER: TxnMarker = TxnMarker {
        producer_id: 4711,
        producer_epoch: 3,
        outcome: TxnOutcome::Abort,
        coordinator_epoch: 9,
        timestamp_ms: 1_700_000_000_000,
    };

    #[test]
    fn a_marker_reads_back_and_is_as_long_as_kafkas() {
        for outcome in [TxnOutcome::Abort, TxnOutcome::Commit] {
            let marker = TxnMarker { outcome, ..MARKER };
            let batch = ControlBatch::of_marker(&marker, 17, 2);
            assert_eq!(batch.size(), MARKER_BATCH_BYTES);
            assert_eq!(batch.size(), 78, "Kafka's DumpLogSegments shows 78 bytes for a marker");
            let header = batch.header();
            assert!(header.attributes.is_control() && header.attributes.is_transactional());
            assert_eq!((header.base_sequence, header.leader_epoch, header.record_count), (-1, 2, 1));
            AssignedBatch::from_stored(batch.to_bytes(), true).expect("its CRC holds");
            let read = ControlBatch::parse(&batch).expect("parses").expect("a control batch");
            assert_eq!((read.offset, read.producer_id, read.producer_epoch), (17, 4711, 3));
            assert_eq!(read.record, ControlRecord::EndTxn { outcome, coordinator_epoch: 9 });
        }
    }

    /// Key and value byte by byte, as `ControlRecordType.recordKey` and `EndTransactionMarker.serializeValue` write them.
    #[test]
    fn the_record_has_kafkas_bytes() {
        let batch = ControlBatch::of_marker(&MARKER, 0, 0);
        let records = batch.records(100).expect("uncompressed");
        let record = RecordIter::new(&records, 1).next().expect("one").expect("framed");
        assert_eq!(record.key, Some(&[0, 0, 0, 0][..]));
        assert_eq!(record.value, Some(&[0, 0, 0, 0, 0, 9][..]));
        assert_eq!(record.header_count(), 0);
    }

    #[test]
    fn data_is_no_control_batch_and_a_short_key_is_an_error() {
        let mut data = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
        data.push(0, 0, Some(b"k"), None, None);
        let data = AssignedBatch::from_stored(data.finish(), true).expect("a batch");
        assert_eq!(ControlBatch::parse(&data), Ok(None));
        let builder = BatchBuilder::new(5, Compression::None, TimestampType::CreateTime);
        let mut builder = builder.control(1, 0);
        builder.push(5, 0, Some(&[0, 0]), None, None);
        let short = AssignedBatch::from_stored(builder.finish(), true).expect("a batch");
        assert!(matches!(ControlBatch::parse(&short), Err(ControlError::Malformed { base_offset: 5, .. })));
    }

    #[test]
    fn a_gap_is_a_control_batch_of_nobody_at_its_last_offset() {
        let batch = AssignedBatch::from_stored(gap_batch(41, 0), true).expect("its CRC holds");
        let read = ControlBatch::parse(&batch).expect("parses").expect("a control batch");
        assert_eq!((read.offset, read.producer_id, batch.header().last_offset()), (41, -1, 41));
    }

    #[test]
    fn only_the_broker_writes_into_a_transaction_without_a_sequence() {
        let build = |sequence| {
            let builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
            let mut builder = builder.transactional(7, 0, sequence);
            builder.push(0, 8, None, Some(b"v"), None);
            builder.finish()
        };
        let limits = BatchLimits { max_bytes: 1000, max_decompressed_bytes: 1000 };
        assert!(ValidBatch::validate(build(0), &limits).is_ok());
        assert!(ValidBatch::validate(build(-1), &limits).is_err());
        assert!(ValidBatch::validate_internal(build(-1), &limits).is_ok());
    }

    #[test]
    fn a_committed_batch_loses_only_its_transactional_bit() {
        let mut builder = BatchBuilder::new(3, Compression::None, TimestampType::CreateTime).transactional(7, 0, 5);
        builder.push(3, 8, Some(b"k"), Some(b"v"), None);
        let batch = AssignedBatch::from_stored(builder.finish(), true).expect("a batch");
        assert!(batch.header().attributes.is_transactional());
        let decided = batch.clone().decided();
        assert!(!decided.header().attributes.is_transactional());
        let read = AssignedBatch::from_stored(decided.to_bytes(), true).expect("its CRC holds");
        assert_eq!(read.records(100), batch.records(100));
        assert_eq!(read.header().base_offset, 3);
    }
}
