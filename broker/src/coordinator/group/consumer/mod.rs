//! KIP-848 consumer groups: a state machine without clock, task or socket.
//!
//! ```text
//!   subscriptions, topics --> group epoch --assignor--> target assignment (epoch, per member)
//!                                                             |
//!     heartbeats of a member: owned partitions --reconcile--> its current assignment, its epoch
//! ```
//!
//! All state that outlives a restart is changed by records alone: [`ConsumerGroup::replay`] is the one place that changes it,
//! for records read from the log and for those just made alike, so that a restart finds what was live. What a request
//! changes is appended to a list of records; its answer may leave when they are durable.
//!
//! * A member's epoch is the group epoch it has reached. It moves on when it has given up what the target takes from it; it
//!   gets a partition when nobody owns it any more: assigned to no member, pending revocation at none.
//! * Sessions and rebalance time-outs are not in the log: after a restart they start anew.
//! * Members of the classic protocol can be in the group ([`classic`]); [`migrate`] turns classic groups into consumer groups
//!   and back.
//!
//! The rules are those of Kafka's `GroupMetadataManager`, `CurrentAssignmentBuilder` and `TargetAssignmentBuilder` of 4.2.

pub mod assignment;
pub mod assignor;
mod classic;
pub mod event;
mod hash;
mod heartbeat;
mod leave;
pub(in crate::coordinator) mod migrate;
mod protocol;
mod reconcile;
pub mod regex;
mod subscription;
mod target;
mod timers;

#[cfg(test)]
pub(in crate::coordinator) mod test_topics;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::event::{GroupError, Now};
use super::member::MemberId;
use super::records::Record;
use super::records::consumer::{
    ConsumerKey, ConsumerValue, CurrentAssignment, MemberMetadata, MemberState, ResolvedRegex,
};
use assignment::Assignment;
use event::{ConsumerGroupDescription, ConsumerGroupState, ConsumerMemberDescription, ConsumerSettings, Env};
use timers::{TimerKind, Timers};

/// One member: the two halves that its records hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerMember {
    /// Its id.
    pub id: MemberId,
    /// What it said of itself.
    pub metadata: MemberMetadata,
    /// How far it is.
    pub current: CurrentAssignment,
}

impl ConsumerMember {
    fn new(id: &MemberId) -> Self {
        let metadata = MemberMetadata {
            instance_id: None,
            rack_id: None,
            client_id: Arc::from(""),
            client_host: Arc::from(""),
            topics: BTreeSet::new(),
            regex: Arc::from(""),
            rebalance_timeout_ms: -1,
            assignor: None,
            classic: None,
        };
        Self { id: id.clone(), metadata, current: nothing_yet() }
    }

    /// Whether it speaks the classic protocol.
    pub fn is_classic(&self) -> bool {
        self.metadata.classic.is_some()
    }

    fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.current.state == MemberState::Stable && self.current.epoch == epoch
    }
}

fn nothing_yet() -> CurrentAssignment {
    CurrentAssignment {
        epoch: 0,
        previous_epoch: 0,
        state: MemberState::Stable,
        assigned: Assignment::new(),
        pending_revocation: Assignment::new(),
    }
}

/// One consumer group.
#[derive(Debug, Clone)]
pub struct ConsumerGroup {
    id: Arc<str>,
    epoch: i32,
    metadata_hash: i64,
    target_epoch: i32,
    members: BTreeMap<MemberId, ConsumerMember>,
    static_members: BTreeMap<Arc<str>, MemberId>,
    targets: BTreeMap<MemberId, Arc<Assignment>>,
    regexes: BTreeMap<Arc<str>, ResolvedRegex>,
    /// How many members subscribe to each expression.
    regex_subscribers: BTreeMap<Arc<str>, usize>,
    /// Kafka before 4.1 left a record of the topics; the next epoch removes it.
    has_partition_metadata: bool,
    /// Who owns each partition, assigned or pending revocation. Looked up, never gone through.
    owners: HashMap<(Uuid, i32), MemberId>,
    timers: Timers,
    /// The version of the topics that the hash was last compared with.
    seen_topics: Option<u64>,
    /// Regular expressions are being resolved.
    resolving: bool,
    /// When, and against which version of the topics, they were resolved last.
    resolved: Option<(i64, u64)>,
}

impl ConsumerGroup {
    /// A group nobody has joined.
    pub fn new(id: Arc<str>) -> Self {
        Self {
            id,
            epoch: 0,
            metadata_hash: 0,
            target_epoch: 0,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            targets: BTreeMap::new(),
            regexes: BTreeMap::new(),
            regex_subscribers: BTreeMap::new(),
            has_partition_metadata: false,
            owners: HashMap::new(),
            timers: Timers::default(),
            seen_topics: None,
            resolving: false,
            resolved: None,
        }
    }

    /// Takes a record in.
    pub fn replay(&mut self, part: &ConsumerKey, value: Option<&ConsumerValue>) {
        match (part, value) {
            (ConsumerKey::Group, Some(ConsumerValue::Group { epoch, metadata_hash })) => {
                (self.epoch, self.metadata_hash) = (*epoch, *metadata_hash);
            }
            (ConsumerKey::Group, _) => (self.epoch, self.metadata_hash) = (0, 0),
            (ConsumerKey::PartitionMetadata, value) => self.has_partition_metadata = value.is_some(),
            (ConsumerKey::TargetEpoch, Some(ConsumerValue::TargetEpoch(epoch))) => self.target_epoch = *epoch,
            (ConsumerKey::TargetEpoch, _) => self.target_epoch = 0,
            (ConsumerKey::Target(member), Some(ConsumerValue::Target(target))) => {
                self.targets.insert(member.clone(), Arc::new(target.clone()));
            }
            (ConsumerKey::Target(member), _) => drop(self.targets.remove(member)),
            (ConsumerKey::Regex(regex), Some(ConsumerValue::Regex(resolved))) => {
                self.regexes.insert(regex.clone(), resolved.clone());
            }
            (ConsumerKey::Regex(regex), _) => drop(self.regexes.remove(regex)),
            (ConsumerKey::Member(member), Some(ConsumerValue::Member(metadata))) => {
                let known = self.members.entry(member.clone()).or_insert_with(|| ConsumerMember::new(member));
                let before = std::mem::replace(&mut known.metadata, metadata.clone());
                if before.instance_id != metadata.instance_id {
                    self.forget_instance(before.instance_id.as_ref(), member);
                }
                self.count_regex(&before.regex, &metadata.regex);
                if let Some(instance) = &metadata.instance_id {
                    self.static_members.insert(instance.clone(), member.clone());
                }
            }
            (ConsumerKey::Member(member), _) => {
                if let Some(gone) = self.members.remove(member) {
                    self.disown(&gone.current, member);
                    self.forget_instance(gone.metadata.instance_id.as_ref(), member);
                    self.count_regex(&gone.metadata.regex, &Arc::from(""));
                    self.timers.cancel_all(member);
                }
            }
            (ConsumerKey::Current(member), Some(ConsumerValue::Current(current))) => {
                let known = self.members.entry(member.clone()).or_insert_with(|| ConsumerMember::new(member));
                let before = std::mem::replace(&mut known.current, current.clone());
                self.disown(&before, member);
                for (topic, partitions) in current.assigned.iter().chain(&current.pending_revocation) {
                    for partition in partitions {
                        self.owners.insert((*topic, *partition), member.clone());
                    }
                }
            }
            (ConsumerKey::Current(member), _) => {
                if let Some(known) = self.members.get_mut(member) {
                    let before = std::mem::replace(&mut known.current, nothing_yet());
                    self.disown(&before, member);
                }
            }
        }
    }

    fn disown(&mut self, current: &CurrentAssignment, member: &MemberId) {
        for (topic, partitions) in current.assigned.iter().chain(&current.pending_revocation) {
            for partition in partitions {
                let key = (*topic, *partition);
                if self.owners.get(&key) == Some(member) {
                    self.owners.remove(&key);
                }
            }
        }
    }

    fn count_regex(&mut self, before: &Arc<str>, after: &Arc<str>) {
        if let Some(count) = self.regex_subscribers.get_mut(before) {
            *count -= 1;
            if *count == 0 {
                self.regex_subscribers.remove(before);
            }
        }
        if !after.is_empty() {
            *self.regex_subscribers.entry(after.clone()).or_default() += 1;
        }
    }

    fn forget_instance(&mut self, instance: Option<&Arc<str>>, member: &MemberId) {
        if let Some(instance) = instance
            && self.static_members.get(instance) == Some(member)
        {
            self.static_members.remove(instance);
        }
    }

    /// Makes a record and takes it in.
    fn put(&mut self, part: ConsumerKey, value: Option<ConsumerValue>, records: &mut Vec<Record>) {
        self.replay(&part, value.as_ref());
        records.push(Record::consumer(&self.id, part, value));
    }

    /// The value a record of `part` would have now; `None` when there is none.
    pub fn value_of(&self, part: &ConsumerKey) -> Option<ConsumerValue> {
        match part {
            ConsumerKey::Group => {
                let (epoch, metadata_hash) = (self.epoch, self.metadata_hash);
                (epoch > 0).then_some(ConsumerValue::Group { epoch, metadata_hash })
            }
            ConsumerKey::PartitionMetadata => None,
            ConsumerKey::TargetEpoch => (self.epoch > 0).then_some(ConsumerValue::TargetEpoch(self.target_epoch)),
            ConsumerKey::Target(member) => {
                self.targets.get(member).map(|target| ConsumerValue::Target(Assignment::clone(target)))
            }
            ConsumerKey::Member(member) => {
                self.members.get(member).map(|member| ConsumerValue::Member(member.metadata.clone()))
            }
            ConsumerKey::Current(member) => {
                self.members.get(member).map(|member| ConsumerValue::Current(member.current.clone()))
            }
            ConsumerKey::Regex(regex) => self.regexes.get(regex).cloned().map(ConsumerValue::Regex),
        }
    }

    /// Every part that has a record, in the order in which they may be removed: a member's assignments before itself.
    pub fn parts(&self) -> Vec<ConsumerKey> {
        let mut parts: Vec<ConsumerKey> = self.members.keys().cloned().map(ConsumerKey::Current).collect();
        parts.extend(self.targets.keys().cloned().map(ConsumerKey::Target));
        parts.push(ConsumerKey::TargetEpoch);
        parts.extend(self.members.keys().cloned().map(ConsumerKey::Member));
        parts.extend(self.regexes.keys().cloned().map(ConsumerKey::Regex));
        if self.has_partition_metadata {
            parts.push(ConsumerKey::PartitionMetadata);
        }
        parts.push(ConsumerKey::Group);
        parts
    }

    /// Starts the timers of a group that was replayed.
    pub fn start_timers(&mut self, now: Now, settings: &ConsumerSettings) {
        let members: Vec<MemberId> = self.members.keys().cloned().collect();
        for id in members {
            self.renew_session(now, settings, &id);
            let Some(member) = self.members.get(&id) else { continue };
            if member.current.state == MemberState::UnrevokedPartitions && !member.is_classic() {
                let at = now.elapsed_ms + i64::from(member.metadata.rebalance_timeout_ms);
                self.timers.set(&id, TimerKind::Rebalance, at);
            }
        }
    }

    /// When the next timer is due, in elapsed time.
    pub fn deadline(&self) -> Option<i64> {
        self.timers.next()
    }

    /// The group's epoch; 0 before anybody joined.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Its members, by id.
    pub fn members(&self) -> impl Iterator<Item = &ConsumerMember> {
        self.members.values()
    }

    /// Where it is.
    pub fn state(&self) -> ConsumerGroupState {
        if self.members.is_empty() {
            ConsumerGroupState::Empty
        } else if self.epoch > self.target_epoch {
            ConsumerGroupState::Assigning
        } else if self.members.values().all(|member| member.is_reconciled_to(self.target_epoch)) {
            ConsumerGroupState::Stable
        } else {
            ConsumerGroupState::Reconciling
        }
    }

    /// Whether a member subscribes to `topic`, by name or by what its regular expression matched.
    pub fn subscribes_to(&self, topic: &str) -> bool {
        self.members.values().any(|member| {
            member.metadata.topics.contains(topic)
                || self.regexes.get(&member.metadata.regex).is_some_and(|resolved| resolved.topics.contains(topic))
        })
    }

    /// Everything about it.
    pub fn describe(&self, settings: &ConsumerSettings) -> ConsumerGroupDescription {
        ConsumerGroupDescription {
            state: self.state(),
            epoch: self.epoch,
            target_epoch: self.target_epoch,
            assignor: Arc::from(self.assignor(settings).name()),
            members: self
                .members
                .values()
                .map(|member| ConsumerMemberDescription {
                    id: member.id.clone(),
                    metadata: member.metadata.clone(),
                    current: member.current.clone(),
                    target: self.targets.get(&member.id).cloned().unwrap_or_default(),
                })
                .collect(),
        }
    }

    /// Whether an OffsetCommit may be stored (S-92). A classic member's epoch is its generation.
    ///
    /// # Errors
    /// Who commits is not who may.
    pub fn check_commit(&self, member_id: &str, epoch: i32, knows_epochs: bool) -> Result<(), GroupError> {
        if epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or(GroupError::UnknownMember)?;
        if !member.is_classic() && !knows_epochs {
            return Err(GroupError::UnsupportedVersion);
        }
        Self::check_epoch(member, epoch)
    }

    /// Whether a TxnOffsetCommit may be stored (KIP-447). A member's epoch fences it; a producer that names no member is let
    /// through, as its own epoch fences it. Kafka knows no other code than ILLEGAL_GENERATION here.
    ///
    /// # Errors
    /// Who commits is not who may.
    pub fn check_transactional_commit(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        epoch: i32,
    ) -> Result<(), GroupError> {
        if epoch < 0 && (self.members.is_empty() || member_id.is_empty() && instance_id.is_none()) {
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or(GroupError::UnknownMember)?;
        Self::check_epoch(member, epoch).map_err(|_| GroupError::IllegalGeneration)
    }

    /// Whether an OffsetFetch of a member may be answered. `in_flight`: the member may not have heard of its newest epoch.
    ///
    /// # Errors
    /// The member is not in the group, or in another epoch.
    pub fn check_fetch(&self, member_id: &str, epoch: i32, in_flight: bool) -> Result<(), GroupError> {
        let member = self.members.get(member_id).ok_or(GroupError::UnknownMember)?;
        if in_flight && member.current.previous_epoch == epoch {
            return Ok(());
        }
        Self::check_epoch(member, epoch)
    }

    fn check_epoch(member: &ConsumerMember, epoch: i32) -> Result<(), GroupError> {
        match (epoch == member.current.epoch, member.is_classic()) {
            (true, _) => Ok(()),
            (false, true) => Err(GroupError::IllegalGeneration),
            (false, false) => Err(GroupError::StaleMemberEpoch),
        }
    }

    fn renew_session(&mut self, now: Now, settings: &ConsumerSettings, id: &MemberId) {
        let Some(member) = self.members.get(id) else { return };
        let classic = member.metadata.classic.as_ref().map(|classic| classic.session_timeout_ms);
        let timeout = classic.unwrap_or(settings.session_timeout_ms);
        self.timers.set(id, TimerKind::Session, now.elapsed_ms + i64::from(timeout));
    }

    /// The static member of this instance id.
    fn static_member(&self, instance: &str) -> Option<&ConsumerMember> {
        self.static_members.get(instance).and_then(|id| self.members.get(id))
    }
}

/// What became of an event that can end the group's life as a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It stays what it is.
    Stays,
    /// Only members of the classic protocol are left: it becomes a classic group, see [`migrate`].
    Downgrades {
        /// Whether the members have to be settled anew.
        rebalance: bool,
    },
}

/// The error-free result of an event, for events that can be followed by a downgrade.
pub type Outcome<T> = Result<(T, Fate), GroupError>;

impl Env<'_> {
    fn in_ms(&self, ms: i32) -> i64 {
        self.now.elapsed_ms + i64::from(ms)
    }
}
