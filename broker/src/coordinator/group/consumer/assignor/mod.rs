//! Server-side assignors (KIP-848): who gets which partitions.
//!
//! An assignor is a function of the members' subscriptions and their previous target assignments. It must give every
//! subscribed partition to exactly one subscriber, and move as little as its rule allows. Members are gone through in the
//! order of their static id or else their member id, as Kafka does, so that replays and restarts agree.

mod range;
mod uniform;
mod uniform_mixed;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::assignment::Assignment;

/// The assignors that are built, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assignor {
    /// Spreads all partitions evenly over the members, and moves few (Kafka's `UniformAssignor`).
    Uniform,
    /// Gives each member a stretch of every topic, the same stretch of topics with equal counts (`RangeAssignor`).
    Range,
}

impl Assignor {
    /// Both, in Kafka's default order.
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Range];

    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// By Kafka's name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    /// Computes the target of every member. Each member of `group` has an entry in the result.
    pub fn assign(self, group: &GroupSpec) -> BTreeMap<Arc<str>, Assignment> {
        match self {
            Self::Range => range::assign(group),
            Self::Uniform if group.is_homogeneous() => uniform::assign(group),
            Self::Uniform => uniform_mixed::assign(group),
        }
    }
}

/// One member, as an assignor sees it.
#[derive(Debug, Clone)]
pub struct MemberSpec {
    /// Its id.
    pub id: Arc<str>,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// The topics it subscribes to that exist.
    pub topics: Arc<BTreeSet<Uuid>>,
    /// Its target so far.
    pub previous: Arc<Assignment>,
}

/// A group, as an assignor sees it.
#[derive(Debug, Clone)]
pub struct GroupSpec {
    members: Vec<MemberSpec>,
    partitions: BTreeMap<Uuid, i32>,
}

impl GroupSpec {
    /// A group of `members`; `partitions` says how many each of their topics has.
    pub fn new(mut members: Vec<MemberSpec>, partitions: BTreeMap<Uuid, i32>) -> Self {
        let key = |member: &MemberSpec| {
            let static_first = member.instance_id.is_none();
            (static_first, member.instance_id.clone().unwrap_or_else(|| member.id.clone()), member.id.clone())
        };
        members.sort_by_cached_key(key);
        Self { members, partitions }
    }

    /// Whether all members subscribe to the same topics.
    pub fn is_homogeneous(&self) -> bool {
        let mut members = self.members.iter();
        let Some(first) = members.next() else { return true };
        members.all(|member| Arc::ptr_eq(&member.topics, &first.topics) || member.topics == first.topics)
    }

    fn partitions(&self, topic: Uuid) -> i32 {
        self.partitions.get(&topic).copied().unwrap_or(0)
    }

    /// The subscribers of every subscribed topic, as indexes into the members, in order.
    fn subscribers(&self) -> BTreeMap<Uuid, Vec<usize>> {
        let mut subscribers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for (index, member) in self.members.iter().enumerate() {
            for topic in &*member.topics {
                subscribers.entry(*topic).or_default().push(index);
            }
        }
        subscribers
    }
}
