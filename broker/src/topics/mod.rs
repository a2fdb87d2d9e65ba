//! Topics as clients see them: Kafka's rules for making, changing and removing them (S-64 to S-71) on top of storage.

mod broker_change;
mod change;
mod create;
mod describe;
pub mod errors;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::config::{BrokerConfig, TopicConfig};
use weir_model::{Clock, TopicId, TopicName};
use weir_storage::{Storage, TopicInfo};

pub use change::{ConfigChange, ConfigOperation};
pub use create::{CreatedTopic, NewTopic};
pub use describe::{ConfigEntry, ConfigSource, ConfigSynonym, broker_entries, cluster_entries, topic_entries};
pub use errors::TopicError;

/// Makes, changes and removes topics. Cheap to clone.
#[derive(Clone)]
pub struct Topics {
    storage: Storage,
    config: Arc<BrokerConfig>,
    clock: Arc<dyn Clock>,
    /// Serialises checks with the changes they are about, across tasks.
    change: Arc<tokio::sync::Mutex<()>>,
}

impl Topics {
    /// The topics of `storage`.
    pub fn new(storage: Storage, config: Arc<BrokerConfig>, clock: Arc<dyn Clock>) -> Self {
        Self { storage, config, clock, change: Arc::default() }
    }

    /// Makes a topic that a client named in a Metadata request, with the broker's defaults. Fine when it is there already.
    ///
    /// # Errors
    /// [`TopicError`].
    pub async fn auto_create(&self, name: &TopicName) -> Result<(), TopicError> {
        match self.create(name.clone(), None, BTreeMap::new()).await {
            Ok(_) | Err(TopicError::Storage(weir_storage::TopicError::Exists(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes a topic. It is usable when this returns.
    ///
    /// # Errors
    /// [`TopicError`].
    pub async fn create(
        &self,
        name: TopicName,
        partitions: Option<i32>,
        overrides: BTreeMap<String, String>,
    ) -> Result<TopicId, TopicError> {
        let topic = NewTopic {
            name: name.as_str().to_owned(),
            partitions: partitions.unwrap_or(-1),
            overrides,
            ..NewTopic::default()
        };
        let created = self.create_topic(topic).await?;
        Ok(created.topic.id())
    }

    /// The configs of a topic, resolved.
    pub fn config(&self, topic: TopicId) -> Option<Arc<TopicConfig>> {
        self.storage.topics().get(topic).map(|topic| Arc::clone(&topic.config))
    }

    /// The topic of a name.
    ///
    /// # Errors
    /// `UnknownName`.
    pub fn by_name(&self, name: &str) -> Result<Arc<TopicInfo>, TopicError> {
        self.storage.topics().by_name(name).cloned().ok_or_else(|| TopicError::UnknownName(name.to_owned()))
    }
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
