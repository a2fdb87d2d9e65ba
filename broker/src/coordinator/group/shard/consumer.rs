//! The requests of KIP-848 groups, and what turns a group of one protocol into one of the other.
//!
//! Requests of the classic protocol come here first: those for a consumer group are answered here, the others are handed
//! back. Every answer waits for the writes before it, see [`Writes`](super::writes::Writes).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::kind::Kind;
use super::request::NotFound;
use super::state::{ResolveJob, ShardState, Then, send};
use super::writes::Waiting;
use crate::coordinator::group::consumer::event::{
    ConsumerGroupDescription, ConsumerHeartbeat, Env, HeartbeatAnswer, JOIN_EPOCH,
};
use crate::coordinator::group::consumer::{ConsumerGroup, Fate, migrate};
use crate::coordinator::group::event::{
    GroupError, Heartbeat, Join, JoinAnswer, LeaveAnswer, LeavingMember, Now, Sync, SyncAnswer,
};
use crate::coordinator::group::machine::{Group, GroupState};
use crate::coordinator::group::records::consumer::{ConsumerKey, ConsumerValue};
use crate::coordinator::group::records::{Record, RecordKey, RecordValue};

type Reply<T> = oneshot::Sender<T>;

impl ShardState {
    /// Takes a record of a KIP-848 group in, in log order.
    pub(super) fn replay_consumer(&mut self, id: &Arc<str>, part: &ConsumerKey, value: Option<&ConsumerValue>) {
        if value.is_none() && self.consumer_group(id).is_none() {
            return;
        }
        let settings = self.settings;
        let entry = self.entry(id);
        if matches!(entry.kind, Kind::Classic(_)) {
            entry.kind = Kind::Consumer(Box::new(ConsumerGroup::new(id.clone())));
        }
        let Kind::Consumer(group) = &mut entry.kind else { return };
        group.replay(part, value);
        if value.is_none() && group.is_empty() && group.epoch() == 0 {
            // Its last record is gone; what is left are offsets.
            entry.kind = Kind::Classic(Group::new(settings));
            self.settle(id);
        }
    }

    /// The log has been replayed: sessions start anew.
    pub(in crate::coordinator) fn loaded(&mut self, now: Now) {
        let ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for id in ids {
            let (_, settings) = self.surroundings(&id);
            if let Some(group) = self.consumer_group(&id) {
                group.start_timers(now, &settings);
                self.settle(&id);
            }
        }
    }

    pub(super) fn consumer_heartbeat(
        &mut self,
        now: Now,
        id: &Arc<str>,
        heartbeat: ConsumerHeartbeat,
        reply: Reply<Result<HeartbeatAnswer, GroupError>>,
    ) {
        let (topics, settings) = self.surroundings(id);
        let env = Env { now, topics: &*topics, settings: &settings };
        let mut records = Vec::new();
        let mut candidate = match self.candidate(env, id, heartbeat.epoch == JOIN_EPOCH, &mut records) {
            Ok(candidate) => candidate,
            Err(error) => {
                send(reply, Err(error));
                self.settle(id);
                return;
            }
        };
        let Some(group) = candidate.as_mut().or_else(|| self.consumer_group(id)) else { return };
        let (answer, fate) = match group.heartbeat(env, heartbeat, &mut records) {
            Ok((beat, fate)) => {
                if let Some(resolve) = beat.resolve {
                    let job = ResolveJob { group: id.clone(), patterns: resolve.patterns, topics: topics.clone() };
                    self.resolving.push(job);
                }
                (Ok(beat.answer), fate)
            }
            Err(error) if candidate.is_some() => {
                // The classic group stays as it is.
                send(reply, Err(error));
                self.settle(id);
                return;
            }
            Err(error) => (Err(error), Fate::Stays),
        };
        if let Some(group) = candidate {
            self.install(id, group);
        }
        self.finish(env, id, records, fate);
        self.answer_when_durable(id, reply, answer, Err(GroupError::CoordinatorNotAvailable));
    }

    /// The consumer group that a classic group, or none, would become; `None` when the group is a consumer group already.
    fn candidate(
        &mut self,
        env: Env<'_>,
        id: &Arc<str>,
        joins: bool,
        records: &mut Vec<Record>,
    ) -> Result<Option<ConsumerGroup>, GroupError> {
        if !joins && !self.groups.contains_key(id) {
            return Err(GroupError::GroupIdNotFound);
        }
        let entry = self.entry(id);
        if entry.deleting {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        let Kind::Classic(classic) = &entry.kind else { return Ok(None) };
        match classic.state() {
            GroupState::Dead => Err(GroupError::CoordinatorNotAvailable),
            _ if !joins => Err(GroupError::GroupIdNotFound),
            GroupState::Empty => {
                if classic.generation() > 0 {
                    records.push(Record::tombstone(RecordKey::Group { group: id.clone() }));
                }
                Ok(Some(ConsumerGroup::new(id.clone())))
            }
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                migrate::upgrade(id, classic, env, records).map(Some)
            }
        }
    }

    /// Puts a consumer group in the place of a classic one.
    fn install(&mut self, id: &Arc<str>, group: ConsumerGroup) {
        let members = group.members().count();
        let before = std::mem::replace(&mut self.entry(id).kind, Kind::Consumer(Box::new(group)));
        if let Kind::Classic(classic) = before {
            if classic.members().next().is_some() {
                tracing::info!(group = %id, members, "a classic group becomes a consumer group");
            }
            self.carry_out(id, classic.dissolve());
        }
    }

    /// Writes what an event changed, and turns the group into a classic one if it has become that.
    fn finish(&mut self, env: Env<'_>, id: &Arc<str>, mut records: Vec<Record>, fate: Fate) {
        let mut effects = Vec::new();
        if let Fate::Downgrades { rebalance } = fate
            && let Some(group) = self.consumer_group(id)
        {
            let (metadata, protocols) = migrate::downgrade(id, group, env, &mut records);
            let (group, wanted) = Group::downgraded(self.settings, metadata, protocols, env.now, rebalance);
            tracing::info!(group = %id, members = group.members().count(), "a consumer group becomes a classic group");
            self.entry(id).kind = Kind::Classic(group);
            effects = wanted;
        }
        if !records.is_empty() {
            self.entry(id).writes.begin();
            self.write(records, Then::ConsumerWritten { group: id.clone() });
        }
        self.carry_out(id, effects);
        self.settle(id);
    }

    fn answer_when_durable<T: Send + 'static>(&mut self, id: &Arc<str>, reply: Reply<T>, answer: T, failed: T) {
        let waiting: Waiting = Box::new(move |durable| send(reply, if durable { answer } else { failed }));
        match self.groups.get_mut(id) {
            Some(entry) => entry.writes.when_durable(waiting),
            None => waiting(true),
        }
    }

    /// A write of a KIP-848 group has ended.
    pub(super) fn consumer_written(&mut self, now: Now, id: &Arc<str>, records: &[Record], durable: bool) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        let keys = records.iter().map(|record| record.key.clone());
        let done = entry.writes.end(now.elapsed_ms, durable, keys);
        let ok = !entry.writes.is_behind();
        for waiting in done {
            waiting(ok);
        }
    }

    /// Writes what the log lacks of a group, after a write was lost.
    pub(super) fn repair(&mut self, now: Now, id: &Arc<str>) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        let lost = entry.writes.take_lost(now.elapsed_ms);
        if lost.is_empty() {
            return;
        }
        let records = lost
            .into_iter()
            .map(|key| {
                let value = match (&key, &entry.kind) {
                    (RecordKey::Consumer { part, .. }, Kind::Consumer(group)) => {
                        group.value_of(part).map(RecordValue::Consumer)
                    }
                    (RecordKey::Group { .. }, Kind::Classic(group)) if group.generation() > 0 => {
                        Some(RecordValue::Group(group.metadata()))
                    }
                    _ => None,
                };
                Record { key, value }
            })
            .collect();
        entry.writes.begin();
        self.write(records, Then::ConsumerWritten { group: id.clone() });
        self.settle(id);
    }

    pub(super) fn tick_consumer_group(&mut self, now: Now, id: &Arc<str>) {
        let (topics, settings) = self.surroundings(id);
        let env = Env { now, topics: &*topics, settings: &settings };
        let mut records = Vec::new();
        let Some(group) = self.consumer_group(id) else { return };
        let fate = group.tick(env, &mut records);
        self.finish(env, id, records, fate);
    }

    /// What there is to be resolved. The results come back through [`Self::resolved`].
    pub(in crate::coordinator) fn take_resolving(&mut self) -> Vec<ResolveJob> {
        std::mem::take(&mut self.resolving)
    }

    /// Expressions have been resolved, or could not be.
    pub(in crate::coordinator) fn resolved(
        &mut self,
        now: Now,
        id: &Arc<str>,
        version: u64,
        matches: Option<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>,
    ) {
        let (topics, settings) = self.surroundings(id);
        let env = Env { now, topics: &*topics, settings: &settings };
        let mut records = Vec::new();
        let Some(group) = self.consumer_group(id) else { return };
        match matches {
            Some(matches) => group.regexes_resolved(env, version, matches, &mut records),
            None => group.resolving_failed(now),
        }
        self.finish(env, id, records, Fate::Stays);
    }

    pub(super) fn describe_consumer(
        &mut self,
        id: &Arc<str>,
        reply: Reply<Result<ConsumerGroupDescription, NotFound>>,
    ) {
        let (_, settings) = self.surroundings(id);
        let answer = match self.groups.get(id).map(|entry| &entry.kind) {
            None => Err(NotFound::Absent),
            Some(Kind::Classic(_)) => Err(NotFound::OtherType),
            Some(Kind::Consumer(group)) => Ok(group.describe(&settings)),
        };
        self.answer_when_durable(id, reply, answer, Err(NotFound::Unavailable));
    }

    pub(super) fn check_fetch(&mut self, id: &str, member: &str, epoch: i32) -> Result<(), GroupError> {
        match self.groups.get(id) {
            Some(entry) => match &entry.kind {
                Kind::Consumer(group) => group.check_fetch(member, epoch, entry.writes.in_flight()),
                Kind::Classic(_) => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// JoinGroup. Handed back when the group is classic, or is to be.
    pub(super) fn join_consumer_group(
        &mut self,
        now: Now,
        id: &Arc<str>,
        join: Join,
        reply: Reply<JoinAnswer>,
    ) -> Option<(Join, Reply<JoinAnswer>)> {
        if self.consumer_group(id).is_none() {
            return Some((join, reply));
        }
        let refused = JoinAnswer::refused(&join.member_id, GroupError::CoordinatorNotAvailable);
        if self.entry(id).deleting {
            send(reply, refused);
            return None;
        }
        let (topics, settings) = self.surroundings(id);
        let env = Env { now, topics: &*topics, settings: &settings };
        let mut records = Vec::new();
        let allowed = self.settings.min_session_timeout_ms..=self.settings.max_session_timeout_ms;
        let classic = self.settings;
        let group = self.consumer_group(id)?;
        if !allowed.contains(&join.session_timeout_ms) {
            send(reply, JoinAnswer::refused(&join.member_id, GroupError::InvalidSessionTimeout));
            return None;
        }
        if group.is_empty() {
            // Nobody speaks the consumer protocol any more: the group begins again as a classic one.
            records.extend(group.parts().into_iter().map(|part| Record::consumer(id, part, None)));
            self.entry(id).kind = Kind::Classic(Group::new(classic));
            self.finish(env, id, records, Fate::Stays);
            return Some((join, reply));
        }
        let member_id = join.member_id.clone();
        let (answer, fate) = match group.classic_join(env, join, &mut records) {
            Ok((answer, fate)) => (answer, fate),
            Err(error) => (JoinAnswer::refused(&member_id, error), Fate::Stays),
        };
        self.finish(env, id, records, fate);
        self.answer_when_durable(id, reply, answer, refused);
        None
    }

    /// SyncGroup. Handed back when the group is classic.
    pub(super) fn sync_consumer_group(
        &mut self,
        now: Now,
        id: &Arc<str>,
        sync: &Sync,
        reply: Reply<SyncAnswer>,
    ) -> Option<Reply<SyncAnswer>> {
        let (topics, settings) = self.surroundings(id);
        let env = Env { now, topics: &*topics, settings: &settings };
        let Some(group) = self.consumer_group(id) else { return Some(reply) };
        let answer = group.classic_sync(env, sync).unwrap_or_else(SyncAnswer::refused);
        self.answer_when_durable(id, reply, answer, SyncAnswer::refused(GroupError::CoordinatorNotAvailable));
        self.settle(id);
        None
    }

    /// Heartbeat. Handed back when the group is classic.
    pub(super) fn heartbeat_consumer_group(
        &mut self,
        now: Now,
        id: &Arc<str>,
        heartbeat: &Heartbeat,
        reply: Reply<Option<GroupError>>,
    ) -> Option<Reply<Option<GroupError>>> {
        let (topics, settings) = self.surroundings(id);
        let env = Env { now, topics: &*topics, settings: &settings };
        let Some(group) = self.consumer_group(id) else { return Some(reply) };
        let error = group.classic_heartbeat(env, heartbeat).err();
        self.answer_when_durable(id, reply, error, Some(GroupError::CoordinatorNotAvailable));
        self.settle(id);
        None
    }

    /// LeaveGroup. Handed back when the group is classic.
    #[allow(clippy::type_complexity, reason = "the request's own two parts")]
    pub(super) fn leave_consumer_group(
        &mut self,
        now: Now,
        id: &Arc<str>,
        members: Vec<LeavingMember>,
        reply: Reply<Vec<LeaveAnswer>>,
    ) -> Option<(Vec<LeavingMember>, Reply<Vec<LeaveAnswer>>)> {
        let (topics, settings) = self.surroundings(id);
        let env = Env { now, topics: &*topics, settings: &settings };
        let Some(group) = self.consumer_group(id) else { return Some((members, reply)) };
        let failed = members
            .iter()
            .map(|member| LeaveAnswer { member: member.clone(), error: Some(GroupError::CoordinatorNotAvailable) })
            .collect();
        let mut records = Vec::new();
        let (answers, fate) = group.classic_leave(env, members, &mut records);
        self.finish(env, id, records, fate);
        self.answer_when_durable(id, reply, answers, failed);
        None
    }
}
