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

use super::kind::Kind;
use super::request::{Commit, FetchedTopic, GroupDescription, GroupListing, NotFound, OffsetsDeleted, Request};
use super::transactional::PendingOffsets;
use super::writes::Writes;
use crate::coordinator::group::consumer::ConsumerGroup;
use crate::coordinator::group::consumer::assignment::{TopicCatalog, TopicSource};
use crate::coordinator::group::consumer::event::ConsumerSettings;
use crate::coordinator::group::event::{
    Effect, Event, GroupError, JoinAnswer, LeaveAnswer, Now, PersistToken, SyncAnswer, WaiterId,
};
use crate::coordinator::group::machine::{Group, GroupSettings};
use crate::coordinator::group::offsets::{CommittedOffset, Offsets, TopicPartition};
use crate::coordinator::group::records::{Record, RecordKey, RecordValue};
use crate::coordinator::group_configs::GroupConfigs;
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
    Persisted {
        group: Arc<str>,
        token: PersistToken,
    },
    /// A part of a KIP-848 group, or a group turned into the other kind.
    ConsumerWritten {
        group: Arc<str>,
    },
    Committed {
        reply: oneshot::Sender<Result<(), GroupError>>,
    },
    Deleted {
        group: Arc<str>,
        reply: Option<oneshot::Sender<Result<(), GroupError>>>,
    },
    OffsetsDeleted {
        reply: oneshot::Sender<OffsetsDeleted>,
        errors: Vec<Option<GroupError>>,
    },
    TopicForgotten {
        reply: oneshot::Sender<()>,
    },
    Nothing,
}

/// A parked or just arrived request of the state machine.
pub(super) enum Waiter {
    Join(oneshot::Sender<JoinAnswer>),
    Sync(oneshot::Sender<SyncAnswer>),
    Heartbeat(oneshot::Sender<Option<GroupError>>),
    Leave(oneshot::Sender<Vec<LeaveAnswer>>),
}

pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) offsets: Offsets,
    /// What was written of a KIP-848 group and is not durable yet.
    pub(super) writes: Writes,
    /// A KIP-848 group is being deleted.
    pub(super) deleting: bool,
    /// The deadline that stands in the timer set.
    timer: Option<i64>,
}

/// See the module.
pub(in crate::coordinator) struct ShardState {
    pub(super) settings: GroupSettings,
    configs: Arc<GroupConfigs>,
    topics: Arc<dyn TopicSource>,
    offsets_retention_ms: i64,
    pub(super) groups: BTreeMap<Arc<str>, Entry>,
    timers: BTreeSet<(i64, Arc<str>)>,
    waiters: HashMap<WaiterId, Waiter>,
    next_waiter: u64,
    outbox: Vec<Write>,
    /// Offsets of open transactions.
    pub(super) pending: PendingOffsets,
    pub(super) resolving: Vec<ResolveJob>,
}

/// Regular expressions of a group, to be resolved where it may take long.
pub(in crate::coordinator) struct ResolveJob {
    pub(in crate::coordinator) group: Arc<str>,
    pub(in crate::coordinator) patterns: BTreeSet<Arc<str>>,
    pub(in crate::coordinator) topics: Arc<dyn TopicCatalog>,
}

impl ShardState {
    pub(in crate::coordinator) fn new(
        settings: GroupSettings,
        configs: Arc<GroupConfigs>,
        topics: Arc<dyn TopicSource>,
        offsets_retention_ms: i64,
    ) -> Self {
        Self {
            settings,
            configs,
            topics,
            resolving: Vec::new(),
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
                self.entry(&group).kind = Kind::Classic(Group::replayed(settings, metadata, now));
                self.settle(&group);
            }
            (RecordKey::Group { group }, _) => {
                if let Some(entry) = self.groups.get_mut(&group)
                    && matches!(entry.kind, Kind::Classic(_))
                {
                    entry.kind = Kind::Classic(Group::new(self.settings));
                    self.settle(&group);
                }
            }
            (RecordKey::Consumer { group, part }, value) => {
                let value = match &value {
                    Some(RecordValue::Consumer(value)) => Some(value),
                    _ => None,
                };
                self.replay_consumer(&group, &part, value);
            }
        }
    }

    /// Carries a request out.
    pub(in crate::coordinator) fn handle(&mut self, now: Now, request: Request) {
        match request {
            Request::ConsumerHeartbeat { group, heartbeat, reply } => {
                self.consumer_heartbeat(now, &group, heartbeat, reply);
            }
            Request::DescribeConsumer { group, reply } => self.describe_consumer(&group, reply),
            Request::Join { group, join, reply } => {
                let Some((join, reply)) = self.join_consumer_group(now, &group, join, reply) else { return };
                if !join.member_id.is_empty() && !self.groups.contains_key(&group) {
                    send(reply, JoinAnswer::refused(&join.member_id, GroupError::UnknownMember));
                    return;
                }
                let waiter = self.park(Waiter::Join(reply));
                self.apply(now, &group, Event::Join(waiter, join));
            }
            Request::Sync { group, sync, reply } => {
                let Some(reply) = self.sync_consumer_group(now, &group, &sync, reply) else { return };
                if !self.groups.contains_key(&group) {
                    send(reply, SyncAnswer::refused(GroupError::UnknownMember));
                    return;
                }
                let waiter = self.park(Waiter::Sync(reply));
                self.apply(now, &group, Event::Sync(waiter, sync));
            }
            Request::Heartbeat { group, heartbeat, reply } => {
                let Some(reply) = self.heartbeat_consumer_group(now, &group, &heartbeat, reply) else { return };
                if !self.groups.contains_key(&group) {
                    send(reply, Some(GroupError::UnknownMember));
                    return;
                }
                let waiter = self.park(Waiter::Heartbeat(reply));
                self.apply(now, &group, Event::Heartbeat(waiter, heartbeat));
            }
            Request::Leave { group, members, reply } => {
                let Some((members, reply)) = self.leave_consumer_group(now, &group, members, reply) else { return };
                let waiter = self.park(Waiter::Leave(reply));
                self.apply(now, &group, Event::Leave(waiter, members));
            }
            Request::Commit { group, commit, reply } => self.commit(now, &group, commit, reply),
            Request::TransactionalCommit { group, commit, producer, guard, reply } => {
                self.commit_in_transaction(now, &group, commit, (producer, guard), reply);
            }
            Request::EndTransaction { marker, reply } => self.end_transaction(marker, reply),
            Request::Fetch { group, wanted, member, reply } => {
                let checked = member.map_or(Ok(()), |(id, epoch)| self.check_fetch(&group, &id, epoch));
                send(reply, checked.map(|()| self.fetch(&group, wanted)));
            }
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
            self.repair(now, &group);
            match self.groups.get(&group).map(|entry| &entry.kind) {
                Some(Kind::Consumer(_)) => self.tick_consumer_group(now, &group),
                Some(Kind::Classic(_)) | None => self.apply(now, &group, Event::Tick),
            }
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
        if let Then::ConsumerWritten { group } = &write.then {
            self.consumer_written(now, group, &write.records, durable);
            touched.insert(group.clone());
        }
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
            Then::Nothing | Then::ConsumerWritten { .. } => {}
            Then::TopicForgotten { reply } => send(reply, ()),
            Then::Committed { reply } => send(reply, if durable { Ok(()) } else { Err(failure) }),
            Then::OffsetsDeleted { reply, errors } => send(reply, if durable { Ok(errors) } else { Err(failure) }),
            Then::Persisted { group, token } => self.apply(now, &group, Event::Persisted { token, durable }),
            Then::Deleted { group, reply } => {
                if let Some(entry) = self.groups.get_mut(&group) {
                    entry.deleting = false;
                    match &mut entry.kind {
                        kind if durable => *kind = Kind::Classic(Group::new(self.settings)),
                        Kind::Classic(group) => group.abandon_delete(),
                        Kind::Consumer(_) => {}
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
                .filter(|((topic, _), committed)| self.is_expired(&entry.kind, topic, committed, now.wall_ms))
                .map(|(partition, _)| partition.clone())
                .collect();
            // A group that an open transaction committed to is in use.
            let nothing_left = entry.offsets.partitions().len() == expired.len() && !self.pending.has_any(&id);
            if nothing_left && entry.kind.is_idle() {
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

    /// A classic group, for looking at.
    #[cfg(test)]
    pub(in crate::coordinator) fn group(&self, id: &str) -> Option<&Group> {
        match self.groups.get(id).map(|entry| &entry.kind) {
            Some(Kind::Classic(group)) => Some(group),
            Some(Kind::Consumer(_)) | None => None,
        }
    }

    fn is_expired(&self, group: &Kind, topic: &str, committed: &CommittedOffset, wall_ms: i64) -> bool {
        if let Some(expires) = committed.expires_wall_ms {
            return expires <= wall_ms && !group.subscribes_to(topic);
        }
        let since = group.unused_since(topic, committed);
        since.is_some_and(|since| wall_ms.saturating_sub(since) >= self.offsets_retention_ms)
    }

    fn commit(&mut self, now: Now, id: &Arc<str>, commit: Commit, reply: oneshot::Sender<Result<(), GroupError>>) {
        if commit.generation >= 0 && !self.groups.contains_key(id) {
            // A group that exists no more, or never did: its member has to join.
            let knows = commit.knows_member_epochs;
            send(reply, Err(if knows { GroupError::GroupIdNotFound } else { GroupError::IllegalGeneration }));
            return;
        }
        let entry = self.entry(id);
        let checked = match &mut entry.kind {
            Kind::Consumer(_) if entry.deleting => Err(GroupError::CoordinatorNotAvailable),
            Kind::Consumer(group) => {
                group.check_commit(&commit.member_id, commit.generation, commit.knows_member_epochs)
            }
            Kind::Classic(group) => {
                group.check_commit(now, &commit.member_id, commit.instance_id.as_ref(), commit.generation)
            }
        };
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
        let entry = self.entry(id);
        match &mut entry.kind {
            Kind::Consumer(_) if entry.deleting => Err(GroupError::CoordinatorNotAvailable),
            Kind::Consumer(group) => {
                group.check_transactional_commit(&commit.member_id, instance_id.map(|id| &**id), commit.generation)
            }
            Kind::Classic(group) => {
                group.check_transactional_commit(now, &commit.member_id, instance_id, commit.generation)
            }
        }
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

    fn describe(&self, id: &str) -> Result<GroupDescription, NotFound> {
        match &self.groups.get(id).ok_or(NotFound::Absent)?.kind {
            Kind::Consumer(_) => Err(NotFound::OtherType),
            Kind::Classic(group) => Ok(GroupDescription {
                state: group.state(),
                protocol_type: group.protocol_type().cloned(),
                protocol_name: group.protocol_name().cloned(),
                members: group.members().cloned().collect(),
            }),
        }
    }

    fn list(&self) -> Vec<GroupListing> {
        self.groups
            .iter()
            .map(|(id, entry)| GroupListing {
                group: id.clone(),
                protocol_type: entry.kind.protocol_type(),
                state: entry.kind.state_name(),
                group_type: entry.kind.type_name(),
            })
            .collect()
    }

    fn delete(&mut self, id: &Arc<str>, reply: oneshot::Sender<Result<(), GroupError>>) {
        if self.pending.has_any(id) {
            // A group that has nothing but what an open transaction committed is one.
            self.entry(id);
        }
        let checked = match self.groups.get(id) {
            None => Err(GroupError::GroupIdNotFound),
            Some(entry) if entry.deleting => Err(GroupError::GroupIdNotFound),
            Some(entry) => entry.kind.check_delete(),
        };
        match checked {
            Ok(()) => self.begin_delete(id, Some(reply)),
            Err(error) => send(reply, Err(error)),
        }
    }

    /// The group is empty: removes all there is of it.
    fn begin_delete(&mut self, id: &Arc<str>, reply: Option<oneshot::Sender<Result<(), GroupError>>>) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        let begun = match &mut entry.kind {
            Kind::Classic(group) => {
                group.begin_delete().map(|()| vec![Record::tombstone(RecordKey::Group { group: id.clone() })])
            }
            Kind::Consumer(_) if entry.deleting => Err(GroupError::GroupIdNotFound),
            Kind::Consumer(group) => {
                entry.deleting = true;
                Ok(group.parts().into_iter().map(|part| Record::consumer(id, part, None)).collect())
            }
        };
        let mut of_group = match begun {
            Ok(records) => records,
            Err(error) => {
                if let Some(reply) = reply {
                    send(reply, Err(error));
                }
                return;
            }
        };
        let mut partitions = entry.offsets.partitions();
        // What is committed in a transaction does not come back after this.
        partitions.extend(self.pending.partitions(id).cloned());
        partitions.sort();
        partitions.dedup();
        let mut records: Vec<Record> =
            partitions.into_iter().map(|partition| offset_tombstone(id, partition)).collect();
        records.append(&mut of_group);
        self.write(records, Then::Deleted { group: id.clone(), reply });
    }

    fn delete_offsets(
        &mut self,
        id: &Arc<str>,
        partitions: Vec<TopicPartition>,
        reply: oneshot::Sender<OffsetsDeleted>,
    ) {
        let Some(entry) = self.groups.get(id).filter(|entry| !entry.deleting) else {
            send(reply, Err(GroupError::GroupIdNotFound));
            return;
        };
        if let Err(error) = entry.kind.check_delete_offsets() {
            send(reply, Err(error));
            return;
        }
        let errors: Vec<Option<GroupError>> = partitions
            .iter()
            .map(|(topic, _)| entry.kind.subscribes_to(topic).then_some(GroupError::SubscribedToTopic))
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

    pub(super) fn write(&mut self, records: Vec<Record>, then: Then) {
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

    pub(super) fn park(&mut self, waiter: Waiter) -> WaiterId {
        self.next_waiter += 1;
        let id = WaiterId(self.next_waiter);
        self.waiters.insert(id, waiter);
        id
    }

    pub(super) fn entry(&mut self, id: &Arc<str>) -> &mut Entry {
        let settings = self.settings;
        let new = || Entry {
            kind: Kind::Classic(Group::new(settings)),
            offsets: Offsets::default(),
            writes: Writes::default(),
            deleting: false,
            timer: None,
        };
        self.groups.entry(id.clone()).or_insert_with(new)
    }

    /// The topics there are now, and the settings that a KIP-848 group obeys.
    pub(super) fn surroundings(&self, id: &str) -> (Arc<dyn TopicCatalog>, ConsumerSettings) {
        (self.topics.current(), self.configs.settings_of(id))
    }

    pub(super) fn consumer_group(&mut self, id: &str) -> Option<&mut ConsumerGroup> {
        match self.groups.get_mut(id).map(|entry| &mut entry.kind) {
            Some(Kind::Consumer(group)) => Some(group),
            Some(Kind::Classic(_)) | None => None,
        }
    }

    fn apply(&mut self, now: Now, id: &Arc<str>, event: Event) {
        // What was asked of a classic group does not concern the consumer group it has become.
        let Kind::Classic(group) = &mut self.entry(id).kind else { return };
        let effects = group.apply(now, event);
        self.carry_out(id, effects);
        self.settle(id);
    }

    /// Does what a classic group wants done.
    pub(super) fn carry_out(&mut self, id: &Arc<str>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist(token) => {
                    // The effects of one event come after all its changes, so this is the state it left.
                    let Kind::Classic(group) = &self.entry(id).kind else { continue };
                    let record = Record::group(id, group.metadata());
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
    }

    /// Brings the timer set up to date with the group, and drops a group that left no trace.
    pub(super) fn settle(&mut self, id: &Arc<str>) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        let deadline = entry.kind.deadline().into_iter().chain(entry.writes.repair_at()).min();
        if deadline != entry.timer {
            if let Some(stale) = entry.timer.take() {
                self.timers.remove(&(stale, id.clone()));
            }
            if let Some(deadline) = deadline {
                self.timers.insert((deadline, id.clone()));
            }
            entry.timer = deadline;
        }
        let settled = !entry.writes.in_flight() && !entry.writes.is_behind();
        if settled && entry.kind.left_no_trace() && entry.offsets.is_empty() {
            self.groups.remove(id);
        }
    }
}

fn offset_tombstone(group: &Arc<str>, (topic, partition): TopicPartition) -> Record {
    Record::tombstone(RecordKey::Offset { group: group.clone(), topic, partition })
}

/// A requester that is gone needs no answer (S-12).
pub(super) fn send<T>(reply: oneshot::Sender<T>, answer: T) {
    let _ = reply.send(answer);
}
