//! Broker configs that change while the broker runs (KIP-226): durable in the metadata store, and applied at once to every
//! topic that takes its default from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::config::{BrokerConfig, BrokerLayer, BrokerLayers};

use super::{Inner, OpenError, Storage};
use crate::manifest;
use crate::meta::{MetaBatch, MetaStore};
use crate::topics::{TopicError, TopicInfo, Topics};

/// The broker's configs as they are now, and where they are set.
#[derive(Clone, Debug)]
pub struct BrokerConfigs {
    /// What is set, and where.
    pub layers: BrokerLayers,
    /// What comes of it.
    pub config: Arc<BrokerConfig>,
}

impl BrokerConfigs {
    /// What was set at the start, with what was stored since. What can no longer be honoured is reported and left out.
    pub(super) fn load(meta: &dyn MetaStore, started: Arc<BrokerConfig>) -> Result<Self, OpenError> {
        let mut layers = BrokerLayers::at_start(started.given().clone());
        let stored = |key: &str| -> Result<BTreeMap<String, String>, OpenError> {
            Ok(match meta.get(key.as_bytes())? {
                Some(value) => manifest::decode(key, &value)?,
                None => BTreeMap::new(),
            })
        };
        layers.cluster = stored(manifest::CLUSTER_CONFIGS)?;
        layers.broker = stored(&manifest::broker_configs_key(started.node_id))?;
        for (name, reason) in layers.remove_unusable() {
            tracing::error!(config = name, reason, "a broker config that was set while running is not applied");
        }
        let config = layers.resolve().map_or(started, Arc::new);
        Ok(Self { layers, config })
    }
}

impl Storage {
    /// The broker's configs now.
    pub fn broker_config(&self) -> Arc<BrokerConfig> {
        self.inner.config()
    }

    /// The same, with where they are set.
    pub fn broker_configs(&self) -> Arc<BrokerConfigs> {
        Arc::clone(&self.inner.configs.read())
    }

    /// Replaces what is set in one of the two dynamic places. It takes effect at once, and is there after a restart. With
    /// `validate_only` everything is checked and nothing changed. Blocks.
    ///
    /// # Errors
    /// [`TopicError::Config`] when the broker's configs, or those of a topic that takes defaults from them, do not fit;
    /// nothing changed then.
    pub fn alter_broker_configs(
        &self,
        layer: BrokerLayer,
        configs: BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let inner = &self.inner;
        let _change = inner.change.lock();
        let mut layers = self.broker_configs().layers.clone();
        let (key, place) = match layer {
            BrokerLayer::Broker => (manifest::broker_configs_key(inner.config().node_id), &mut layers.broker),
            BrokerLayer::Cluster => (manifest::CLUSTER_CONFIGS.to_owned(), &mut layers.cluster),
            BrokerLayer::Start => unreachable!("what was set at the start is not changed while running"),
        };
        place.clone_from(&configs);
        let config = Arc::new(layers.resolve()?);
        let topics = resolve_again(&self.topics(), &config)?;
        if validate_only {
            return Ok(());
        }
        inner.shared.meta.commit(MetaBatch::new().put(key, manifest::encode(&configs)))?;
        *inner.configs.write() = Arc::new(BrokerConfigs { layers, config });
        for topic in topics.iter() {
            for partition in self.partitions(topic) {
                partition.set_topic(Arc::clone(topic));
            }
        }
        *inner.topics.write() = Arc::new(topics);
        inner.shared.cleaner_clock.relieve();
        Ok(())
    }
}

impl Inner {
    /// The broker's configs now.
    pub(super) fn config(&self) -> Arc<BrokerConfig> {
        Arc::clone(&self.configs.read().config)
    }
}

fn resolve_again(topics: &Topics, config: &BrokerConfig) -> Result<Topics, TopicError> {
    let mut changed = Topics::default();
    for topic in topics.iter() {
        changed.insert(Arc::new(TopicInfo::resolve(topic.record.clone(), config)?));
    }
    Ok(changed)
}
