//! Making topics (S-64, S-65).

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::config::ConfigError;
use weir_model::{TopicId, TopicName};
use weir_storage::{TopicInfo, TopicRecord, TopicSpec};

use super::{TopicError, Topics, blocking};

/// A topic that is asked for, as CreateTopics has it.
#[derive(Debug, Clone)]
pub struct NewTopic {
    /// Its name, unchecked.
    pub name: String,
    /// How many partitions; -1 for the broker's default, or with an assignment.
    pub partitions: i32,
    /// How many replicas; -1 for the broker's default, or with an assignment.
    pub replication_factor: i16,
    /// Partition and the brokers it should be on, instead of the two counts.
    pub assignments: Vec<(i32, Vec<i32>)>,
    /// Configs set on the topic.
    pub overrides: BTreeMap<String, String>,
    /// Check everything and change nothing.
    pub validate_only: bool,
    /// A topic of the broker's own.
    pub internal: bool,
}

impl Default for NewTopic {
    /// No name; the broker's defaults for everything else.
    fn default() -> Self {
        Self {
            name: String::new(),
            partitions: -1,
            replication_factor: -1,
            assignments: Vec::new(),
            overrides: BTreeMap::new(),
            validate_only: false,
            internal: false,
        }
    }
}

/// A topic that was made, or would have been.
#[derive(Debug, Clone)]
pub struct CreatedTopic {
    /// The topic. Its id means nothing when it was only validated.
    pub topic: Arc<TopicInfo>,
    /// How many replicas each partition has.
    pub replication_factor: i16,
}

/// Topics that Kafka's brokers make for themselves, with the partitions and configs that their coordinators count on.
const INTERNAL_NAMES: [&str; 4] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"];

/// One broker keeps one copy.
const REPLICAS: i16 = 1;

impl Topics {
    /// Checks what is asked for and, unless told to validate only, makes the topic.
    ///
    /// # Errors
    /// [`TopicError`]; nothing was made then.
    pub async fn create_topic(&self, topic: NewTopic) -> Result<CreatedTopic, TopicError> {
        let name = TopicName::new(&topic.name)?;
        if !topic.internal && INTERNAL_NAMES.contains(&name.as_str()) {
            return Err(TopicError::Reserved(topic.name));
        }
        self.check_replicas(&topic)?;
        let partitions = self.partition_count(&topic)?;
        let _change = self.change.lock().await;
        self.check_collision(&name)?;
        if self.storage.topics().by_name(name.as_str()).is_some() {
            return Err(weir_storage::TopicError::Exists(name).into());
        }
        let record = TopicRecord {
            id: TopicId::random(),
            name: name.clone(),
            partitions,
            configs: topic.overrides.clone(),
            internal: topic.internal,
            created_ms: self.clock.now_ms(),
        };
        let checked = TopicInfo::resolve(record, &self.storage.broker_config())?;
        check_policy(&checked)?;
        let created = if topic.validate_only {
            Arc::new(checked)
        } else {
            let spec = TopicSpec { name, partitions, configs: topic.overrides, internal: topic.internal };
            let storage = self.storage.clone();
            let created = blocking(move || storage.create_topic(spec)).await?;
            tracing::info!(topic = %created.name(), id = %created.id(), partitions, "topic created");
            created
        };
        Ok(CreatedTopic { topic: created, replication_factor: REPLICAS })
    }

    fn partition_count(&self, topic: &NewTopic) -> Result<i32, TopicError> {
        if topic.assignments.is_empty() {
            return match topic.partitions {
                -1 => Ok(self.config.num_partitions),
                1.. => Ok(topic.partitions),
                _ => Err(TopicError::Partitions(topic.partitions)),
            };
        }
        if topic.partitions != -1 || topic.replication_factor != -1 {
            return Err(TopicError::AssignmentAndCounts);
        }
        let mut indexes: Vec<i32> = topic.assignments.iter().map(|(index, _)| *index).collect();
        indexes.sort_unstable();
        if indexes.iter().zip(0..).any(|(index, expected)| *index != expected) {
            return Err(TopicError::Assignment("partitions must be numbered from 0 without gaps or repeats"));
        }
        i32::try_from(indexes.len()).map_err(|_| TopicError::Assignment("too many partitions"))
    }

    /// More replicas than brokers are refused, or clamped, as `weir.replication.clamp` says.
    fn check_replicas(&self, topic: &NewTopic) -> Result<(), TopicError> {
        self.check_brokers(topic.assignments.iter().map(|(_, brokers)| brokers))?;
        match topic.replication_factor {
            -1 | REPLICAS => Ok(()),
            2.. if self.config.weir_replication_clamp => Ok(()),
            other => Err(TopicError::ReplicationFactor(other)),
        }
    }

    /// The brokers that each partition is to be on.
    pub(super) fn check_brokers<'a>(
        &self,
        assignments: impl IntoIterator<Item = &'a Vec<i32>>,
    ) -> Result<(), TopicError> {
        for brokers in assignments {
            let mut distinct = brokers.clone();
            distinct.sort_unstable();
            distinct.dedup();
            if brokers.is_empty() || distinct.len() < brokers.len() {
                return Err(TopicError::Assignment("every partition needs brokers, each named once"));
            }
            if !self.config.weir_replication_clamp && brokers[..] != [self.config.node_id] {
                return Err(TopicError::Assignment("a partition can only be on this broker"));
            }
        }
        Ok(())
    }

    /// Kafka's metric names cannot tell `.` from `_`, and its tools refuse such neighbours.
    fn check_collision(&self, name: &TopicName) -> Result<(), TopicError> {
        let key = name.collision_key();
        let topics = self.storage.topics();
        match topics.iter().find(|topic| topic.name() != name && topic.name().collision_key() == key) {
            None => Ok(()),
            Some(existing) => Err(TopicError::Collision {
                name: name.as_str().to_owned(),
                existing: existing.name().as_str().to_owned(),
            }),
        }
    }
}

/// Rows of a table are not compacted yet, so nobody shall count on it.
pub(super) fn check_policy(topic: &TopicInfo) -> Result<(), TopicError> {
    if topic.config.cleanup_policy.compact && topic.table.is_some() {
        return Err(ConfigError::CompactTable.into());
    }
    Ok(())
}
