//! One member of a classic group.

use std::sync::Arc;

use bytes::Bytes;

use super::event::WaiterId;

/// The id of a member, as the coordinator generated it.
pub type MemberId = Arc<str>;

/// One protocol (assignor) a member supports, with its opaque metadata (S-87: never parsed but for subscriptions).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberProtocol {
    /// The protocol's name, e.g. `range`.
    pub name: Arc<str>,
    /// What the member says to the leader under this protocol.
    pub metadata: Bytes,
}

/// A member of a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// The id the coordinator gave it.
    pub id: MemberId,
    /// The id its user gave it (KIP-345): it survives restarts of the client.
    pub instance_id: Option<Arc<str>>,
    /// The client id of the connection it joined from.
    pub client_id: Arc<str>,
    /// The address of that connection, as Kafka writes it: `/127.0.0.1`.
    pub client_host: Arc<str>,
    /// How long a rebalance waits for it to rejoin, in milliseconds.
    pub rebalance_timeout_ms: i64,
    /// How long it may be silent, in milliseconds.
    pub session_timeout_ms: i64,
    /// What it supports, most wanted first.
    pub protocols: Vec<MemberProtocol>,
    /// What the leader gave it in this generation; empty before.
    pub assignment: Bytes,
    pub(super) awaiting_join: Option<WaiterId>,
    pub(super) awaiting_sync: Option<WaiterId>,
    /// It got its id with this join and has seen no answer yet: it cannot send heartbeats.
    pub(super) is_new: bool,
    /// When its session ends; `None` while a parked request stands for its heartbeats (S-81).
    pub(super) session_deadline: Option<i64>,
    /// Place in the order of arrival; the oldest member leads when the leader goes (S-78).
    pub(super) arrival: u64,
}

impl Member {
    /// The metadata under `protocol`, empty when the member does not support it.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|offered| &*offered.name == protocol)
            .map(|offered| offered.metadata.clone())
            .unwrap_or_default()
    }

    /// Whether the member votes for `protocol`: the first it supports among `candidates`.
    pub(super) fn vote<'a>(&'a self, candidates: &[&str]) -> Option<&'a str> {
        self.protocols.iter().map(|offered| &*offered.name).find(|name| candidates.contains(name))
    }
}
