//! A heartbeat: the member is found or made, the group follows its changes, the member moves toward its target (S-88 to S-91).

use std::sync::Arc;

use super::assignment::{Assignment, is_subset};
use super::event::{ConsumerHeartbeat, Env, HeartbeatAnswer, JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH};
use super::subscription::{RegexChange, ResolveRegexes};
use super::{ConsumerGroup, ConsumerMember, Fate, Outcome, regex};
use crate::coordinator::group::event::GroupError;
use crate::coordinator::group::member::MemberId;
use crate::coordinator::group::records::Record;
use crate::coordinator::group::records::consumer::{ConsumerKey, ConsumerValue};

/// The answer to a heartbeat, and what is to be done besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// What the member is told.
    pub answer: HeartbeatAnswer,
    /// Expressions to resolve.
    pub resolve: Option<ResolveRegexes>,
}

/// Whose request it is.
pub(super) enum Who {
    /// A member that is there.
    Known(MemberId),
    /// A new member, in the place of a static one if there was one.
    New { replaces: Option<MemberId> },
}

impl ConsumerGroup {
    /// Carries a heartbeat out. What changes is appended to `records`; nothing does when it is refused.
    ///
    /// # Errors
    /// The refusal.
    pub fn heartbeat(&mut self, env: Env<'_>, request: ConsumerHeartbeat, records: &mut Vec<Record>) -> Outcome<Beat> {
        if matches!(request.epoch, LEAVE_EPOCH | STATIC_LEAVE_EPOCH) {
            let (answer, fate) = self.leave_by_heartbeat(env, &request, records)?;
            return Ok((Beat { answer, resolve: None }, fate));
        }
        self.check_room(env, &request.member_id)?;
        let who = self.who_beats(&request)?;
        if let Some(pattern) = request.regex.as_ref().filter(|pattern| !pattern.is_empty())
            && self.regex_subscribers(pattern) == 0
            && !regex::is_valid(pattern)
        {
            return Err(GroupError::InvalidRegularExpression);
        }

        let id = request.member_id.clone();
        let before = self.take_place(&id, who, records);
        let names_changed = self.update_metadata(&before, &request, records);
        let after = self.members.get(&id).map(|member| member.metadata.regex.clone()).unwrap_or_default();
        let regex_change = self.regex_changed(&before.metadata.regex, &after, records);
        let resolve = self.due_regexes(env);
        let bump = self.epoch == 0 || names_changed || regex_change == RegexChange::Resolved;
        if bump || self.topics_changed(env) {
            self.update_epoch(env, bump, records);
        }
        self.update_target(env, records);
        let subscription_changed = names_changed || regex_change != RegexChange::None;
        self.reconcile(env, &id, subscription_changed, request.owned.as_ref(), records);
        self.renew_session(env.now, env.settings, &id);

        let member = &self.members[&id];
        let moved = member.current.assigned != before.current.assigned;
        let told = request.epoch == JOIN_EPOCH || request.is_full() || moved;
        let answer = HeartbeatAnswer {
            member_id: id.clone(),
            epoch: member.current.epoch,
            heartbeat_interval_ms: env.settings.heartbeat_interval_ms,
            assignment: told.then(|| member.current.assigned.clone()),
        };
        Ok((Beat { answer, resolve }, Fate::Stays))
    }

    pub(super) fn check_room(&self, env: Env<'_>, member_id: &str) -> Result<(), GroupError> {
        if self.members.len() >= env.settings.max_size && !self.members.contains_key(member_id) {
            return Err(GroupError::GroupMaxSizeReached);
        }
        Ok(())
    }

    fn who_beats(&self, request: &ConsumerHeartbeat) -> Result<Who, GroupError> {
        let joins = request.epoch == JOIN_EPOCH;
        let Some(instance) = &request.instance_id else {
            return match self.members.get(&request.member_id) {
                Some(member) => {
                    check_epoch(member, request)?;
                    Ok(Who::Known(member.id.clone()))
                }
                None if joins => Ok(Who::New { replaces: None }),
                None => Err(GroupError::UnknownMember),
            };
        };
        match (self.static_member(instance), joins) {
            (None, true) if self.members.contains_key(&request.member_id) => Ok(Who::Known(request.member_id.clone())),
            (None, true) => Ok(Who::New { replaces: None }),
            (None, false) => Err(GroupError::UnknownMember),
            (Some(holder), true) if !holder.is_classic() && holder.current.epoch != STATIC_LEAVE_EPOCH => {
                Err(GroupError::UnreleasedInstanceId)
            }
            (Some(holder), true) => Ok(Who::New { replaces: Some(holder.id.clone()) }),
            (Some(holder), false) if holder.id != request.member_id => Err(GroupError::FencedInstanceId),
            (Some(holder), false) => {
                check_epoch(holder, request)?;
                Ok(Who::Known(holder.id.clone()))
            }
        }
    }

    /// Makes the member be there, and answers what it was before this request.
    pub(super) fn take_place(&mut self, id: &MemberId, who: Who, records: &mut Vec<Record>) -> ConsumerMember {
        match who {
            Who::Known(id) => self.members[&id].clone(),
            Who::New { replaces: None } => {
                let member = ConsumerMember::new(id);
                // The record comes with what the request says; until then the member is only in memory.
                self.members.insert(id.clone(), member.clone());
                member
            }
            Who::New { replaces: Some(old) } => self.replace_static_member(&old, id, records),
        }
    }

    /// A static member is back under another id: it inherits everything, and starts at epoch 0.
    fn replace_static_member(&mut self, old: &MemberId, new: &MemberId, records: &mut Vec<Record>) -> ConsumerMember {
        let mut member = self.members[old].clone();
        let target = self.targets.get(old).cloned().unwrap_or_default();
        self.remove_member(old, records);
        member.id = new.clone();
        (member.current.epoch, member.current.previous_epoch) = (0, 0);
        self.put(ConsumerKey::Member(new.clone()), Some(ConsumerValue::Member(member.metadata.clone())), records);
        let target = ConsumerValue::Target(Assignment::clone(&target));
        self.put(ConsumerKey::Target(new.clone()), Some(target), records);
        self.put(ConsumerKey::Current(new.clone()), Some(ConsumerValue::Current(member.current.clone())), records);
        member
    }

    /// Writes what the request says of the member, where that is new. Answers whether it names other topics than before.
    fn update_metadata(
        &mut self,
        before: &ConsumerMember,
        request: &ConsumerHeartbeat,
        records: &mut Vec<Record>,
    ) -> bool {
        let mut metadata = before.metadata.clone();
        let replace = |field: &mut Option<Arc<str>>, value: &Option<Arc<str>>| {
            if value.is_some() {
                field.clone_from(value);
            }
        };
        replace(&mut metadata.instance_id, &request.instance_id);
        replace(&mut metadata.rack_id, &request.rack_id);
        replace(&mut metadata.assignor, &request.assignor);
        if let Some(timeout) = request.rebalance_timeout_ms {
            metadata.rebalance_timeout_ms = timeout;
        }
        if let Some(topics) = &request.topics {
            metadata.topics.clone_from(topics);
        }
        if let Some(regex) = &request.regex {
            metadata.regex = regex.clone();
        }
        metadata.client_id = request.client_id.clone();
        metadata.client_host = request.client_host.clone();
        metadata.classic = None;
        let names_changed = metadata.topics != before.metadata.topics;
        if metadata != before.metadata {
            self.put(ConsumerKey::Member(request.member_id.clone()), Some(ConsumerValue::Member(metadata)), records);
        }
        names_changed
    }
}

/// Whether the epoch of a heartbeat is one that the member may have (S-89).
fn check_epoch(member: &ConsumerMember, request: &ConsumerHeartbeat) -> Result<(), GroupError> {
    let current = &member.current;
    if request.epoch == JOIN_EPOCH || request.epoch == current.epoch {
        return Ok(());
    }
    // The answer that carried the newer epoch may have been lost; harmless as long as the member owns nothing it must not.
    let behind = request.epoch < current.epoch && request.epoch == current.previous_epoch;
    match &request.owned {
        Some(owned) if behind && is_subset(owned, &current.assigned) => Ok(()),
        _ => Err(GroupError::FencedMemberEpoch),
    }
}
