//! From domain errors to Kafka's codes: the only place that speaks both languages, one exhaustive function per enum.
//!
//! | what happened | code |
//! |---|---|
//! | the batch's bytes are damaged | CORRUPT_MESSAGE (2), which producers retry |
//! | the batch breaks the format's rules | INVALID_RECORD (87), which they do not |
//! | the disk is full or failing | KAFKA_STORAGE_ERROR (56), which they retry |

use kafka_protocol::ResponseError;
use weir_model::record_batch::BatchError;
use weir_storage::producers::{MarkerError, SequenceError};
use weir_storage::{AppendError, ReadError};

use crate::quotas::QuotaError;
use crate::scram::ScramError;
use crate::tables::Refusal;

/// The code for a batch that did not pass validation (S-26 to S-28, S-31, S-34, S-35).
#[must_use]
pub fn batch_error(error: &BatchError) -> ResponseError {
    match error {
        BatchError::Truncated { .. } | BatchError::Crc { .. } => ResponseError::CorruptMessage,
        // More than one batch breaks a rule (S-26); less than one is damage (S-27).
        BatchError::Length { stated, actual } if stated < actual => ResponseError::InvalidRecord,
        BatchError::Length { .. } => ResponseError::CorruptMessage,
        BatchError::TooLarge { .. } | BatchError::DecompressedTooLarge { .. } => ResponseError::MessageTooLarge,
        BatchError::UnknownCompression { .. } => ResponseError::UnsupportedCompressionType,
        BatchError::Magic { .. }
        | BatchError::Decompression { .. }
        | BatchError::Malformed(_)
        | BatchError::Control => ResponseError::InvalidRecord,
    }
}

/// The code for a batch that was not given a place.
#[must_use]
pub fn append_error(error: &AppendError) -> ResponseError {
    match error {
        AppendError::Closed => ResponseError::UnknownTopicOrPartition,
        AppendError::Sequence(error) => sequence_error(error),
        AppendError::Marker(error) => marker_error(error),
    }
}

/// The code for a transaction's marker that was refused.
#[must_use]
pub fn marker_error(error: &MarkerError) -> ResponseError {
    match error {
        MarkerError::StaleEpoch { .. } => ResponseError::InvalidProducerEpoch,
        MarkerError::CoordinatorFenced { .. } => ResponseError::TransactionCoordinatorFenced,
    }
}

/// The code for a producer whose numbering or transaction does not fit (S-40, S-43).
#[must_use]
pub fn sequence_error(error: &SequenceError) -> ResponseError {
    match error {
        SequenceError::OutOfOrder { .. } => ResponseError::OutOfOrderSequenceNumber,
        SequenceError::StaleEpoch { .. } => ResponseError::InvalidProducerEpoch,
        SequenceError::OutsideTransaction { .. } | SequenceError::TransactionEnded { .. } => {
            ResponseError::InvalidTxnState
        }
    }
}

/// The code for a batch that was refused before it was ordered.
#[must_use]
pub fn refusal(refusal: &Refusal) -> ResponseError {
    match refusal {
        Refusal::Empty | Refusal::KeyMissing { .. } | Refusal::KeyNotText { .. } | Refusal::Rows { .. } => {
            ResponseError::InvalidRecord
        }
        Refusal::Batch(error) => batch_error(error),
        Refusal::ZstdTooOld { .. } => ResponseError::UnsupportedCompressionType,
        Refusal::Timestamps { .. } => ResponseError::InvalidTimestamp,
    }
}

/// The code for rows that could not be read. `version` is Fetch's: from 13 on topics go by id.
#[must_use]
pub fn read_error(error: &ReadError, version: i16) -> ResponseError {
    match error {
        ReadError::OffsetOutOfRange { .. } => ResponseError::OffsetOutOfRange,
        ReadError::Closed if version >= 13 => ResponseError::UnknownTopicId,
        ReadError::Closed => ResponseError::UnknownTopicOrPartition,
        ReadError::Segment(_) | ReadError::Rows { .. } | ReadError::Cold(_) | ReadError::NoLake { .. } => {
            ResponseError::KafkaStorageError
        }
        // Retriable, with a metadata refresh: by then the broker is back or gone.
        ReadError::Stopping => ResponseError::NotLeaderOrFollower,
    }
}

/// The code for a client quota that was not changed.
#[must_use]
pub fn quota_error(error: &QuotaError) -> ResponseError {
    match error {
        QuotaError::Entity(_) | QuotaError::UnknownKey(_) | QuotaError::NotBuilt(_) | QuotaError::Value { .. } => {
            ResponseError::InvalidRequest
        }
        QuotaError::Store(_) => ResponseError::UnknownServerError,
    }
}

/// The code for SCRAM credentials that were not changed.
#[must_use]
pub fn scram_error(error: &ScramError) -> ResponseError {
    match error {
        ScramError::NoName | ScramError::TooFewIterations | ScramError::TooManyIterations => {
            ResponseError::UnacceptableCredential
        }
        ScramError::UnknownMechanism => ResponseError::UnsupportedSaslMechanism,
        ScramError::Twice => ResponseError::DuplicateResource,
        ScramError::NotThere => ResponseError::ResourceNotFound,
        ScramError::Store(_) => ResponseError::UnknownServerError,
    }
}

/// Checks the epoch that a client believes in; -1 stands for "none" (S-23, S-51).
///
/// # Errors
/// `FENCED_LEADER_EPOCH` for an older one, `UNKNOWN_LEADER_EPOCH` for one that is still to come.
pub fn check_leader_epoch(asked: i32, current: i32) -> Result<(), ResponseError> {
    match asked {
        ..0 => Ok(()),
        _ if asked < current => Err(ResponseError::FencedLeaderEpoch),
        _ if asked > current => Err(ResponseError::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_retried_and_broken_rules_are_not() {
        let cases = [
            (BatchError::Crc { stored: 1, computed: 2 }, ResponseError::CorruptMessage, true),
            (BatchError::Length { stated: 10, actual: 5 }, ResponseError::CorruptMessage, true),
            (BatchError::Length { stated: 5, actual: 10 }, ResponseError::InvalidRecord, false),
            (BatchError::Malformed("x"), ResponseError::InvalidRecord, false),
            (BatchError::Magic { magic: 1 }, ResponseError::InvalidRecord, false),
            (BatchError::Control, ResponseError::InvalidRecord, false),
            (BatchError::TooLarge { size: 2, limit: 1 }, ResponseError::MessageTooLarge, false),
            (BatchError::UnknownCompression { code: 7 }, ResponseError::UnsupportedCompressionType, false),
        ];
        for (error, code, retriable) in cases {
            assert_eq!(batch_error(&error), code, "{error}");
            assert_eq!(code.is_retriable(), retriable, "{error}");
        }
    }

    #[test]
    fn leader_epochs_are_checked_only_when_given() {
        assert_eq!(check_leader_epoch(-1, 0), Ok(()));
        assert_eq!(check_leader_epoch(0, 0), Ok(()));
        assert_eq!(check_leader_epoch(1, 0), Err(ResponseError::UnknownLeaderEpoch));
        assert_eq!(check_leader_epoch(1, 2), Err(ResponseError::FencedLeaderEpoch));
    }
}
