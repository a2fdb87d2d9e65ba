//! What goes into a group and what comes out.

use std::sync::Arc;

use bytes::Bytes;

use super::member::{MemberId, MemberProtocol};

/// The time an event happens at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never jumps; decides every timeout.
    pub elapsed_ms: i64,
    /// Milliseconds since the epoch; goes into records.
    pub wall_ms: i64,
}

/// A request that waits for its answer. Given out by the caller, used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// Why a group request is refused; each is one error of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The group id is empty.
    #[error("the group id is empty: give the group a name")]
    InvalidGroupId,
    /// The session timeout is outside what the broker allows.
    #[error("the session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms")]
    InvalidSessionTimeout,
    /// No member has this id.
    #[error("the group has no such member: join again with an empty member id")]
    UnknownMember,
    /// The member's generation is not the group's.
    #[error("the group is in another generation: join again")]
    IllegalGeneration,
    /// The group is rebalancing.
    #[error("the group is rebalancing: join again")]
    RebalanceInProgress,
    /// The protocol type or protocols do not fit the group's.
    #[error("the group speaks another protocol type, or no protocol that all its members support")]
    InconsistentProtocol,
    /// The member must join again with the id it was given (KIP-394).
    #[error("join again with the member id of this answer")]
    MemberIdRequired,
    /// Another member took over the static instance id.
    #[error("another client runs with this group.instance.id")]
    FencedInstanceId,
    /// The group has as many members as the broker allows.
    #[error("the group is full, see group.max.size")]
    GroupMaxSizeReached,
    /// The group is being deleted, or its log cannot be written now.
    #[error("the coordinator cannot answer now: try again")]
    CoordinatorNotAvailable,
    /// The coordinator has stopped.
    #[error("this broker does not coordinate the group now: look for its coordinator again")]
    NotCoordinator,
    /// The group does not exist.
    #[error("the group does not exist")]
    GroupIdNotFound,
    /// The group has members.
    #[error("the group has members: stop them first")]
    NonEmptyGroup,
    /// The group subscribes to the topic.
    #[error("the group subscribes to the topic: stop its consumers first")]
    SubscribedToTopic,
    /// The commit's metadata is too long.
    #[error("the metadata of the offset is longer than offset.metadata.max.bytes")]
    OffsetMetadataTooLarge,
    /// The topic or partition of a commit does not exist.
    #[error("the topic or partition does not exist")]
    UnknownTopicOrPartition,
    /// No topic has the id of a commit.
    #[error("no topic has this id")]
    UnknownTopicId,
    /// The member's epoch is not one it can have (KIP-848).
    #[error("the member's epoch is not the group's: abandon all partitions and join again")]
    FencedMemberEpoch,
    /// The member's epoch is an old one (KIP-848).
    #[error("the member has another epoch by now: try again with the epoch of its last heartbeat")]
    StaleMemberEpoch,
    /// The static member of this instance id has not left (KIP-848).
    #[error("another member still uses this group.instance.id")]
    UnreleasedInstanceId,
    /// The assignor is not on offer (KIP-848).
    #[error("the assignor is not one of group.consumer.assignors")]
    UnsupportedAssignor,
    /// The subscription is no regular expression (KIP-848).
    #[error("the subscription is not a regular expression in RE2 syntax")]
    InvalidRegularExpression,
    /// A member of the consumer protocol used a version that does not know of epochs.
    #[error("a member of the consumer protocol commits with OffsetCommit v9 or later")]
    UnsupportedVersion,
    /// An offset was committed in a transaction that has not ended.
    #[error("an offset was committed in a transaction that has not ended: try again")]
    UnstableOffsetCommit,
    /// The producer of a transaction was fenced.
    #[error("a newer producer has taken over the transaction")]
    InvalidProducerEpoch,
    /// The transaction of a commit ended meanwhile.
    #[error("the transaction ended while its offsets were on the way")]
    InvalidTxnState,
}

/// A JoinGroup request.
#[derive(Debug, Clone)]
pub struct Join {
    /// The id the member has; empty when it has none yet.
    pub member_id: Arc<str>,
    /// The id to give it when it has none.
    pub generated_id: MemberId,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// The connection's client id.
    pub client_id: Arc<str>,
    /// The connection's address.
    pub client_host: Arc<str>,
    /// How long the member may be silent.
    pub session_timeout_ms: i64,
    /// How long a rebalance waits for it.
    pub rebalance_timeout_ms: i64,
    /// `consumer`, `connect`, `sr`, ...
    pub protocol_type: Arc<str>,
    /// What it supports, most wanted first.
    pub protocols: Vec<MemberProtocol>,
    /// v4+: a dynamic member without an id gets one and must join again with it (KIP-394).
    pub require_known_member_id: bool,
    /// v9+: a returning static leader can be told to skip the assignment (KIP-814).
    pub can_skip_assignment: bool,
}

/// A SyncGroup request.
#[derive(Debug, Clone)]
pub struct Sync {
    /// The member.
    pub member_id: Arc<str>,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// The generation it joined.
    pub generation: i32,
    /// v5+: must be the group's when given.
    pub protocol_type: Option<Arc<str>>,
    /// v5+: must be the group's when given.
    pub protocol_name: Option<Arc<str>>,
    /// What each member gets; empty from followers.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// A Heartbeat request.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// The member.
    pub member_id: Arc<str>,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// The generation it is in.
    pub generation: i32,
}

/// Who leaves, in a LeaveGroup request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeavingMember {
    /// The member; empty to name it by its static id alone.
    pub member_id: Arc<str>,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
}

/// Something that happens to a group.
#[derive(Debug, Clone)]
pub enum Event {
    /// A member joins or rejoins.
    Join(WaiterId, Join),
    /// A member asks for its assignment, or the leader brings them all.
    Sync(WaiterId, Sync),
    /// A member lives.
    Heartbeat(WaiterId, Heartbeat),
    /// Members leave.
    Leave(WaiterId, Vec<LeavingMember>),
    /// Time has passed: act on what is due.
    Tick,
    /// A record asked for by [`Effect::Persist`] is durable, or will never be.
    Persisted {
        /// Which.
        token: PersistToken,
        /// Whether it is durable.
        durable: bool,
    },
}

/// Names a write of the group's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersistToken {
    /// The assignment of a generation; the members wait for it.
    Assignment {
        /// The generation.
        generation: i32,
    },
    /// A static member's new id; its join waits for it.
    StaticMember {
        /// The waiting join.
        waiter: WaiterId,
    },
    /// The group became empty; nobody waits.
    Empty,
}

/// What JoinGroup is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinAnswer {
    /// Why not, if not.
    pub error: Option<GroupError>,
    /// The generation joined; -1 with an error.
    pub generation: i32,
    /// The group's protocol type.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol chosen by votes.
    pub protocol_name: Option<Arc<str>>,
    /// The leader's id.
    pub leader: Arc<str>,
    /// The member's own id.
    pub member_id: Arc<str>,
    /// The leader need not compute an assignment.
    pub skip_assignment: bool,
    /// For the leader: everyone, with their metadata.
    pub members: Vec<JoinedMember>,
}

/// A member as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: MemberId,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// Its metadata under the chosen protocol.
    pub metadata: Bytes,
}

impl JoinAnswer {
    /// A refusal.
    pub(crate) fn refused(member_id: &str, error: GroupError) -> Self {
        Self {
            error: Some(error),
            generation: -1,
            protocol_type: None,
            protocol_name: None,
            leader: Arc::from(""),
            member_id: Arc::from(member_id),
            skip_assignment: false,
            members: Vec::new(),
        }
    }
}

/// What SyncGroup is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncAnswer {
    /// Why not, if not.
    pub error: Option<GroupError>,
    /// The group's protocol type.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol chosen by votes.
    pub protocol_name: Option<Arc<str>>,
    /// The member's assignment; empty when the leader gave it none.
    pub assignment: Bytes,
}

impl SyncAnswer {
    /// A refusal.
    pub(crate) fn refused(error: GroupError) -> Self {
        Self { error: Some(error), protocol_type: None, protocol_name: None, assignment: Bytes::new() }
    }
}

/// What became of one leaving member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaveAnswer {
    /// Who.
    pub member: LeavingMember,
    /// Why not, if not.
    pub error: Option<GroupError>,
}

/// What a group wants done. Applied in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Answer a JoinGroup.
    AnswerJoin(WaiterId, JoinAnswer),
    /// Answer a SyncGroup.
    AnswerSync(WaiterId, SyncAnswer),
    /// Answer a Heartbeat.
    AnswerHeartbeat(WaiterId, Option<GroupError>),
    /// Answer a LeaveGroup.
    AnswerLeave(WaiterId, Vec<LeaveAnswer>),
    /// Write the group's metadata as it is now, then bring [`Event::Persisted`].
    Persist(PersistToken),
}
