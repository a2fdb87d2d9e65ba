//! From a group's refusals to Kafka's codes.

use kafka_protocol::ResponseError;

use super::group::GroupError;
use super::group_configs::GroupConfigError;

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
        ];
        for (error, code) in table {
            assert_eq!(group_code(Some(error)), code, "{error}");
        }
        assert_eq!(group_code(None), 0);
    }
}
