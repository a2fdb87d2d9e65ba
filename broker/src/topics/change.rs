//! Changing and removing topics (S-69 to S-71).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_model::config::{ConfigDef, ConfigError, ConfigType, TopicConfig, UpdateMode};
use weir_storage::{TopicInfo, TopicRecord};

use super::create::check_policy;
use super::{TopicError, Topics, blocking};

/// What to do with a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Give it this value.
    Set,
    /// Give it its default back.
    Delete,
    /// Add these values to its list.
    Append,
    /// Take these values out of its list.
    Subtract,
}

/// One change of a config.
#[derive(Debug, Clone)]
pub struct ConfigChange {
    /// The config.
    pub name: String,
    /// What to do.
    pub operation: ConfigOperation,
    /// With which value; needed by all but `Delete`.
    pub value: Option<String>,
}

impl Topics {
    /// Changes some configs of a topic (IncrementalAlterConfigs). They take effect at once.
    ///
    /// # Errors
    /// [`TopicError`]; nothing changed then.
    pub async fn change_configs(
        &self,
        name: &str,
        changes: &[ConfigChange],
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let _change = self.change.lock().await;
        let topic = self.changeable(name)?;
        let values = topic.config.values();
        let current = |def: &'static ConfigDef| {
            let value = values.iter().find(|(known, _)| known.name == def.name);
            value.map(|(_, text)| text.clone()).unwrap_or_default()
        };
        let def = |name: &str| TopicConfig::def(name).map_err(TopicError::from);
        let overrides = apply_changes(&topic.record.configs, changes, def, current)?;
        self.store_configs(&topic, overrides, validate_only).await
    }

    /// Replaces all configs of a topic (AlterConfigs). Those that are fixed when a topic is made stay, named or not: a tool
    /// that sets one retention must not be asked for the schema.
    ///
    /// # Errors
    /// [`TopicError`]; nothing changed then.
    pub async fn replace_configs(
        &self,
        name: &str,
        mut overrides: BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let _change = self.change.lock().await;
        let topic = self.changeable(name)?;
        for (def, _) in topic.config.values().into_iter().filter(|(def, _)| def.update == UpdateMode::ReadOnly) {
            if let Some(value) = topic.record.configs.get(def.name) {
                overrides.entry(def.name.to_owned()).or_insert_with(|| value.clone());
            }
        }
        self.store_configs(&topic, overrides, validate_only).await
    }

    async fn store_configs(
        &self,
        topic: &Arc<TopicInfo>,
        overrides: BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let record = TopicRecord { configs: overrides.clone(), ..topic.record.clone() };
        let changed = TopicInfo::resolve(record, &self.storage.broker_config())?;
        for ((def, before), (_, after)) in topic.config.values().into_iter().zip(changed.config.values()) {
            if def.update == UpdateMode::ReadOnly && before != after {
                return Err(TopicError::Fixed { name: def.name });
            }
        }
        if !topic.config.cleanup_policy.compact {
            check_policy(&changed)?;
        }
        if validate_only {
            return Ok(());
        }
        let (storage, id) = (self.storage.clone(), topic.id());
        blocking(move || storage.alter_configs(id, overrides)).await?;
        tracing::info!(topic = %topic.name(), "topic configs changed");
        Ok(())
    }

    /// Gives a topic more partitions. `count` is the new total.
    ///
    /// # Errors
    /// [`TopicError`]; nothing changed then.
    pub async fn create_partitions(
        &self,
        name: &str,
        count: i32,
        assignments: Option<&[Vec<i32>]>,
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let _change = self.change.lock().await;
        let topic = self.changeable(name)?;
        let now = topic.partitions();
        if count <= now {
            return Err(TopicError::PartitionsMustGrow { name: name.to_owned(), now, asked: count });
        }
        if let Some(assignments) = assignments {
            let added = i32::try_from(assignments.len()).unwrap_or(i32::MAX);
            if added != count - now || assignments.iter().any(Vec::is_empty) {
                return Err(TopicError::Assignment("each new partition needs one list of brokers"));
            }
            self.check_brokers(assignments)?;
        }
        if validate_only {
            return Ok(());
        }
        let (storage, id) = (self.storage.clone(), topic.id());
        blocking(move || storage.create_partitions(id, count)).await?;
        tracing::info!(topic = name, partitions = count, "partitions created");
        Ok(())
    }

    /// Deletes a topic and its data. A topic made later under the name has another id.
    ///
    /// # Errors
    /// [`TopicError`].
    pub async fn delete(&self, topic: &TopicInfo) -> Result<(), TopicError> {
        if !self.config.delete_topic_enable {
            return Err(TopicError::DeletionDisabled);
        }
        if topic.record.internal {
            return Err(TopicError::Internal(topic.name().as_str().to_owned()));
        }
        let _change = self.change.lock().await;
        let (storage, id) = (self.storage.clone(), topic.id());
        match blocking(move || storage.delete_topic(id)).await {
            // The topic is gone; files that nobody names any more are an operator's matter, not the client's.
            Err(weir_storage::TopicError::Io(cause)) => {
                tracing::warn!(topic = %topic.name(), %cause, "files of a deleted topic stay behind")
            }
            other => other?,
        }
        tracing::info!(topic = %topic.name(), id = %topic.id(), "topic deleted");
        Ok(())
    }

    fn changeable(&self, name: &str) -> Result<Arc<TopicInfo>, TopicError> {
        let topic = self.by_name(name)?;
        if topic.record.internal {
            return Err(TopicError::Internal(name.to_owned()));
        }
        Ok(topic)
    }
}

/// Applies changes to what is set. `def` knows the configs there are, `current` the value of a list now, set or not.
pub(super) fn apply_changes(
    set: &BTreeMap<String, String>,
    changes: &[ConfigChange],
    def: impl Fn(&str) -> Result<&'static ConfigDef, TopicError>,
    current: impl Fn(&'static ConfigDef) -> String,
) -> Result<BTreeMap<String, String>, TopicError> {
    let mut seen = BTreeSet::new();
    let mut set = set.clone();
    for change in changes {
        if !seen.insert(change.name.as_str()) {
            return Err(TopicError::DuplicateConfig(change.name.clone()));
        }
        let def = def(&change.name)?;
        if change.operation == ConfigOperation::Delete {
            set.remove(def.name);
            continue;
        }
        let value = change.value.clone().ok_or_else(|| ConfigError::NoValue { name: change.name.clone() })?;
        if change.operation == ConfigOperation::Set {
            set.insert(def.name.to_owned(), value);
            continue;
        }
        if def.kind != ConfigType::List {
            return Err(TopicError::NotAList(change.name.clone()));
        }
        set.insert(def.name.to_owned(), edit_list(&current(def), change.operation, &value));
    }
    Ok(set)
}

fn edit_list(current: &str, operation: ConfigOperation, value: &str) -> String {
    let split = |text: &str| -> Vec<String> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let (mut list, given) = (split(current), split(value));
    match operation {
        ConfigOperation::Subtract => list.retain(|item| !given.contains(item)),
        ConfigOperation::Append | ConfigOperation::Set | ConfigOperation::Delete => {
            for item in given {
                if !list.contains(&item) {
                    list.push(item);
                }
            }
        }
    }
    list.join(",")
}
