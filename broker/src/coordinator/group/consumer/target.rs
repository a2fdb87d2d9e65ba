//! The target assignment: computed when the group's epoch is ahead of it (Kafka's `TargetAssignmentBuilder`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::ConsumerGroup;
use super::assignment::Assignment;
use super::assignor::{Assignor, GroupSpec, MemberSpec};
use super::event::{ConsumerSettings, Env};
use crate::coordinator::group::records::Record;
use crate::coordinator::group::records::consumer::{ConsumerKey, ConsumerValue};

impl ConsumerGroup {
    /// The assignor that most members ask for; among equals the first by name. The default when none asks.
    pub(super) fn assignor(&self, settings: &ConsumerSettings) -> Assignor {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.members.values().filter_map(|member| member.metadata.assignor.as_deref()) {
            *votes.entry(name).or_default() += 1;
        }
        let most = votes.values().copied().max();
        votes
            .into_iter()
            .find(|(_, count)| Some(*count) == most)
            // A record may ask for one that is not on offer any more.
            .and_then(|(name, _)| Assignor::by_name(name))
            .unwrap_or_else(|| settings.default_assignor())
    }

    /// Computes the target anew if the group's epoch is ahead of it, and writes what is different.
    pub(super) fn update_target(&mut self, env: Env<'_>, records: &mut Vec<Record>) {
        if self.epoch <= self.target_epoch {
            return;
        }
        let targets = self.assignor(env.settings).assign(&self.spec(env));
        for (member, target) in targets {
            let before = self.targets.get(&member);
            if before.is_none_or(|before| **before != target) {
                self.put(ConsumerKey::Target(member), Some(ConsumerValue::Target(target)), records);
            }
        }
        self.put(ConsumerKey::TargetEpoch, Some(ConsumerValue::TargetEpoch(self.epoch)), records);
    }

    fn spec(&self, env: Env<'_>) -> GroupSpec {
        let mut partitions: BTreeMap<Uuid, i32> = BTreeMap::new();
        // Most members say the same: what they say is looked up once.
        type Subscription<'a> = (&'a BTreeSet<Arc<str>>, &'a Arc<str>);
        let mut seen: BTreeMap<Subscription<'_>, Arc<BTreeSet<Uuid>>> = BTreeMap::new();
        let mut members = Vec::with_capacity(self.members.len());
        for member in self.members.values() {
            let subscription = (&member.metadata.topics, &member.metadata.regex);
            let topics =
                seen.entry(subscription).or_insert_with(|| Arc::new(self.subscribed_ids(member, env.topics))).clone();
            members.push(MemberSpec {
                id: member.id.clone(),
                instance_id: member.metadata.instance_id.clone(),
                topics,
                previous: self.targets.get(&member.id).cloned().unwrap_or_else(|| Arc::new(Assignment::new())),
            });
        }
        for name in self.subscribed_topics() {
            if let Some(facts) = env.topics.by_name(name) {
                partitions.insert(facts.id, facts.partitions);
            }
        }
        GroupSpec::new(members, partitions)
    }
}
