//! A group of either protocol, as far as the two are asked the same.

use std::sync::Arc;

use crate::coordinator::group::consumer::ConsumerGroup;
use crate::coordinator::group::event::GroupError;
use crate::coordinator::group::machine::{Group, GroupState};
use crate::coordinator::group::offsets::CommittedOffset;

/// See the module.
pub(super) enum Kind {
    /// The members elect a leader, which assigns.
    Classic(Group),
    /// The coordinator assigns (KIP-848).
    Consumer(Box<ConsumerGroup>),
}

impl Kind {
    /// When its next timer is due, in elapsed time.
    pub(super) fn deadline(&self) -> Option<i64> {
        match self {
            Self::Classic(group) => group.deadline(),
            Self::Consumer(group) => group.deadline(),
        }
    }

    /// Whether live members subscribe to `topic`.
    pub(super) fn subscribes_to(&self, topic: &str) -> bool {
        match self {
            Self::Classic(group) => group.subscribes_to(topic),
            Self::Consumer(group) => group.subscribes_to(topic),
        }
    }

    /// Nobody is in it, nobody is about to be.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_idle(),
            Self::Consumer(group) => group.is_empty(),
        }
    }

    /// Whether nothing was ever written about its members.
    pub(super) fn left_no_trace(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_idle() && group.generation() == 0,
            Self::Consumer(group) => group.is_empty() && group.epoch() == 0,
        }
    }

    /// Whether it may be deleted.
    ///
    /// # Errors
    /// `NonEmptyGroup` when it has members, `GroupIdNotFound` when it is being deleted already.
    pub(super) fn check_delete(&self) -> Result<(), GroupError> {
        match self {
            Self::Classic(group) => match group.state() {
                GroupState::Empty => Ok(()),
                GroupState::Dead => Err(GroupError::GroupIdNotFound),
                GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                    Err(GroupError::NonEmptyGroup)
                }
            },
            Self::Consumer(group) if group.is_empty() => Ok(()),
            Self::Consumer(_) => Err(GroupError::NonEmptyGroup),
        }
    }

    /// Whether offsets of topics that it does not subscribe to may be deleted.
    ///
    /// # Errors
    /// `NonEmptyGroup` for members whose subscriptions cannot be known, `GroupIdNotFound` when it is being deleted.
    pub(super) fn check_delete_offsets(&self) -> Result<(), GroupError> {
        let Self::Classic(group) = self else { return Ok(()) };
        let consumers = group.protocol_type().is_some_and(|kind| &**kind == "consumer");
        match group.state() {
            GroupState::Dead => Err(GroupError::GroupIdNotFound),
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable if !consumers => {
                Err(GroupError::NonEmptyGroup)
            }
            GroupState::Empty
            | GroupState::PreparingRebalance
            | GroupState::CompletingRebalance
            | GroupState::Stable => Ok(()),
        }
    }

    /// Since when an offset of `topic` counts as unused, in wall-clock time; `None` while it is used (S-85).
    pub(super) fn unused_since(&self, topic: &str, committed: &CommittedOffset) -> Option<i64> {
        let group = match self {
            Self::Classic(group) => group,
            // The age of the commit alone counts (Kafka's `ConsumerGroup.offsetExpirationCondition`).
            Self::Consumer(group) => return (!group.subscribes_to(topic)).then_some(committed.commit_wall_ms),
        };
        match (group.protocol_type(), group.state()) {
            // Only commits, never members: the age of the commit counts.
            (None, _) => Some(committed.commit_wall_ms),
            (Some(_), GroupState::Empty) => {
                Some(group.state_since_wall_ms().unwrap_or(committed.commit_wall_ms).max(committed.commit_wall_ms))
            }
            // A live consumer may have dropped a topic from its subscription.
            (Some(kind), GroupState::Stable) if &**kind == "consumer" && !group.subscribes_to(topic) => {
                Some(committed.commit_wall_ms)
            }
            (Some(_), _) => None,
        }
    }

    /// What its members call their protocol.
    pub(super) fn protocol_type(&self) -> Option<Arc<str>> {
        match self {
            Self::Classic(group) => group.protocol_type().cloned(),
            Self::Consumer(_) => Some(Arc::from("consumer")),
        }
    }

    /// Kafka's name of the state it is in.
    pub(super) fn state_name(&self) -> &'static str {
        match self {
            Self::Classic(group) => group.state().as_str(),
            Self::Consumer(group) => group.state().as_str(),
        }
    }

    /// Kafka's name of its type (KIP-848).
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Classic(_) => "classic",
            Self::Consumer(_) => "consumer",
        }
    }
}
