//! Which topics there are: durable in the metadata store, read as one immutable snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_model::config::{BrokerConfig, ConfigError, TopicConfig};
use weir_model::{TopicId, TopicName};
use weir_table::{SchemaError, TableSchema};

/// What a new topic should be.
#[derive(Clone, Debug)]
pub struct TopicSpec {
    /// Its name.
    pub name: TopicName,
    /// How many partitions, at least 1.
    pub partitions: i32,
    /// The configs set on the topic itself, by Kafka's names; defaults come from the broker.
    pub configs: BTreeMap<String, String>,
    /// Whether clients are kept from writing to it (`__consumer_offsets`).
    pub internal: bool,
}

/// A topic as the metadata store holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// Identity of this incarnation.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// How many partitions.
    pub partitions: i32,
    /// The configs set on the topic itself.
    pub configs: BTreeMap<String, String>,
    /// Whether clients are kept from writing to it.
    pub internal: bool,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: i64,
}

/// A topic, with its configs and schema resolved.
#[derive(Clone, Debug)]
pub struct TopicInfo {
    /// The durable part.
    pub record: TopicRecord,
    /// Every config, defaults included.
    pub config: Arc<TopicConfig>,
    /// The table's columns; `None` for a topic without a schema.
    pub table: Option<Arc<TableSchema>>,
}

impl TopicInfo {
    /// Resolves a record against the broker's defaults.
    ///
    /// # Errors
    /// [`TopicError::Config`] and [`TopicError::Schema`] for configs that cannot be honoured.
    pub fn resolve(record: TopicRecord, broker: &BrokerConfig) -> Result<Self, TopicError> {
        let config = TopicConfig::resolve(&record.configs, broker)?;
        let table = match record.configs.get("weir.schema") {
            Some(columns) if !columns.trim().is_empty() => Some(Arc::new(TableSchema::parse_sql(columns)?)),
            _ => None,
        };
        Ok(Self { record, config: Arc::new(config), table })
    }

    /// Its identity.
    pub fn id(&self) -> TopicId {
        self.record.id
    }

    /// Its name.
    pub fn name(&self) -> &TopicName {
        &self.record.name
    }

    /// How many partitions it has.
    pub fn partitions(&self) -> i32 {
        self.record.partitions
    }

    /// The columns that readers exchange: the table's, or the one column `value`.
    pub fn columns(&self) -> Arc<TableSchema> {
        self.table.clone().unwrap_or_else(|| Arc::new(TableSchema::raw()))
    }
}

/// Why a topic could not be made, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// The name is taken.
    #[error("topic '{0}' already exists")]
    Exists(TopicName),
    /// No topic of this id.
    #[error("topic {0} does not exist")]
    Unknown(TopicId),
    /// A topic needs at least one partition, and never loses any.
    #[error("topic needs between {least} and {most} partitions, {asked} asked for")]
    Partitions {
        /// The count asked for.
        asked: i32,
        /// The least there may be.
        least: i32,
        /// The most there may be.
        most: i32,
    },
    /// A config that cannot be honoured.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A schema that does not parse.
    #[error("weir.schema: {0}")]
    Schema(#[from] SchemaError),
    /// The schema of a topic cannot change yet.
    #[error("weir.schema of topic '{0}' cannot be changed; make a new topic with the new columns")]
    SchemaChange(TopicName),
    /// The metadata store failed.
    #[error("topic change was not stored: {0}")]
    Store(#[from] crate::meta::MetaError),
    /// The directories of the partitions could not be made or removed.
    #[error("partition directory: {0}")]
    Io(#[from] std::io::Error),
}

/// All topics at one moment.
#[derive(Clone, Debug, Default)]
pub struct Topics {
    by_id: BTreeMap<TopicId, Arc<TopicInfo>>,
    by_name: BTreeMap<TopicName, TopicId>,
}

impl Topics {
    /// The topic of this id.
    pub fn get(&self, id: TopicId) -> Option<&Arc<TopicInfo>> {
        self.by_id.get(&id)
    }

    /// The topic of this name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicInfo>> {
        self.by_name.get(name).and_then(|id| self.by_id.get(id))
    }

    /// All topics, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicInfo>> {
        self.by_name.values().filter_map(|id| self.by_id.get(id))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn with(&self, topic: Arc<TopicInfo>) -> Self {
        let mut next = self.clone();
        next.insert(topic);
        next
    }

    pub(crate) fn insert(&mut self, topic: Arc<TopicInfo>) {
        self.by_name.insert(topic.name().clone(), topic.id());
        self.by_id.insert(topic.id(), topic);
    }

    pub(crate) fn without(&self, id: TopicId) -> Self {
        let mut next = self.clone();
        if let Some(topic) = next.by_id.remove(&id) {
            next.by_name.remove(topic.name());
        }
        next
    }
}
