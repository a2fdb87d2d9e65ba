//! Sets of partitions by topic id, and what is asked of the topics there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

/// Partitions, by topic id. No topic has an empty set.
pub type Assignment = BTreeMap<Uuid, BTreeSet<i32>>;

/// How many partitions an assignment has.
pub fn partition_count(assignment: &Assignment) -> usize {
    assignment.values().map(BTreeSet::len).sum()
}

/// Whether every partition of `inner` is in `outer`.
pub(super) fn is_subset(inner: &Assignment, outer: &Assignment) -> bool {
    inner.iter().all(|(topic, partitions)| {
        partitions.is_empty() || outer.get(topic).is_some_and(|of_topic| partitions.is_subset(of_topic))
    })
}

/// Whether the two have a partition in common.
pub(super) fn intersects(a: &Assignment, b: &Assignment) -> bool {
    a.iter().any(|(topic, partitions)| b.get(topic).is_some_and(|others| !partitions.is_disjoint(others)))
}

/// What the coordinator knows of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its id.
    pub id: Uuid,
    /// How many partitions it has.
    pub partitions: i32,
}

/// All topics at one moment.
pub trait TopicCatalog: Send + Sync {
    /// Another number for every other set of topics; larger means later.
    fn version(&self) -> u64;
    /// The topic of this name.
    fn by_name(&self, name: &str) -> Option<TopicFacts>;
    /// The name of the topic of this id.
    fn name_of(&self, id: Uuid) -> Option<Arc<str>>;
    /// Every name, in order.
    fn names(&self) -> Vec<Arc<str>>;
}

/// Where the coordinator learns of topics.
pub trait TopicSource: Send + Sync {
    /// All topics now.
    fn current(&self) -> Arc<dyn TopicCatalog>;
}
