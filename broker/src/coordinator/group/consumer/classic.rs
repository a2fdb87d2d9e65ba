//! Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup are translated.
//!
//! Such a member is told REBALANCE_IN_PROGRESS when there is something new for it; its JoinGroup then is what a heartbeat is
//! to others (it says what it owns), and its SyncGroup fetches what it shall own. Its generation is its member epoch. No
//! member leads, and none computes an assignment.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::Env;
use super::heartbeat::Who;
use super::protocol::{by_id, read_subscription, write_assignment};
use super::subscription::RegexChange;
use super::timers::TimerKind;
use super::{ConsumerGroup, ConsumerMember, Fate, Outcome};
use crate::coordinator::group::event::{
    GroupError, Heartbeat, Join, JoinAnswer, LeaveAnswer, LeavingMember, Sync, SyncAnswer,
};
use crate::coordinator::group::member::{MemberId, MemberProtocol};
use crate::coordinator::group::records::Record;
use crate::coordinator::group::records::consumer::{ClassicMetadata, ConsumerKey, ConsumerValue, MemberState};

/// The protocol type of consumers.
const CONSUMER: &str = "consumer";

impl ConsumerGroup {
    /// A classic member joins or rejoins.
    ///
    /// # Errors
    /// The refusal; nothing changed.
    pub fn classic_join(&mut self, env: Env<'_>, request: Join, records: &mut Vec<Record>) -> Outcome<JoinAnswer> {
        let has_id = !request.member_id.is_empty();
        let id: MemberId = if has_id { request.member_id.clone() } else { request.generated_id.clone() };
        self.check_room(env, &id)?;
        if !self.speaks_classic(&request) {
            return Err(GroupError::InconsistentProtocol);
        }
        let offered = request.protocols.first().ok_or(GroupError::InconsistentProtocol)?;
        let subscription = read_subscription(&offered.metadata).map_err(|_| GroupError::InconsistentProtocol)?;
        if !has_id && request.instance_id.is_none() && request.require_known_member_id {
            return Ok((JoinAnswer::refused(&id, GroupError::MemberIdRequired), Fate::Stays));
        }
        let who = self.who_joins(&id, &request)?;
        // A static consumer-protocol member comes back as a classic one, and was the last of its kind.
        let downgrades = match &who {
            Who::New { replaces: Some(old) } => {
                !self.members[old].is_classic()
                    && self.members.values().all(|member| member.is_classic() || member.id == *old)
                    && env.settings.downgrade
                    && self.members.len() <= env.settings.classic_max_size
            }
            Who::New { replaces: None } | Who::Known(_) => false,
        };
        let rebalance_timeout_ms = request.rebalance_timeout_ms;

        let before = self.take_place(&id, who, records);
        let mut metadata = before.metadata.clone();
        if request.instance_id.is_some() {
            metadata.instance_id.clone_from(&request.instance_id);
        }
        if subscription.rack_id.is_some() {
            metadata.rack_id = subscription.rack_id;
        }
        metadata.rebalance_timeout_ms = i32::try_from(rebalance_timeout_ms).unwrap_or(i32::MAX);
        metadata.topics = subscription.topics;
        metadata.regex = Arc::from("");
        metadata.client_id = request.client_id;
        metadata.client_host = request.client_host;
        metadata.classic = Some(ClassicMetadata {
            session_timeout_ms: i32::try_from(request.session_timeout_ms).unwrap_or(i32::MAX),
            protocols: request.protocols,
        });
        let protocol_name = first_protocol(metadata.classic.as_ref()).map(|protocol| protocol.name.clone());
        let names_changed = metadata.topics != before.metadata.topics;
        if metadata != before.metadata {
            self.put(ConsumerKey::Member(id.clone()), Some(ConsumerValue::Member(metadata)), records);
        }
        let regex_changed = self.regex_changed(&before.metadata.regex, &Arc::from(""), records) != RegexChange::None;
        let bump = names_changed || regex_changed;
        if bump || self.topics_changed(env) {
            self.update_epoch(env, bump, records);
        }
        let owned = by_id(&subscription.owned, env.topics);
        if !downgrades {
            self.update_target(env, records);
        }
        if !(downgrades && bump) {
            self.reconcile(env, &id, bump, Some(&owned), records);
        }
        self.timers.cancel(&id, TimerKind::Join);
        self.timers.cancel(&id, TimerKind::Rebalance);
        self.renew_session(env.now, env.settings, &id);
        self.timers.set(&id, TimerKind::Sync, env.now.elapsed_ms + rebalance_timeout_ms);
        let answer = JoinAnswer {
            error: None,
            generation: if downgrades { self.epoch } else { self.members[&id].current.epoch },
            protocol_type: Some(Arc::from(CONSUMER)),
            protocol_name,
            leader: Arc::from(""),
            member_id: id,
            skip_assignment: false,
            members: Vec::new(),
        };
        Ok((answer, if downgrades { Fate::Downgrades { rebalance: bump } } else { Fate::Stays }))
    }

    fn who_joins(&self, id: &MemberId, request: &Join) -> Result<Who, GroupError> {
        let Some(instance) = &request.instance_id else {
            let known = self.members.get(id);
            return Ok(known.map_or(Who::New { replaces: None }, |member| Who::Known(member.id.clone())));
        };
        match (self.static_member(instance), request.member_id.is_empty()) {
            (None, true) => Ok(Who::New { replaces: None }),
            (Some(holder), true) => Ok(Who::New { replaces: Some(holder.id.clone()) }),
            (None, false) => Err(GroupError::UnknownMember),
            (Some(holder), false) if holder.id != *id => Err(GroupError::FencedInstanceId),
            (Some(holder), false) => Ok(Who::Known(holder.id.clone())),
        }
    }

    /// Whether a classic member with these protocols fits the classic members that are there.
    fn speaks_classic(&self, request: &Join) -> bool {
        if &*request.protocol_type != CONSUMER || request.protocols.is_empty() {
            return false;
        }
        let others: Vec<&ClassicMetadata> =
            self.members.values().filter_map(|member| member.metadata.classic.as_ref()).collect();
        request.protocols.iter().any(|offered| {
            others.iter().all(|classic| classic.protocols.iter().any(|known| known.name == offered.name))
        })
    }

    /// A classic member asks for what it shall own.
    ///
    /// # Errors
    /// The refusal.
    pub fn classic_sync(&mut self, env: Env<'_>, request: &Sync) -> Result<SyncAnswer, GroupError> {
        let member = self.classic_member(&request.member_id, request.instance_id.as_ref())?;
        if member.current.epoch != request.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let protocol = first_protocol(member.metadata.classic.as_ref());
        let protocol_name = protocol.map(|protocol| protocol.name.clone());
        if request.protocol_type.as_deref().is_some_and(|kind| kind != CONSUMER)
            || request.protocol_name.is_some() && request.protocol_name != protocol_name
        {
            return Err(GroupError::InconsistentProtocol);
        }
        let id = member.id.clone();
        if self.epoch > member.current.epoch && member.current.state != MemberState::UnrevokedPartitions {
            self.ask_to_rejoin(env, &id);
            return Err(GroupError::RebalanceInProgress);
        }
        let assignment = write_assignment(subscription_version(member), &member.current.assigned, env.topics);
        self.timers.cancel(&id, TimerKind::Sync);
        self.renew_session(env.now, env.settings, &id);
        Ok(SyncAnswer { error: None, protocol_type: Some(Arc::from(CONSUMER)), protocol_name, assignment })
    }

    /// A classic member lives.
    ///
    /// # Errors
    /// The refusal; `RebalanceInProgress` when there is something new for it.
    pub fn classic_heartbeat(&mut self, env: Env<'_>, request: &Heartbeat) -> Result<(), GroupError> {
        let member = self.classic_member(&request.member_id, request.instance_id.as_ref())?;
        if member.current.epoch != request.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let id = member.id.clone();
        let must_rejoin = member.current.epoch < self.epoch
            || member.current.state == MemberState::UnrevokedPartitions
            || member.current.state == MemberState::UnreleasedPartitions && !self.waits_for_others(member);
        self.renew_session(env.now, env.settings, &id);
        if must_rejoin {
            self.ask_to_rejoin(env, &id);
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }

    /// Classic members leave, or are removed by an operator.
    pub fn classic_leave(
        &mut self,
        env: Env<'_>,
        leaving: Vec<LeavingMember>,
        records: &mut Vec<Record>,
    ) -> (Vec<LeaveAnswer>, Fate) {
        let mut gone = BTreeSet::new();
        let answers = leaving
            .into_iter()
            .map(|member| {
                let found = match (&member.instance_id, member.member_id.is_empty()) {
                    (Some(instance), true) => self
                        .static_member(instance)
                        .filter(|member| member.is_classic())
                        .map(|member| member.id.clone())
                        .ok_or(GroupError::UnknownMember),
                    (instance, _) => {
                        self.classic_member(&member.member_id, instance.as_ref()).map(|member| member.id.clone())
                    }
                };
                let error = found.map(|id| gone.insert(id)).err();
                LeaveAnswer { member, error }
            })
            .collect();
        (answers, self.fence(env, gone, records))
    }

    fn ask_to_rejoin(&mut self, env: Env<'_>, id: &MemberId) {
        let timeout = self.members.get(id).map_or(0, |member| member.metadata.rebalance_timeout_ms);
        self.timers.set_if_absent(id, TimerKind::Join, env.in_ms(timeout));
    }

    fn classic_member(&self, id: &str, instance: Option<&Arc<str>>) -> Result<&ConsumerMember, GroupError> {
        let member = match instance {
            None => self.members.get(id).ok_or(GroupError::UnknownMember)?,
            Some(instance) => {
                let holder = self.static_member(instance).ok_or(GroupError::UnknownMember)?;
                if *holder.id != *id {
                    return Err(GroupError::FencedInstanceId);
                }
                holder
            }
        };
        if member.is_classic() { Ok(member) } else { Err(GroupError::UnknownMember) }
    }
}

fn first_protocol(classic: Option<&ClassicMetadata>) -> Option<&MemberProtocol> {
    classic.and_then(|classic| classic.protocols.first())
}

/// The version a classic member writes, and so can read.
pub(super) fn subscription_version(member: &ConsumerMember) -> i16 {
    first_protocol(member.metadata.classic.as_ref())
        .and_then(|protocol| read_subscription(&protocol.metadata).ok())
        .map_or(0, |subscription| subscription.version)
}
