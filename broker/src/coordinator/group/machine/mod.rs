//! The state machine of one classic group (S-75 to S-82).
//!
//! ```text
//!            join                  all joined / time out               leader's sync durable
//!   Empty ----------> Preparing ------------------------> Completing ------------------------> Stable
//!     ^               Rebalance <------------------------ Rebalance                               |
//!     |                  |  ^      join, leave, expiry                                            |
//!     +--- no member ----+  +--------------------- join of leader or changed member, leave, expiry+
//! ```
//!
//! `Dead` is a group whose deletion is being written; every request is told to come again.

mod join;
mod leave;
mod sync;
mod timers;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::event::{Effect, Event, GroupError, Heartbeat, JoinAnswer, JoinedMember, Now, SyncAnswer, WaiterId};
use super::member::{Member, MemberId, MemberProtocol};
use super::records::{GroupMetadata, MemberRecord};
use super::subscription::subscribed_topics;

/// The broker's settings that groups obey.
#[derive(Debug, Clone, Copy)]
pub struct GroupSettings {
    /// How long the first join of an empty group waits for more members.
    pub initial_rebalance_delay_ms: i64,
    /// Shortest session timeout allowed.
    pub min_session_timeout_ms: i64,
    /// Longest session timeout allowed.
    pub max_session_timeout_ms: i64,
    /// Most members.
    pub max_size: usize,
}

/// A new member that has seen no answer cannot send heartbeats and its disconnect cannot be seen, so its join lives this
/// long and no longer; it is expected to retry (Kafka's `CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`).
const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1000;

/// Where a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupState {
    /// No members; offsets may remain.
    Empty,
    /// Waiting for the members to (re)join.
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    /// Every member has, or can have, its assignment.
    Stable,
    /// Being deleted.
    Dead,
}

impl GroupState {
    /// Kafka's name of it, as ListGroups and DescribeGroups show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// The timer of a rebalance's join phase.
#[derive(Debug, Clone, Copy)]
enum JoinTimer {
    /// The group was empty: wait a while for more members, again as long as new ones come (S-77).
    Initial { at: i64, remaining_ms: i64 },
    /// Members that have not rejoined by then are out.
    Rejoin { at: i64 },
}

impl JoinTimer {
    fn at(self) -> i64 {
        match self {
            Self::Initial { at, .. } | Self::Rejoin { at } => at,
        }
    }
}

/// One classic group. Every change goes through [`Group::apply`].
#[derive(Debug, Clone)]
pub struct Group {
    settings: GroupSettings,
    state: GroupState,
    generation: i32,
    protocol_type: Option<Arc<str>>,
    protocol_name: Option<Arc<str>>,
    leader: Option<MemberId>,
    members: BTreeMap<MemberId, Member>,
    static_members: BTreeMap<Arc<str>, MemberId>,
    /// Ids given out and not yet used to join, with the time they lapse.
    pending_members: BTreeMap<MemberId, i64>,
    /// Members that were answered their join of this generation and have not asked for their assignment.
    pending_sync: BTreeSet<MemberId>,
    sync_deadline: Option<i64>,
    join_timer: Option<JoinTimer>,
    /// A member came during the initial delay.
    new_member_added: bool,
    /// The generation whose assignment is being written.
    assignment_in_flight: Option<i32>,
    /// Joins of static members whose new id is being written, with the answer they get then.
    static_joins: Vec<(WaiterId, MemberId, JoinAnswer)>,
    /// When the group became empty, in wall-clock time; offsets expire from there (S-85).
    state_since_wall_ms: Option<i64>,
    arrivals: u64,
}

impl Group {
    /// A group nobody has joined.
    pub fn new(settings: GroupSettings) -> Self {
        Self {
            settings,
            state: GroupState::Empty,
            generation: 0,
            protocol_type: None,
            protocol_name: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_members: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            sync_deadline: None,
            join_timer: None,
            new_member_added: false,
            assignment_in_flight: None,
            static_joins: Vec::new(),
            state_since_wall_ms: None,
            arrivals: 0,
        }
    }

    /// The group a replayed record describes: stable when it has members, whose sessions start anew.
    pub fn replayed(settings: GroupSettings, record: GroupMetadata, now: Now) -> Self {
        let mut group = Self::new(settings);
        group.generation = record.generation;
        group.protocol_type = (!record.protocol_type.is_empty()).then_some(record.protocol_type);
        group.protocol_name = record.protocol_name;
        group.leader = record.leader;
        group.state_since_wall_ms = record.state_since_wall_ms;
        let protocol = group.protocol_name.clone().unwrap_or_else(|| Arc::from(""));
        for stored in record.members {
            group.arrivals += 1;
            if let Some(instance) = &stored.instance_id {
                group.static_members.insert(instance.clone(), stored.id.clone());
            }
            let member = Member {
                id: stored.id.clone(),
                instance_id: stored.instance_id,
                client_id: stored.client_id,
                client_host: stored.client_host,
                rebalance_timeout_ms: i64::from(stored.rebalance_timeout_ms),
                session_timeout_ms: i64::from(stored.session_timeout_ms),
                protocols: vec![MemberProtocol { name: protocol.clone(), metadata: stored.subscription }],
                assignment: stored.assignment,
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
                session_deadline: Some(now.elapsed_ms + i64::from(stored.session_timeout_ms)),
                arrival: group.arrivals,
            };
            group.members.insert(stored.id, member);
        }
        if !group.members.is_empty() {
            group.state = GroupState::Stable;
            if group.leader.as_ref().is_none_or(|leader| !group.members.contains_key(leader)) {
                group.leader = group.oldest_member();
            }
        }
        group
    }

    /// The group that a consumer group of classic members becomes: stable as its record says, but that its members' other
    /// protocols are known; with what follows when its members are to be settled anew.
    pub fn downgraded(
        settings: GroupSettings,
        record: GroupMetadata,
        protocols: Vec<(MemberId, Vec<MemberProtocol>)>,
        now: Now,
        rebalance: bool,
    ) -> (Self, Vec<Effect>) {
        let mut group = Self::replayed(settings, record, now);
        for (id, protocols) in protocols {
            if let Some(member) = group.members.get_mut(&id) {
                member.protocols = protocols;
            }
        }
        let mut effects = Vec::new();
        if rebalance {
            group.prepare_rebalance(now, &mut effects);
        }
        (group, effects)
    }

    /// Answers every parked request: the group becomes a consumer group, its members have to join again.
    pub fn dissolve(mut self) -> Vec<Effect> {
        let error = GroupError::RebalanceInProgress;
        let mut effects = Vec::new();
        for member in self.members.values_mut() {
            if let Some(waiter) = member.awaiting_join.take() {
                effects.push(Effect::AnswerJoin(waiter, JoinAnswer::refused(&member.id, error)));
            }
            if let Some(waiter) = member.awaiting_sync.take() {
                effects.push(Effect::AnswerSync(waiter, SyncAnswer::refused(error)));
            }
        }
        for (waiter, id, _) in self.static_joins {
            effects.push(Effect::AnswerJoin(waiter, JoinAnswer::refused(&id, error)));
        }
        effects
    }

    /// Lets `event` happen. Effects are to be carried out in their order, the writes among them in the order of all
    /// writes of the group.
    pub fn apply(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Join(waiter, request) => self.join(now, waiter, request, &mut effects),
            Event::Sync(waiter, request) => self.sync(now, waiter, request, &mut effects),
            Event::Heartbeat(waiter, request) => {
                let error = self.heartbeat(now, &request).err();
                effects.push(Effect::AnswerHeartbeat(waiter, error));
            }
            Event::Leave(waiter, members) => self.leave(now, waiter, members, &mut effects),
            Event::Tick => self.tick(now, &mut effects),
            Event::Persisted { token, durable } => self.persisted(now, token, durable, &mut effects),
        }
        effects
    }

    /// When the next timer is due, in elapsed time.
    pub fn deadline(&self) -> Option<i64> {
        let sessions = self.members.values().filter_map(|member| member.session_deadline);
        sessions
            .chain(self.pending_members.values().copied())
            .chain(self.join_timer.map(JoinTimer::at))
            .chain(self.sync_deadline)
            .min()
    }

    /// Where the group is.
    pub fn state(&self) -> GroupState {
        self.state
    }

    /// How often the members were settled anew.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// What the members call their protocol; `None` for a group that only stores offsets.
    pub fn protocol_type(&self) -> Option<&Arc<str>> {
        self.protocol_type.as_ref()
    }

    /// The protocol of this generation.
    pub fn protocol_name(&self) -> Option<&Arc<str>> {
        self.protocol_name.as_ref()
    }

    /// The leader's id.
    pub fn leader(&self) -> Option<&MemberId> {
        self.leader.as_ref()
    }

    /// The members, by id.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// When the group became empty, in wall-clock time.
    pub fn state_since_wall_ms(&self) -> Option<i64> {
        self.state_since_wall_ms
    }

    /// Nobody is in it, nobody is about to be.
    pub fn is_idle(&self) -> bool {
        self.state == GroupState::Empty && self.pending_members.is_empty()
    }

    /// Marks an empty group as being deleted: requests are told to come again until the outcome is known.
    ///
    /// # Errors
    /// `NonEmptyGroup` when it has members, `GroupIdNotFound` when it is dead already.
    pub fn begin_delete(&mut self) -> Result<(), GroupError> {
        match self.state {
            GroupState::Empty => {
                self.state = GroupState::Dead;
                Ok(())
            }
            GroupState::Dead => Err(GroupError::GroupIdNotFound),
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                Err(GroupError::NonEmptyGroup)
            }
        }
    }

    /// Takes the mark back: the deletion could not be written.
    pub fn abandon_delete(&mut self) {
        if self.state == GroupState::Dead {
            self.state = GroupState::Empty;
        }
    }

    /// Whether live members subscribe to `topic`. Unknown subscriptions of consumers count as subscribed to everything,
    /// since an offset deleted wrongly is worse than one kept.
    pub fn subscribes_to(&self, topic: &str) -> bool {
        if self.protocol_type.as_deref() != Some("consumer") || self.members.is_empty() {
            return false;
        }
        self.members.values().any(|member| {
            let offered = match &self.protocol_name {
                Some(name) => member.metadata(name),
                None => member.protocols.first().map(|offered| offered.metadata.clone()).unwrap_or_default(),
            };
            subscribed_topics(&offered).is_none_or(|topics| topics.contains(topic))
        })
    }

    /// Whether an OffsetCommit may be stored (S-83), and renews the session of the member that sends it.
    ///
    /// # Errors
    /// Who commits is not who may.
    pub fn check_commit(
        &mut self,
        now: Now,
        member_id: &str,
        instance_id: Option<&Arc<str>>,
        generation: i32,
    ) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        if generation < 0 && self.state == GroupState::Empty {
            // An admin client, or a consumer that assigns partitions to itself.
            return Ok(());
        }
        if generation < 0 && member_id.is_empty() && instance_id.is_none() {
            return Err(GroupError::UnknownMember);
        }
        let id = self.check_member(member_id, instance_id)?;
        if generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        match self.state {
            // The member has the answer to its join, so it knows the generation; it has to finish the rebalance first.
            GroupState::CompletingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::Stable | GroupState::PreparingRebalance => {
                self.renew_session(now, &id);
                Ok(())
            }
            GroupState::Empty | GroupState::Dead => Ok(()),
        }
    }

    /// As [`Self::check_commit`], for offsets that are committed in a transaction (KIP-447). Without a member id and a generation it is anybody's, as from
    /// clients before KIP-447; in the middle of a rebalance it is let through, since it counts only when its member is still of this generation.
    pub fn check_transactional_commit(
        &mut self,
        now: Now,
        member_id: &str,
        instance_id: Option<&Arc<str>>,
        generation: i32,
    ) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        if generation < 0 && member_id.is_empty() && instance_id.is_none() {
            return Ok(());
        }
        if generation < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        let id = self.check_member(member_id, instance_id)?;
        if generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        if matches!(self.state, GroupState::Stable | GroupState::PreparingRebalance) {
            self.renew_session(now, &id);
        }
        Ok(())
    }

    /// The group as its record holds it.
    pub fn metadata(&self) -> GroupMetadata {
        let protocol = self.protocol_name.clone().unwrap_or_else(|| Arc::from(""));
        GroupMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| Arc::from("")),
            generation: self.generation,
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone(),
            state_since_wall_ms: self.state_since_wall_ms,
            members: self
                .members
                .values()
                .map(|member| MemberRecord {
                    id: member.id.clone(),
                    instance_id: member.instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    rebalance_timeout_ms: i32::try_from(member.rebalance_timeout_ms).unwrap_or(i32::MAX),
                    session_timeout_ms: i32::try_from(member.session_timeout_ms).unwrap_or(i32::MAX),
                    subscription: member.metadata(&protocol),
                    assignment: member.assignment.clone(),
                })
                .collect(),
        }
    }

    fn heartbeat(&mut self, now: Now, request: &Heartbeat) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        let id = self.check_member(&request.member_id, request.instance_id.as_ref())?;
        if request.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        match self.state {
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMember),
            // Between the answer to its join and its sync a member may already send heartbeats.
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.renew_session(now, &id);
                Ok(())
            }
            GroupState::PreparingRebalance => {
                self.renew_session(now, &id);
                Err(GroupError::RebalanceInProgress)
            }
        }
    }

    /// The member a request speaks for (S-81, S-82).
    fn check_member(&self, member_id: &str, instance_id: Option<&Arc<str>>) -> Result<MemberId, GroupError> {
        if let Some(instance) = instance_id {
            match self.static_members.get(instance) {
                None => return Err(GroupError::UnknownMember),
                Some(current) if **current != *member_id => return Err(GroupError::FencedInstanceId),
                Some(_) => {}
            }
        }
        self.members.get_key_value(member_id).map(|(id, _)| id.clone()).ok_or(GroupError::UnknownMember)
    }

    fn renew_session(&mut self, now: Now, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.session_deadline = Some(now.elapsed_ms + member.session_timeout_ms);
        }
    }

    fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    fn oldest_member(&self) -> Option<MemberId> {
        self.members.values().min_by_key(|member| member.arrival).map(|member| member.id.clone())
    }

    /// Protocols that every member supports.
    fn common_protocols(&self) -> Vec<&str> {
        let Some(first) = self.members.values().next() else { return Vec::new() };
        let supported =
            |name: &str| self.members.values().all(|member| member.protocols.iter().any(|p| &*p.name == name));
        first.protocols.iter().map(|offered| &*offered.name).filter(|name| supported(name)).collect()
    }

    /// The protocol with the most votes; among equals the first in name order, so that replays agree.
    fn elected_protocol(&self) -> Option<Arc<str>> {
        let candidates = self.common_protocols();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(name) = member.vote(&candidates) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| Arc::from(name))
    }

    fn everyone(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol_name.as_deref().unwrap_or("");
        self.members
            .values()
            .map(|member| JoinedMember {
                member_id: member.id.clone(),
                instance_id: member.instance_id.clone(),
                metadata: member.metadata(protocol),
            })
            .collect()
    }

    /// The answer a member of the current generation gets to its join.
    fn current_generation(&self, member_id: &MemberId) -> JoinAnswer {
        JoinAnswer {
            error: None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone().unwrap_or_else(|| Arc::from("")),
            member_id: member_id.clone(),
            skip_assignment: false,
            members: if self.is_leader(member_id) { self.everyone() } else { Vec::new() },
        }
    }

    fn current_assignment(&self, assignment: Bytes) -> SyncAnswer {
        SyncAnswer {
            error: None,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment,
        }
    }
}
