//! Classic consumer groups: membership, rebalances, committed offsets.
//!
//! [`Group`] is a plain state machine, `apply(now, event) -> effects`, with no clock, task or socket in it; it follows
//! Kafka's `GroupMetadataManager` and `ClassicGroup`. A [`shard`](self::shard) owns the groups of one partition of
//! `__consumer_offsets` and turns effects into answers and records. [`records`] holds Kafka's own formats of those
//! records, and replaying them yields the state that was live.

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
