//! From the refusals of groups and transactions to Kafka's codes.

use kafka_protocol::ResponseError;

use super::group::GroupError;
use super::group_configs::GroupConfigError;
use super::transaction::TransactionError;

/// The code of a refusal.
pub fn group_error(error: GroupError) -> ResponseError {
    match error {
        GroupError::InvalidGroupId => ResponseError::InvalidGroupId,
        GroupError::InvalidSessionTimeout => ResponseError::InvalidSessionTimeout,
        GroupError::UnknownMember => ResponseError::UnknownMemberId,
        GroupError::IllegalGeneration => ResponseError::IllegalGeneration,
        GroupError::RebalanceInProgress => ResponseError::RebalanceInProgress,
        GroupError::InconsistentProtocol => ResponseError::InconsistentGroupProtocol,
        GroupError::MemberIdRequired => ResponseError::MemberIdRequired,
        GroupError::FencedInstanceId => ResponseError::FencedInstanceId,
        GroupError::GroupMaxSizeReached => ResponseError::GroupMaxSizeReached,
        GroupError::CoordinatorNotAvailable => ResponseError::CoordinatorNotAvailable,
        GroupError::NotCoordinator => ResponseError::NotCoordinator,
        GroupError::GroupIdNotFound => ResponseError::GroupIdNotFound,
        GroupError::NonEmptyGroup => ResponseError::NonEmptyGroup,
        GroupError::SubscribedToTopic => ResponseError::GroupSubscribedToTopic,
        GroupError::OffsetMetadataTooLarge => ResponseError::OffsetMetadataTooLarge,
        GroupError::UnknownTopicOrPartition => ResponseError::UnknownTopicOrPartition,
        GroupError::UnknownTopicId => ResponseError::UnknownTopicId,
        GroupError::FencedMemberEpoch => ResponseError::FencedMemberEpoch,
        GroupError::StaleMemberEpoch => ResponseError::StaleMemberEpoch,
        GroupError::UnreleasedInstanceId => ResponseError::UnreleasedInstanceId,
        GroupError::UnsupportedAssignor => ResponseError::UnsupportedAssignor,
        GroupError::InvalidRegularExpression => ResponseError::InvalidRegularExpression,
        GroupError::UnsupportedVersion => ResponseError::UnsupportedVersion,
        GroupError::UnstableOffsetCommit => ResponseError::UnstableOffsetCommit,
        GroupError::InvalidProducerEpoch => ResponseError::InvalidProducerEpoch,
        GroupError::InvalidTxnState => ResponseError::InvalidTxnState,
    }
}

/// The code of a group config that is not changed.
pub fn group_config_error(error: &GroupConfigError) -> ResponseError {
    match error {
        GroupConfigError::NoGroup | GroupConfigError::Duplicate(_) => ResponseError::InvalidRequest,
        GroupConfigError::NotAList(_) | GroupConfigError::TooMany | GroupConfigError::Config(_) => {
            ResponseError::InvalidConfig
        }
        GroupConfigError::Store(_) | GroupConfigError::Stored(_) => ResponseError::KafkaStorageError,
    }
}

/// The code of a refusal of a transaction, to a request that knows every code.
pub fn transaction_error(error: TransactionError) -> ResponseError {
    match error {
        TransactionError::InvalidRequest => ResponseError::InvalidRequest,
        TransactionError::InvalidTimeout => ResponseError::InvalidTransactionTimeout,
        TransactionError::InvalidProducerIdMapping => ResponseError::InvalidProducerIdMapping,
        TransactionError::ProducerFenced => ResponseError::ProducerFenced,
        TransactionError::ConcurrentTransactions => ResponseError::ConcurrentTransactions,
        TransactionError::InvalidTxnState => ResponseError::InvalidTxnState,
        TransactionError::Abortable => ResponseError::TransactionAbortable,
        TransactionError::TransactionalIdNotFound => ResponseError::TransactionalIdNotFound,
        // The one code that every client takes as final, with a sentence that says why it is refused.
        TransactionError::TooManyIds => ResponseError::PolicyViolation,
        TransactionError::LoadInProgress => ResponseError::CoordinatorLoadInProgress,
        TransactionError::NotAvailable => ResponseError::CoordinatorNotAvailable,
        TransactionError::NotCoordinator => ResponseError::NotCoordinator,
    }
}

/// As [`transaction_error`], for a version that is older than PRODUCER_FENCED (KIP-588).
pub fn transaction_error_before_fenced(error: TransactionError) -> ResponseError {
    match transaction_error(error) {
        ResponseError::ProducerFenced => ResponseError::InvalidProducerEpoch,
        code => code,
    }
}

/// What a write is answered whose transaction could not be verified (KIP-890). `knows_abortable`: the version has TRANSACTION_ABORTABLE; `adds`: it adds its
/// partition to the transaction, so its client knows how to wait for the end of the one before. Kafka's `AddPartitionsToTxnManager` and `ReplicaManager`.
pub fn verification_error(error: TransactionError, knows_abortable: bool, adds: bool) -> ResponseError {
    match transaction_error(error) {
        // Producers expect that one here.
        ResponseError::ProducerFenced => ResponseError::InvalidProducerEpoch,
        ResponseError::TransactionAbortable if !knows_abortable => ResponseError::InvalidTxnState,
        // Older clients know none of these where they write, but try again after NOT_ENOUGH_REPLICAS, without asking for metadata.
        ResponseError::ConcurrentTransactions if !adds => ResponseError::NotEnoughReplicas,
        ResponseError::CoordinatorLoadInProgress
        | ResponseError::CoordinatorNotAvailable
        | ResponseError::NotCoordinator => ResponseError::NotEnoughReplicas,
        code => code,
    }
}

/// The code of an optional refusal; 0 for none.
pub fn group_code(error: Option<GroupError>) -> i16 {
    error.map_or(0, |error| group_error(error).code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_kafkas() {
        let table = [
            (GroupError::CoordinatorNotAvailable, 15),
            (GroupError::NotCoordinator, 16),
            (GroupError::UnknownTopicOrPartition, 3),
            (GroupError::OffsetMetadataTooLarge, 12),
            (GroupError::IllegalGeneration, 22),
            (GroupError::InconsistentProtocol, 23),
            (GroupError::InvalidGroupId, 24),
            (GroupError::UnknownMember, 25),
            (GroupError::InvalidSessionTimeout, 26),
            (GroupError::RebalanceInProgress, 27),
            (GroupError::NonEmptyGroup, 68),
            (GroupError::GroupIdNotFound, 69),
            (GroupError::MemberIdRequired, 79),
            (GroupError::GroupMaxSizeReached, 81),
            (GroupError::FencedInstanceId, 82),
            (GroupError::SubscribedToTopic, 86),
            (GroupError::UnknownTopicId, 100),
            (GroupError::FencedMemberEpoch, 110),
            (GroupError::UnreleasedInstanceId, 111),
            (GroupError::UnsupportedAssignor, 112),
            (GroupError::StaleMemberEpoch, 113),
            (GroupError::InvalidRegularExpression, 128),
            (GroupError::UnsupportedVersion, 35),
            (GroupError::InvalidProducerEpoch, 47),
            (GroupError::InvalidTxnState, 48),
            (GroupError::UnstableOffsetCommit, 88),
        ];
        for (error, code) in table {
            assert_eq!(group_code(Some(error)), code, "{error}");
        }
        assert_eq!(group_code(None), 0);
    }

    #[test]
    fn codes_of_transactions_are_kafkas() {
        let table = [
            (TransactionError::LoadInProgress, 14),
            (TransactionError::NotAvailable, 15),
            (TransactionError::NotCoordinator, 16),
            (TransactionError::InvalidRequest, 42),
            (TransactionError::TooManyIds, 44),
            (TransactionError::InvalidTxnState, 48),
            (TransactionError::InvalidProducerIdMapping, 49),
            (TransactionError::InvalidTimeout, 50),
            (TransactionError::ConcurrentTransactions, 51),
            (TransactionError::ProducerFenced, 90),
            (TransactionError::TransactionalIdNotFound, 105),
            (TransactionError::Abortable, 120),
        ];
        for (error, code) in table {
            assert_eq!(transaction_error(error).code(), code, "{error}");
            let before = if code == 90 { 47 } else { code };
            assert_eq!(transaction_error_before_fenced(error).code(), before, "{error}");
        }
    }

    #[test]
    fn s43_writes_that_cannot_be_verified_are_answered_with_what_their_clients_know() {
        let table = [
            (TransactionError::ProducerFenced, [47, 47, 47]),
            (TransactionError::Abortable, [48, 120, 120]),
            (TransactionError::ConcurrentTransactions, [19, 19, 51]),
            (TransactionError::LoadInProgress, [19, 19, 19]),
            (TransactionError::InvalidProducerIdMapping, [49, 49, 49]),
        ];
        for (error, codes) in table {
            let answered = [(false, false), (true, false), (true, true)];
            let answered = answered.map(|(abortable, adds)| verification_error(error, abortable, adds).code());
            assert_eq!(answered, codes, "{error}");
        }
    }
}
