//! The topics of this broker, as the coordinator looks at them.

use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;
use weir_model::TopicId;
use weir_storage::{Storage, Topics};

use super::group::consumer::assignment::{TopicCatalog, TopicFacts, TopicSource};

/// Gives every other set of topics another version. It holds the last one, so that no other can be at its address.
pub(super) struct StorageTopics {
    storage: Storage,
    last: Mutex<(u64, Arc<Topics>)>,
}

impl StorageTopics {
    pub(super) fn new(storage: Storage) -> Self {
        let last = Mutex::new((1, storage.topics()));
        Self { storage, last }
    }
}

impl TopicSource for StorageTopics {
    fn current(&self) -> Arc<dyn TopicCatalog> {
        let topics = self.storage.topics();
        let mut last = self.last.lock();
        if !Arc::ptr_eq(&last.1, &topics) {
            *last = (last.0 + 1, topics);
        }
        Arc::new(Snapshot { version: last.0, topics: Arc::clone(&last.1) })
    }
}

struct Snapshot {
    version: u64,
    topics: Arc<Topics>,
}

impl TopicCatalog for Snapshot {
    fn version(&self) -> u64 {
        self.version
    }

    fn by_name(&self, name: &str) -> Option<TopicFacts> {
        let topic = self.topics.by_name(name)?;
        Some(TopicFacts { id: topic.id().as_uuid(), partitions: topic.partitions() })
    }

    fn name_of(&self, id: Uuid) -> Option<Arc<str>> {
        self.topics.get(TopicId::from_uuid(id)).map(|topic| Arc::from(topic.name().as_str()))
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.topics.iter().map(|topic| Arc::from(topic.name().as_str())).collect()
    }
}
