//! Members going: by request, by silence, by not giving partitions up in time.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::{ConsumerHeartbeat, Env, HeartbeatAnswer, STATIC_LEAVE_EPOCH};
use super::timers::TimerKind;
use super::{ConsumerGroup, Fate, Outcome};
use crate::coordinator::group::event::GroupError;
use crate::coordinator::group::member::MemberId;
use crate::coordinator::group::records::Record;
use crate::coordinator::group::records::consumer::{ConsumerKey, ConsumerValue, MemberState};

impl ConsumerGroup {
    pub(super) fn leave_by_heartbeat(
        &mut self,
        env: Env<'_>,
        request: &ConsumerHeartbeat,
        records: &mut Vec<Record>,
    ) -> Outcome<HeartbeatAnswer> {
        let id = match &request.instance_id {
            None => self.members.get(&request.member_id).ok_or(GroupError::UnknownMember)?.id.clone(),
            Some(instance) => {
                let holder = self.static_member(instance).ok_or(GroupError::UnknownMember)?;
                if holder.id != request.member_id {
                    return Err(GroupError::FencedInstanceId);
                }
                holder.id.clone()
            }
        };
        let answer =
            HeartbeatAnswer { member_id: id.clone(), epoch: request.epoch, heartbeat_interval_ms: 0, assignment: None };
        if request.epoch == STATIC_LEAVE_EPOCH && request.instance_id.is_some() {
            // It keeps its partitions until it is back or its session ends.
            let mut current = self.members[&id].current.clone();
            current.epoch = STATIC_LEAVE_EPOCH;
            current.pending_revocation.clear();
            self.timers.cancel(&id, TimerKind::Rebalance);
            self.put(ConsumerKey::Current(id), Some(ConsumerValue::Current(current)), records);
            return Ok((answer, Fate::Stays));
        }
        let fate = self.fence(env, BTreeSet::from([id]), records);
        Ok((answer, fate))
    }

    /// Lets every timer fire that is due.
    pub fn tick(&mut self, env: Env<'_>, records: &mut Vec<Record>) -> Fate {
        let due = self.timers.take_due(env.now.elapsed_ms);
        let fenced: BTreeSet<MemberId> = due
            .into_iter()
            .filter(|(id, kind)| match (self.members.get(id), kind) {
                (None, _) => false,
                (Some(member), TimerKind::Rebalance) => member.current.state == MemberState::UnrevokedPartitions,
                (Some(_), TimerKind::Session | TimerKind::Join | TimerKind::Sync) => true,
            })
            .map(|(id, _)| id)
            .collect();
        for member in &fenced {
            tracing::info!(group = %self.id, %member, "member fenced: silent, or slow to give partitions up");
        }
        self.fence(env, fenced, records)
    }

    /// Takes members out, unless only classic ones are left: then the caller has to turn the group into a classic one, and
    /// the members are out already.
    pub(super) fn fence(&mut self, env: Env<'_>, members: BTreeSet<MemberId>, records: &mut Vec<Record>) -> Fate {
        if members.is_empty() {
            return Fate::Stays;
        }
        let regexes: BTreeSet<Arc<str>> =
            members.iter().filter_map(|id| self.members.get(id)).map(|member| member.metadata.regex.clone()).collect();
        for id in &members {
            self.remove_member(id, records);
        }
        for regex in regexes {
            if self.regexes.contains_key(&regex) && self.regex_subscribers(&regex) == 0 {
                self.put(ConsumerKey::Regex(regex), None, records);
            }
        }
        if self.can_downgrade(env) {
            return Fate::Downgrades { rebalance: true };
        }
        self.update_epoch(env, true, records);
        Fate::Stays
    }

    pub(super) fn can_downgrade(&self, env: Env<'_>) -> bool {
        !self.members.is_empty()
            && self.members.values().all(super::ConsumerMember::is_classic)
            && env.settings.downgrade
            && self.members.len() <= env.settings.classic_max_size
    }

    /// Writes that a member is gone. The order is Kafka's: what it has before what it is.
    pub(super) fn remove_member(&mut self, id: &MemberId, records: &mut Vec<Record>) {
        self.put(ConsumerKey::Current(id.clone()), None, records);
        self.put(ConsumerKey::Target(id.clone()), None, records);
        self.put(ConsumerKey::Member(id.clone()), None, records);
    }
}
