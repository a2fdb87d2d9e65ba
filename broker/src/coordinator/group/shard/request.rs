//! What a shard can be asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::oneshot;
use weir_model::producer::TxnMarker;
use weir_storage::TxnGuard;

use crate::coordinator::group::consumer::event::{ConsumerGroupDescription, ConsumerHeartbeat, HeartbeatAnswer};
use crate::coordinator::group::event::{
    GroupError, Heartbeat, Join, JoinAnswer, LeaveAnswer, LeavingMember, Sync, SyncAnswer,
};
use crate::coordinator::group::machine::GroupState;
use crate::coordinator::group::member::Member;
use crate::coordinator::group::offsets::CommittedOffset;
use crate::coordinator::transaction::Producer;

/// A request of one group, or of all groups of the shard. Each is answered through its `reply`; a reply that is dropped
/// says that the coordinator has stopped.
#[derive(Debug)]
pub(in crate::coordinator) enum Request {
    Join {
        group: Arc<str>,
        join: Join,
        reply: oneshot::Sender<JoinAnswer>,
    },
    Sync {
        group: Arc<str>,
        sync: Sync,
        reply: oneshot::Sender<SyncAnswer>,
    },
    Heartbeat {
        group: Arc<str>,
        heartbeat: Heartbeat,
        reply: oneshot::Sender<Option<GroupError>>,
    },
    Leave {
        group: Arc<str>,
        members: Vec<LeavingMember>,
        reply: oneshot::Sender<Vec<LeaveAnswer>>,
    },
    /// A member of a KIP-848 group lives, joins or leaves.
    ConsumerHeartbeat {
        group: Arc<str>,
        heartbeat: ConsumerHeartbeat,
        reply: oneshot::Sender<Result<HeartbeatAnswer, GroupError>>,
    },
    Commit {
        group: Arc<str>,
        commit: Commit,
        reply: oneshot::Sender<Result<(), GroupError>>,
    },
    /// Offsets that count once the producer's transaction is committed.
    TransactionalCommit {
        group: Arc<str>,
        commit: Commit,
        producer: Producer,
        guard: TxnGuard,
        reply: oneshot::Sender<Result<(), GroupError>>,
    },
    /// The end of a producer's transaction.
    EndTransaction {
        marker: TxnMarker,
        reply: oneshot::Sender<Result<(), GroupError>>,
    },
    Fetch {
        group: Arc<str>,
        wanted: Option<Vec<(Arc<str>, Vec<i32>)>>,
        /// The member of a KIP-848 group that asks, and its epoch.
        member: Option<(Arc<str>, i32)>,
        reply: oneshot::Sender<Result<Vec<FetchedTopic>, GroupError>>,
    },
    Describe {
        group: Arc<str>,
        reply: oneshot::Sender<Result<GroupDescription, NotFound>>,
    },
    DescribeConsumer {
        group: Arc<str>,
        reply: oneshot::Sender<Result<ConsumerGroupDescription, NotFound>>,
    },
    List {
        reply: oneshot::Sender<Vec<GroupListing>>,
    },
    Delete {
        group: Arc<str>,
        reply: oneshot::Sender<Result<(), GroupError>>,
    },
    DeleteOffsets {
        group: Arc<str>,
        partitions: Vec<(Arc<str>, i32)>,
        reply: oneshot::Sender<OffsetsDeleted>,
    },
    /// The topic is gone: so are all offsets committed for it.
    TopicDeleted {
        topic: Arc<str>,
        reply: oneshot::Sender<()>,
    },
}

/// The outcome of deleting offsets: an error for the whole, or one per partition.
pub(in crate::coordinator) type OffsetsDeleted = Result<Vec<Option<GroupError>>, GroupError>;

/// An OffsetCommit, checked but for the group's own rules.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The member that commits; empty for a consumer that assigns partitions to itself.
    pub member_id: Arc<str>,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// The generation it is in; -1 for none.
    pub generation: i32,
    /// v9+: the client can be a member of a KIP-848 group, and knows those groups' errors.
    pub knows_member_epochs: bool,
    /// How long to keep the offsets instead of the broker's own time (v2-4).
    pub retention_ms: Option<i64>,
    /// What to store.
    pub offsets: Vec<OffsetToCommit>,
}

/// One partition of an OffsetCommit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetToCommit {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the record before it.
    pub leader_epoch: Option<i32>,
    /// The client's own text.
    pub metadata: Arc<str>,
}

/// A topic's committed offsets, `None` where there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedTopic {
    /// The topic.
    pub topic: Arc<str>,
    /// Its partitions.
    pub partitions: Vec<(i32, Option<CommittedOffset>)>,
    /// Those of them that an open transaction committed an offset for (KIP-447).
    pub unstable: BTreeSet<i32>,
}

/// A group, in full.
#[derive(Debug, Clone)]
pub struct GroupDescription {
    /// Where it is.
    pub state: GroupState,
    /// What its members call their protocol.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol of this generation.
    pub protocol_name: Option<Arc<str>>,
    /// Its members.
    pub members: Vec<Member>,
}

/// Why a group is not described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFound {
    /// There is no such group.
    Absent,
    /// It is of the other type: classic, or of KIP-848.
    OtherType,
    /// The coordinator cannot say now.
    Unavailable,
}

/// A group, in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupListing {
    /// Its id.
    pub group: Arc<str>,
    /// What its members call their protocol.
    pub protocol_type: Option<Arc<str>>,
    /// Kafka's name of the state it is in.
    pub state: &'static str,
    /// `classic` or `consumer`.
    pub group_type: &'static str,
}
