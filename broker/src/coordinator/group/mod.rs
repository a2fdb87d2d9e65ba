//! Consumer groups, classic and of KIP-848: membership, rebalances, committed offsets.
//!
//! [`consumer`] is the machine of KIP-848 groups, [`Group`] that of classic ones: plain state machines with no clock, task or
//! socket in them, which follow Kafka's `GroupMetadataManager`. A [`shard`](self::shard) owns the groups of one partition of
//! `__consumer_offsets`, turns what the machines want into answers and records, and a group of one protocol into one of the
//! other. [`records`] holds Kafka's own formats of those records, and replaying them yields the state that was live.

pub mod consumer;
mod event;
mod machine;
mod member;
pub mod records;
mod subscription;

pub(in crate::coordinator) mod log;
pub(in crate::coordinator) mod offsets;
pub(in crate::coordinator) mod shard;

pub use event::{
    Effect, Event, GroupError, Heartbeat, Join, JoinAnswer, JoinedMember, LeaveAnswer, LeavingMember, Now,
    PersistToken, Sync, SyncAnswer, WaiterId,
};
pub use machine::{Group, GroupSettings, GroupState};
pub use member::{Member, MemberId, MemberProtocol};
pub use offsets::CommittedOffset;
