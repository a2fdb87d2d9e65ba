//! What a KIP-848 group is asked, and what it answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::assignment::{Assignment, TopicCatalog};
use super::assignor::Assignor;
use crate::coordinator::group::event::Now;
use crate::coordinator::group::member::MemberId;
use crate::coordinator::group::records::consumer::{CurrentAssignment, MemberMetadata};

/// The epoch of a request that joins.
pub const JOIN_EPOCH: i32 = 0;
/// The epoch of a request that leaves.
pub const LEAVE_EPOCH: i32 = -1;
/// The epoch of a request of a static member that leaves for a while.
pub const STATIC_LEAVE_EPOCH: i32 = -2;

/// The settings that a group obeys: the broker's, where it has none of its own.
#[derive(Debug, Clone)]
pub struct ConsumerSettings {
    /// How long a member may be silent.
    pub session_timeout_ms: i32,
    /// How often members shall send heartbeats.
    pub heartbeat_interval_ms: i32,
    /// Most members.
    pub max_size: usize,
    /// The assignors on offer, the default first.
    pub assignors: Arc<[Assignor]>,
    /// Whether a classic group may become a consumer group.
    pub upgrade: bool,
    /// Whether a consumer group may become a classic one.
    pub downgrade: bool,
    /// Most members of a classic group.
    pub classic_max_size: usize,
}

impl ConsumerSettings {
    /// Whether members may ask for this assignor.
    pub fn offers(&self, name: &str) -> bool {
        self.assignors.iter().any(|assignor| assignor.name() == name)
    }

    /// The assignor of a group whose members ask for none.
    pub fn default_assignor(&self) -> Assignor {
        self.assignors.first().copied().unwrap_or(Assignor::Uniform)
    }
}

/// What surrounds an event.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// When it happens.
    pub now: Now,
    /// The topics there are.
    pub topics: &'a dyn TopicCatalog,
    /// The settings of the group.
    pub settings: &'a ConsumerSettings,
}

/// A ConsumerGroupHeartbeat request. `None` means "as before" (S-88).
#[derive(Debug, Clone)]
pub struct ConsumerHeartbeat {
    /// The member's id.
    pub member_id: MemberId,
    /// The epoch it is in; 0 to join, -1 and -2 to leave.
    pub epoch: i32,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// Its rack.
    pub rack_id: Option<Arc<str>>,
    /// How long it may take to give partitions up.
    pub rebalance_timeout_ms: Option<i32>,
    /// The topics it names.
    pub topics: Option<BTreeSet<Arc<str>>>,
    /// Its regular expression; empty for none.
    pub regex: Option<Arc<str>>,
    /// The assignor it asks for.
    pub assignor: Option<Arc<str>>,
    /// What it owns.
    pub owned: Option<Assignment>,
    /// The connection's client id.
    pub client_id: Arc<str>,
    /// The connection's address.
    pub client_host: Arc<str>,
}

impl ConsumerHeartbeat {
    /// Whether it says everything, as a client does that is not sure what the coordinator knows.
    pub(super) fn is_full(&self) -> bool {
        self.rebalance_timeout_ms.is_some() && (self.topics.is_some() || self.regex.is_some()) && self.owned.is_some()
    }
}

/// What ConsumerGroupHeartbeat is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// The member's id.
    pub member_id: MemberId,
    /// Its epoch.
    pub epoch: i32,
    /// When to send the next one; 0 to a member that leaves.
    pub heartbeat_interval_ms: i32,
    /// What it shall own; `None` when that did not change.
    pub assignment: Option<Assignment>,
}

/// Where a group is, in Kafka's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerGroupState {
    /// No members.
    Empty,
    /// The target is older than the group.
    Assigning,
    /// Members are on the way to the target.
    Reconciling,
    /// Every member has its target.
    Stable,
}

impl ConsumerGroupState {
    /// Kafka's name of it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

/// A group, in full.
#[derive(Debug, Clone)]
pub struct ConsumerGroupDescription {
    /// Where it is.
    pub state: ConsumerGroupState,
    /// Its epoch.
    pub epoch: i32,
    /// The epoch of its target.
    pub target_epoch: i32,
    /// The assignor its members ask for, or the default.
    pub assignor: Arc<str>,
    /// Its members.
    pub members: Vec<ConsumerMemberDescription>,
}

/// A member, in full.
#[derive(Debug, Clone)]
pub struct ConsumerMemberDescription {
    /// Its id.
    pub id: MemberId,
    /// What it said of itself.
    pub metadata: MemberMetadata,
    /// Where it is.
    pub current: CurrentAssignment,
    /// What it shall have.
    pub target: Arc<Assignment>,
}
