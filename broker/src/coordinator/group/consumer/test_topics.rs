//! Topics for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::assignment::{TopicCatalog, TopicFacts, TopicSource};

/// Topics by name, in one version.
#[derive(Debug, Clone, Default)]
pub(in crate::coordinator) struct TestTopics {
    version: u64,
    topics: BTreeMap<Arc<str>, TopicFacts>,
    made: u64,
}

impl TestTopics {
    pub(in crate::coordinator) fn of(topics: &[(&str, i32)]) -> Self {
        let mut all = Self::default();
        for (name, partitions) in topics {
            all.set(name, *partitions);
        }
        all
    }

    /// Makes a topic, or gives it another count.
    pub(in crate::coordinator) fn set(&mut self, name: &str, partitions: i32) {
        self.version += 1;
        self.made += 1;
        let id = self.topics.get(name).map_or(Uuid::from_u64_pair(7, self.made), |known| known.id);
        self.topics.insert(Arc::from(name), TopicFacts { id, partitions });
    }

    pub(in crate::coordinator) fn remove(&mut self, name: &str) {
        self.version += 1;
        self.topics.remove(name);
    }

    pub(in crate::coordinator) fn id(&self, name: &str) -> Uuid {
        self.topics[name].id
    }
}

impl TopicCatalog for TestTopics {
    fn version(&self) -> u64 {
        self.version
    }

    fn by_name(&self, name: &str) -> Option<TopicFacts> {
        self.topics.get(name).copied()
    }

    fn name_of(&self, id: Uuid) -> Option<Arc<str>> {
        self.topics.iter().find(|(_, facts)| facts.id == id).map(|(name, _)| name.clone())
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }
}

/// Topics that tests change.
#[derive(Debug, Default)]
pub(in crate::coordinator) struct TestTopicSource(pub(in crate::coordinator) Mutex<TestTopics>);

impl TopicSource for TestTopicSource {
    fn current(&self) -> Arc<dyn TopicCatalog> {
        Arc::new(self.0.lock().clone())
    }
}
