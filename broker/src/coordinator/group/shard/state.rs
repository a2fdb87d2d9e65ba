//! The groups of one partition of `__consumer_offsets`, and what they want written.
//!
//! Plain state: requests, outcomes of writes and time go in; answers go out through the requests' own replies, writes wait
//! in an outbox. Whoever drives it must append the writes in their order and report the outcomes of what it appended in
//! that order too; then replaying the log yields this state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::oneshot;

use weir_model::producer::TxnMarker;
use weir_storage::TxnGuard;

use super::request::{Commit, FetchedTopic, GroupDescription, GroupListing, OffsetsDeleted, Request};
use super::transactional::PendingOffsets;
use crate::coordinator::group::event::{
    Effect, Event, GroupError, JoinAnswer, LeaveAnswer, Now, PersistToken, SyncAnswer, WaiterId,
};
use crate::coordinator::group::machine::{Group, GroupSettings, GroupState};
use crate::coordinator::group::offsets::{CommittedOffset, Offsets, TopicPartition};
use crate::coordinator::group::records::{Record, RecordKey, RecordValue};
use crate::coordinator::transaction::Producer;

/// Records to be appended together, and what is to happen then.
pub(in crate::coordinator) struct Write {
    pub(in crate::coordinator) records: Vec<Record>,
    pub(in crate::coordinator) scope: Scope,
    /// Why it was not appended, where whoever waits is told more than that.
    pub(in crate::coordinator) refusal: Option<GroupError>,
    then: Then,
}

/// When the records of a write count.
#[derive(Debug, Clone)]
pub(in crate::coordinator) enum Scope {
    /// At once.
    Plain,
    /// When the producer's transaction is committed.
    Transactional {
        /// Whose transaction.
        producer: Producer,
        /// What it was verified against.
        guard: TxnGuard,
    },
    /// It has none: it is the end of a transaction.
    Marker(TxnMarker),
}

impl Write {
    /// Whether it is an OffsetCommit's.
    #[cfg(test)]
    pub(in crate::coordinator) fn is_commit(&self) -> bool {
        matches!(self.then, Then::Committed { .. })
    }
}

pub(super) enum Then {
    Persisted { group: Arc<str>, token: PersistToken },
    Committed { reply: oneshot::Sender<Result<(), GroupError>> },
    Deleted { group: Arc<str>, reply: Option<oneshot::Sender<Result<(), GroupError>>> },
    OffsetsDeleted { reply: oneshot::Sender<OffsetsDeleted>, errors: Vec<Option<GroupError>> },
    TopicForgotten { reply: oneshot::Sender<()> },
    Nothing,
}

/// A parked or just arrived request of the state machine.
enum Waiter {
    Join(oneshot::Sender<JoinAnswer>),
    Sync(oneshot::Sender<SyncAnswer>),
    Heartbeat(oneshot::Sender<Option<GroupError>>),
    Leave(oneshot::Sender<Vec<LeaveAnswer>>),
}

struct Entry {
    group: Group,
    offsets: Offsets,
    /// The deadline that stands in the timer set.
    timer: Option<i64>,
}

/// See the module.
pub(in crate::coordinator) struct ShardState {
    settings: GroupSettings,
    offsets_retention_ms: i64,
    groups: BTreeMap<Arc<str>, Entry>,
    timers: BTreeSet<(i64, Arc<str>)>,
    waiters: HashMap<WaiterId, Waiter>,
    next_waiter: u64,
    outbox: Vec<Write>,
    /// Offsets of open transactions.
    pub(super) pending: PendingOffsets,
}

impl ShardState {
    pub(in crate::coordinator) fn new(settings: GroupSettings, offsets_retention_ms: i64) -> Self {
        Self {
            settings,
            offsets_retention_ms,
            groups: BTreeMap::new(),
            timers: BTreeSet::new(),
            waiters: HashMap::new(),
            next_waiter: 0,
            outbox: Vec::new(),
            pending: PendingOffsets::default(),
        }
    }

    /// Takes a record of the log in, in log order, before anything else happens.
    pub(in crate::coordinator) fn replay(&mut self, now: Now, record: Record) {
        match (record.key, record.value) {
            (RecordKey::Offset { group, topic, partition }, Some(RecordValue::Offset(committed))) => {
                let partition = (topic, partition);
                self.pending.overtake(&group, &partition);
                self.entry(&group).offsets.set(partition, Some(committed));
            }
            (RecordKey::Offset { group, topic, partition }, _) => {
                self.pending.overtake(&group, &(topic.clone(), partition));
                if let Some(entry) = self.groups.get_mut(&group) {
                    entry.offsets.set((topic, partition), None);
                    self.settle(&group);
                }
            }
            (RecordKey::Group { group }, Some(RecordValue::Group(metadata))) => {
                let settings = self.settings;
                self.entry(&group).group = Group::replayed(settings, metadata, now);
                self.settle(&group);
            }
            (RecordKey::Group { group }, _) => {
                if let Some(entry) = self.groups.get_mut(&group) {
                    entry.group = Group::new(self.settings);
                    self.settle(&group);
                }
            }
        }
    }

    /// Carries a request out.
    pub(in crate::coordinator) fn handle(&mut self, now: Now, request: Request) {
        match request {
            Request::Join { group, join, reply } => {
                if !join.member_id.is_empty() && !self.groups.contains_key(&group) {
                    send(reply, JoinAnswer::refused(&join.member_id, GroupError::UnknownMember));
                    return;
                }
                let waiter = self.park(Waiter::Join(reply));
                self.apply(now, &group, Event::Join(waiter, join));
            }
            Request::Sync { group, sync, reply } => {
                if !self.groups.contains_key(&group) {
                    send(reply, SyncAnswer::refused(GroupError::UnknownMember));
                    return;
                }
                let waiter = self.park(Waiter::Sync(reply));
                self.apply(now, &group, Event::Sync(waiter, sync));
            }
            Request::Heartbeat { group, heartbeat, reply } => {
                if !self.groups.contains_key(&group) {
                    send(reply, Some(GroupError::UnknownMember));
                    return;
                }
                let waiter = self.park(Waiter::Heartbeat(reply));
                self.apply(now, &group, Event::Heartbeat(waiter, heartbeat));
            }
            Request::Leave { group, members, reply } => {
                let waiter = self.park(Waiter::Leave(reply));
                self.apply(now, &group, Event::Leave(waiter, members));
            }
            Request::Commit { group, commit, reply } => self.commit(now, &group, commit, reply),
            Request::TransactionalCommit { group, commit, producer, guard, reply } => {
                self.commit_in_transaction(now, &group, commit, (producer, guard), reply);
            }
            Request::EndTransaction { marker, reply } => self.end_transaction(marker, reply),
            Request::Fetch { group, wanted, reply } => send(reply, self.fetch(&group, wanted)),
            Request::Describe { group, reply } => send(reply, self.describe(&group)),
            Request::List { reply } => send(reply, self.list()),
            Request::Delete { group, reply } => self.delete(&group, reply),
            Request::DeleteOffsets { group, partitions, reply } => self.delete_offsets(&group, partitions, reply),
            Request::TopicDeleted { topic, reply } => self.forget_topic(&topic, reply),
        }
    }

    /// Fires every timer that is due.
    pub(in crate::coordinator) fn tick(&mut self, now: Now) {
        while let Some((deadline, group)) = self.timers.first().cloned() {
            if deadline > now.elapsed_ms {
                return;
            }
            self.apply(now, &group, Event::Tick);
        }
    }

    /// When [`Self::tick`] has something to do, in elapsed time.
    pub(in crate::coordinator) fn deadline(&self) -> Option<i64> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// What is to be appended, in order.
    pub(in crate::coordinator) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.outbox)
    }

    /// A write is durable, or was not and will not be appended. To be called in the order of the appends.
    pub(in crate::coordinator) fn written(&mut self, now: Now, write: Write, durable: bool) {
        let mut touched = BTreeSet::new();
        for record in write.records {
            let RecordKey::Offset { group, topic, partition } = record.key else { continue };
            let partition = (topic, partition);
            let committed = match record.value {
                Some(RecordValue::Offset(committed)) => Some(committed),
                _ => None,
            };
            if let Some(entry) = self.groups.get_mut(&group) {
                entry.offsets.finish(&partition);
            }
            match (&write.scope, committed) {
                (Scope::Transactional { producer, .. }, Some(committed)) if durable => {
                    self.pending.add(producer.id, &group, partition, committed);
                }
                (Scope::Plain, committed) if durable => {
                    // Also of a group that has nothing but what open transactions committed.
                    self.pending.overtake(&group, &partition);
                    if let Some(entry) = self.groups.get_mut(&group) {
                        entry.offsets.set(partition, committed);
                    }
                }
                (Scope::Plain | Scope::Transactional { .. } | Scope::Marker(_), _) => {}
            }
            touched.insert(group);
        }
        if let (Scope::Marker(marker), true) = (&write.scope, durable) {
            self.take_marker(marker);
        }
        let failure = write.refusal.unwrap_or(GroupError::CoordinatorNotAvailable);
        match write.then {
            Then::Nothing => {}
            Then::TopicForgotten { reply } => send(reply, ()),
            Then::Committed { reply } => send(reply, if durable { Ok(()) } else { Err(failure) }),
            Then::OffsetsDeleted { reply, errors } => send(reply, if durable { Ok(errors) } else { Err(failure) }),
            Then::Persisted { group, token } => self.apply(now, &group, Event::Persisted { token, durable }),
            Then::Deleted { group, reply } => {
                if let Some(entry) = self.groups.get_mut(&group) {
                    if durable {
                        entry.group = Group::new(self.settings);
                    } else {
                        entry.group.abandon_delete();
                    }
                }
                touched.insert(group);
                if let Some(reply) = reply {
                    send(reply, if durable { Ok(()) } else { Err(failure) });
                }
            }
        }
        for group in touched {
            self.settle(&group);
        }
    }

    /// Has expired offsets, and groups that hold nothing any more, removed (S-85).
    pub(in crate::coordinator) fn expire(&mut self, now: Now) {
        let ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for id in ids {
            let Some(entry) = self.groups.get(&id) else { continue };
            let expired: Vec<TopicPartition> = entry
                .offsets
                .iter()
                .filter(|((topic, _), committed)| self.is_expired(&entry.group, topic, committed, now.wall_ms))
                .map(|(partition, _)| partition.clone())
                .collect();
            // A group that an open transaction committed to is in use.
            let nothing_left = entry.offsets.partitions().len() == expired.len() && !self.pending.has_any(&id);
            if nothing_left && entry.group.is_idle() {
                self.begin_delete(&id, None);
            } else if !expired.is_empty() {
                let records = expired.into_iter().map(|partition| offset_tombstone(&id, partition)).collect();
                self.write(records, Then::Nothing);
            }
        }
    }

    /// Every committed offset, for comparing states.
    #[cfg(test)]
    pub(in crate::coordinator) fn all_offsets(&self) -> BTreeMap<(Arc<str>, TopicPartition), CommittedOffset> {
        let of_group = |(id, entry): (&Arc<str>, &Entry)| -> Vec<((Arc<str>, TopicPartition), CommittedOffset)> {
            entry
                .offsets
                .iter()
                .map(|(partition, committed)| ((id.clone(), partition.clone()), committed.clone()))
                .collect()
        };
        self.groups.iter().flat_map(of_group).collect()
    }

    /// A group, for looking at.
    #[cfg(test)]
    pub(in crate::coordinator) fn group(&self, id: &str) -> Option<&Group> {
        self.groups.get(id).map(|entry| &entry.group)
    }

    fn is_expired(&self, group: &Group, topic: &str, committed: &CommittedOffset, wall_ms: i64) -> bool {
        if let Some(expires) = committed.expires_wall_ms {
            return expires <= wall_ms && !group.subscribes_to(topic);
        }
        let since = match (group.protocol_type(), group.state()) {
            // Only commits, never members: the age of the commit counts.
            (None, _) => committed.commit_wall_ms,
            (Some(_), GroupState::Empty) => {
                group.state_since_wall_ms().unwrap_or(committed.commit_wall_ms).max(committed.commit_wall_ms)
            }
            // A live consumer may have dropped a topic from its subscription.
            (Some(kind), GroupState::Stable) if &**kind == "consumer" && !group.subscribes_to(topic) => {
                committed.commit_wall_ms
            }
            (Some(_), _) => return false,
        };
        wall_ms.saturating_sub(since) >= self.offsets_retention_ms
    }

    fn commit(&mut self, now: Now, id: &Arc<str>, commit: Commit, reply: oneshot::Sender<Result<(), GroupError>>) {
        if commit.generation >= 0 && !self.groups.contains_key(id) {
            // A group that exists no more, or never did: its member has to join.
            send(reply, Err(GroupError::IllegalGeneration));
            return;
        }
        let checked =
            self.entry(id).group.check_commit(now, &commit.member_id, commit.instance_id.as_ref(), commit.generation);
        if checked.is_err() || commit.offsets.is_empty() {
            send(reply, checked);
            self.settle(id);
            return;
        }
        let expires_wall_ms = commit.retention_ms.map(|retention| now.wall_ms.saturating_add(retention));
        let records = commit
            .offsets
            .into_iter()
            .map(|new| {
                let committed = CommittedOffset {
                    offset: new.offset,
                    leader_epoch: new.leader_epoch,
                    metadata: new.metadata,
                    commit_wall_ms: now.wall_ms,
                    expires_wall_ms,
                };
                Record::offset(id, &new.topic, new.partition, committed)
            })
            .collect();
        self.write(records, Then::Committed { reply });
        self.settle(id);
    }

    /// Whether a member may commit in a transaction (KIP-447). Allowed in the middle of a rebalance too, since the member's offsets are fenced by its generation.
    pub(super) fn check_transactional_commit(
        &mut self,
        now: Now,
        id: &Arc<str>,
        commit: &Commit,
    ) -> Result<(), GroupError> {
        if commit.generation >= 0 && !self.groups.contains_key(id) {
            return Err(GroupError::IllegalGeneration);
        }
        let instance_id = commit.instance_id.as_ref();
        self.entry(id).group.check_transactional_commit(now, &commit.member_id, instance_id, commit.generation)
    }

    /// An offset that a committed transaction brought.
    pub(super) fn set_offset(&mut self, id: &Arc<str>, partition: TopicPartition, committed: CommittedOffset) {
        self.entry(id).offsets.set(partition, Some(committed));
    }

    fn fetch(&self, id: &str, wanted: Option<Vec<(Arc<str>, Vec<i32>)>>) -> Vec<FetchedTopic> {
        let entry = self.groups.get(id);
        let Some(wanted) = wanted else {
            let mut topics: Vec<FetchedTopic> = Vec::new();
            for ((topic, partition), committed) in entry.iter().flat_map(|entry| entry.offsets.iter()) {
                let found = (*partition, Some(committed.clone()));
                match topics.last_mut().filter(|last| last.topic == *topic) {
                    Some(last) => last.partitions.push(found),
                    None => topics.push(FetchedTopic {
                        topic: topic.clone(),
                        partitions: vec![found],
                        unstable: BTreeSet::new(),
                    }),
                }
            }
            return self.mark_unstable(id, topics);
        };
        let committed =
            |topic: &Arc<str>, partition| entry.and_then(|entry| entry.offsets.get(topic, partition)).cloned();
        let topics = wanted
            .into_iter()
            .map(|(topic, partitions)| FetchedTopic {
                partitions: partitions.into_iter().map(|partition| (partition, committed(&topic, partition))).collect(),
                topic,
                unstable: BTreeSet::new(),
            })
            .collect();
        self.mark_unstable(id, topics)
    }

    fn mark_unstable(&self, id: &str, mut topics: Vec<FetchedTopic>) -> Vec<FetchedTopic> {
        let id = Arc::from(id);
        if self.pending.has_any(&id) {
            for fetched in &mut topics {
                let indexes = fetched.partitions.iter().map(|(index, _)| *index);
                let unstable = indexes.filter(|index| self.pending.has(&id, &(fetched.topic.clone(), *index)));
                fetched.unstable = unstable.collect();
            }
        }
        topics
    }

    fn describe(&self, id: &str) -> Option<GroupDescription> {
        let group = &self.groups.get(id)?.group;
        Some(GroupDescription {
            state: group.state(),
            protocol_type: group.protocol_type().cloned(),
            protocol_name: group.protocol_name().cloned(),
            members: group.members().cloned().collect(),
        })
    }

    fn list(&self) -> Vec<GroupListing> {
        self.groups
            .iter()
            .map(|(id, entry)| GroupListing {
                group: id.clone(),
                protocol_type: entry.group.protocol_type().cloned(),
                state: entry.group.state(),
            })
            .collect()
    }

    fn delete(&mut self, id: &Arc<str>, reply: oneshot::Sender<Result<(), GroupError>>) {
        let checked = match self.groups.get(id) {
            None => Err(GroupError::GroupIdNotFound),
            Some(entry) => match entry.group.state() {
                GroupState::Empty => Ok(()),
                GroupState::Dead => Err(GroupError::GroupIdNotFound),
                GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                    Err(GroupError::NonEmptyGroup)
                }
            },
        };
        match checked {
            Ok(()) => self.begin_delete(id, Some(reply)),
            Err(error) => send(reply, Err(error)),
        }
    }

    /// The group is empty: removes all there is of it.
    fn begin_delete(&mut self, id: &Arc<str>, reply: Option<oneshot::Sender<Result<(), GroupError>>>) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        if let Err(error) = entry.group.begin_delete() {
            if let Some(reply) = reply {
                send(reply, Err(error));
            }
            return;
        }
        let mut partitions = entry.offsets.partitions();
        // What is committed in a transaction does not come back after this.
        partitions.extend(self.pending.partitions(id).cloned());
        partitions.sort();
        partitions.dedup();
        let mut records: Vec<Record> =
            partitions.into_iter().map(|partition| offset_tombstone(id, partition)).collect();
        records.push(Record::tombstone(RecordKey::Group { group: id.clone() }));
        self.write(records, Then::Deleted { group: id.clone(), reply });
    }

    fn delete_offsets(
        &mut self,
        id: &Arc<str>,
        partitions: Vec<TopicPartition>,
        reply: oneshot::Sender<OffsetsDeleted>,
    ) {
        let Some(entry) = self.groups.get(id) else {
            send(reply, Err(GroupError::GroupIdNotFound));
            return;
        };
        let consumers = entry.group.protocol_type().is_some_and(|kind| &**kind == "consumer");
        match entry.group.state() {
            GroupState::Dead => {
                send(reply, Err(GroupError::GroupIdNotFound));
                return;
            }
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable if !consumers => {
                send(reply, Err(GroupError::NonEmptyGroup));
                return;
            }
            GroupState::Empty
            | GroupState::PreparingRebalance
            | GroupState::CompletingRebalance
            | GroupState::Stable => {}
        }
        let errors: Vec<Option<GroupError>> = partitions
            .iter()
            .map(|(topic, _)| entry.group.subscribes_to(topic).then_some(GroupError::SubscribedToTopic))
            .collect();
        let mut known: BTreeSet<TopicPartition> = entry.offsets.partitions().into_iter().collect();
        known.extend(self.pending.partitions(id).cloned());
        let records: Vec<Record> = partitions
            .into_iter()
            .zip(&errors)
            .filter(|(partition, error)| error.is_none() && known.contains(partition))
            .map(|(partition, _)| offset_tombstone(id, partition))
            .collect();
        if records.is_empty() {
            send(reply, Ok(errors));
        } else {
            self.write(records, Then::OffsetsDeleted { reply, errors });
        }
    }

    fn forget_topic(&mut self, topic: &Arc<str>, reply: oneshot::Sender<()>) {
        let mut records = Vec::new();
        let mut groups: BTreeSet<Arc<str>> = self.groups.keys().cloned().collect();
        groups.extend(self.pending.groups().cloned());
        for id in &groups {
            let known = self.groups.get(id).map(|entry| entry.offsets.partitions()).unwrap_or_default();
            let mut known: BTreeSet<TopicPartition> = known.into_iter().collect();
            known.extend(self.pending.partitions(id).cloned());
            let of_topic = known.into_iter().filter(|(name, _)| name == topic);
            records.extend(of_topic.map(|partition| offset_tombstone(id, partition)));
        }
        if records.is_empty() {
            send(reply, ());
        } else {
            self.write(records, Then::TopicForgotten { reply });
        }
    }

    fn write(&mut self, records: Vec<Record>, then: Then) {
        self.write_scoped(records, then, Scope::Plain);
    }

    pub(super) fn write_scoped(&mut self, records: Vec<Record>, then: Then, scope: Scope) {
        for record in &records {
            if let RecordKey::Offset { group, topic, partition } = &record.key
                && let Some(entry) = self.groups.get_mut(group)
            {
                entry.offsets.begin(&(topic.clone(), *partition));
            }
        }
        self.outbox.push(Write { records, scope, refusal: None, then });
    }

    fn park(&mut self, waiter: Waiter) -> WaiterId {
        self.next_waiter += 1;
        let id = WaiterId(self.next_waiter);
        self.waiters.insert(id, waiter);
        id
    }

    fn entry(&mut self, id: &Arc<str>) -> &mut Entry {
        let settings = self.settings;
        let new = || Entry { group: Group::new(settings), offsets: Offsets::default(), timer: None };
        self.groups.entry(id.clone()).or_insert_with(new)
    }

    fn apply(&mut self, now: Now, id: &Arc<str>, event: Event) {
        let effects = self.entry(id).group.apply(now, event);
        for effect in effects {
            match effect {
                Effect::Persist(token) => {
                    // The effects of one event come after all its changes, so this is the state it left.
                    let record = Record::group(id, self.entry(id).group.metadata());
                    self.write(vec![record], Then::Persisted { group: id.clone(), token });
                }
                Effect::AnswerJoin(waiter, answer) => {
                    if let Some(Waiter::Join(reply)) = self.waiters.remove(&waiter) {
                        send(reply, answer);
                    }
                }
                Effect::AnswerSync(waiter, answer) => {
                    if let Some(Waiter::Sync(reply)) = self.waiters.remove(&waiter) {
                        send(reply, answer);
                    }
                }
                Effect::AnswerHeartbeat(waiter, error) => {
                    if let Some(Waiter::Heartbeat(reply)) = self.waiters.remove(&waiter) {
                        send(reply, error);
                    }
                }
                Effect::AnswerLeave(waiter, answers) => {
                    if let Some(Waiter::Leave(reply)) = self.waiters.remove(&waiter) {
                        send(reply, answers);
                    }
                }
            }
        }
        self.settle(id);
    }

    /// Brings the timer set up to date with the group, and drops a group that left no trace.
    pub(super) fn settle(&mut self, id: &Arc<str>) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        let deadline = entry.group.deadline();
        if deadline != entry.timer {
            if let Some(stale) = entry.timer.take() {
                self.timers.remove(&(stale, id.clone()));
            }
            if let Some(deadline) = deadline {
                self.timers.insert((deadline, id.clone()));
            }
            entry.timer = deadline;
        }
        // Generation 0 means that nothing was ever written about its members.
        if entry.group.is_idle() && entry.group.generation() == 0 && entry.offsets.is_empty() {
            self.groups.remove(id);
        }
    }
}

fn offset_tombstone(group: &Arc<str>, (topic, partition): TopicPartition) -> Record {
    Record::tombstone(RecordKey::Offset { group: group.clone(), topic, partition })
}

/// A requester that is gone needs no answer (S-12).
fn send<T>(reply: oneshot::Sender<T>, answer: T) {
    let _ = reply.send(answer);
}
