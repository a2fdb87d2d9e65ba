//! What single groups set otherwise than the broker (config resource type 32), kept in the metadata store.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use weir_model::config::{BrokerConfig, ConfigError, GROUP_CONFIGS, GroupConfig, MigrationPolicy};
use weir_storage::meta::{MetaBatch, MetaError, MetaStore};

use super::group::consumer::assignor::Assignor;
use super::group::consumer::event::ConsumerSettings;
use crate::topics::{ConfigChange, ConfigEntry, ConfigOperation, ConfigSource, ConfigSynonym};

/// Before the group's id, in the metadata store.
const PREFIX: &str = "group-config/";
/// Groups that may have configs of their own.
const MAX_GROUPS: usize = 100_000;

/// Why the configs of a group were not changed.
#[derive(Debug, thiserror::Error)]
pub enum GroupConfigError {
    /// The group has no id.
    #[error("the group id is empty: name the group whose configs are meant")]
    NoGroup,
    /// A config is named twice.
    #[error("config `{0}` is named twice in one request")]
    Duplicate(String),
    /// Appending to, or subtracting from, what is no list.
    #[error("config `{0}` is not a list: append and subtract work on lists only, set it instead")]
    NotAList(String),
    /// Too many groups have configs.
    #[error("{MAX_GROUPS} groups have configs of their own already: delete some")]
    TooMany,
    /// A config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The metadata store failed.
    #[error("group configs were not stored: {0}")]
    Store(#[from] MetaError),
    /// What is stored does not read.
    #[error("stored configs of a group do not read: {0}; run weir doctor on the data directory")]
    Stored(#[from] serde_json::Error),
}

type Overrides = BTreeMap<String, String>;

/// All of them, and the broker's settings beneath.
pub struct GroupConfigs {
    broker: Arc<BrokerConfig>,
    base: ConsumerSettings,
    groups: RwLock<BTreeMap<String, Overrides>>,
    store: Option<Arc<dyn MetaStore>>,
    /// One change at a time: it reads, checks, writes and then shows.
    change: tokio::sync::Mutex<()>,
}

impl GroupConfigs {
    /// Reads what is stored.
    ///
    /// # Errors
    /// The store does not read.
    pub fn load(broker: Arc<BrokerConfig>, store: Arc<dyn MetaStore>) -> Result<Self, GroupConfigError> {
        let mut configs = Self::in_memory(broker);
        for (key, value) in store.scan_prefix(PREFIX.as_bytes())? {
            let group = String::from_utf8_lossy(&key[PREFIX.len()..]).into_owned();
            configs.groups.get_mut().insert(group, serde_json::from_slice(&value)?);
        }
        configs.store = Some(store);
        Ok(configs)
    }

    /// Configs that a restart forgets.
    pub fn in_memory(broker: Arc<BrokerConfig>) -> Self {
        let base = base_settings(&broker);
        Self { broker, base, groups: RwLock::default(), store: None, change: tokio::sync::Mutex::default() }
    }

    /// What a KIP-848 group obeys.
    pub fn settings_of(&self, group: &str) -> ConsumerSettings {
        let mut settings = self.base.clone();
        if let Some(overrides) = self.groups.read().get(group)
            // A broker whose bounds were narrowed since falls back to its own values.
            && let Ok(config) = GroupConfig::resolve(overrides, &self.broker)
        {
            settings.session_timeout_ms = config.consumer_session_timeout_ms;
            settings.heartbeat_interval_ms = config.consumer_heartbeat_interval_ms;
        }
        settings
    }

    /// The groups with configs of their own, by name.
    pub fn names(&self) -> Vec<String> {
        self.groups.read().keys().cloned().collect()
    }

    /// The configs of a group as DescribeConfigs shows them; a group that is not there has the broker's.
    pub fn entries(&self, group: &str) -> Vec<ConfigEntry> {
        let overrides = self.groups.read().get(group).cloned().unwrap_or_default();
        GROUP_CONFIGS
            .iter()
            .map(|def| {
                let set = overrides.get(def.name).cloned();
                let broker_name = def.synonyms.first().copied().unwrap_or(def.name);
                let of_broker = self.broker.given().get(broker_name).cloned();
                let mut synonyms = Vec::new();
                let mut source = ConfigSource::Default;
                if let Some(value) = &of_broker {
                    source = ConfigSource::StaticBroker;
                    synonyms.push(ConfigSynonym { name: broker_name, value: Some(value.clone()), source });
                }
                if let Some(value) = &set {
                    source = ConfigSource::Group;
                    synonyms.insert(0, ConfigSynonym { name: def.name, value: Some(value.clone()), source });
                }
                let default = ConfigSource::Default;
                synonyms.push(ConfigSynonym {
                    name: broker_name,
                    value: Some(def.default.to_owned()),
                    source: default,
                });
                let value = set.unwrap_or_else(|| GroupConfig::broker_value(def, &self.broker));
                ConfigEntry { def, value: Some(value), source, read_only: false, synonyms }
            })
            .collect()
    }

    /// Changes some configs of a group; they take effect with its members' next heartbeats.
    ///
    /// # Errors
    /// [`GroupConfigError`]; nothing changed then.
    pub async fn change(
        &self,
        group: &str,
        changes: &[ConfigChange],
        validate_only: bool,
    ) -> Result<(), GroupConfigError> {
        let _change = self.change.lock().await;
        let mut overrides = self.groups.read().get(group).cloned().unwrap_or_default();
        let mut named = std::collections::BTreeSet::new();
        for change in changes {
            let def = GroupConfig::def(&change.name)?;
            if !named.insert(def.name) {
                return Err(GroupConfigError::Duplicate(change.name.clone()));
            }
            match (change.operation, &change.value) {
                (ConfigOperation::Delete, _) => drop(overrides.remove(def.name)),
                (ConfigOperation::Set, Some(value)) => drop(overrides.insert(def.name.to_owned(), value.clone())),
                (ConfigOperation::Set, None) => {
                    return Err(ConfigError::NoValue { name: change.name.clone() }.into());
                }
                (ConfigOperation::Append | ConfigOperation::Subtract, _) => {
                    return Err(GroupConfigError::NotAList(change.name.clone()));
                }
            }
        }
        self.replace_locked(group, overrides, validate_only).await
    }

    /// Replaces all configs of a group.
    ///
    /// # Errors
    /// [`GroupConfigError`]; nothing changed then.
    pub async fn replace(
        &self,
        group: &str,
        overrides: Overrides,
        validate_only: bool,
    ) -> Result<(), GroupConfigError> {
        let _change = self.change.lock().await;
        self.replace_locked(group, overrides, validate_only).await
    }

    async fn replace_locked(
        &self,
        group: &str,
        overrides: Overrides,
        validate_only: bool,
    ) -> Result<(), GroupConfigError> {
        if group.is_empty() {
            return Err(GroupConfigError::NoGroup);
        }
        GroupConfig::resolve(&overrides, &self.broker)?;
        let is_full = |groups: &BTreeMap<String, Overrides>| !groups.contains_key(group) && groups.len() >= MAX_GROUPS;
        if is_full(&self.groups.read()) {
            return Err(GroupConfigError::TooMany);
        }
        if validate_only {
            return Ok(());
        }
        if let Some(store) = self.store.clone() {
            let key = format!("{PREFIX}{group}");
            let batch = if overrides.is_empty() {
                MetaBatch::new().delete(key)
            } else {
                MetaBatch::new().put(key, serde_json::to_vec(&overrides)?)
            };
            match tokio::task::spawn_blocking(move || store.commit(batch)).await {
                Ok(committed) => committed?,
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            }
        }
        let mut groups = self.groups.write();
        if overrides.is_empty() {
            groups.remove(group);
        } else {
            groups.insert(group.to_owned(), overrides);
        }
        tracing::info!(group, "group configs changed");
        Ok(())
    }
}

fn base_settings(broker: &BrokerConfig) -> ConsumerSettings {
    let policy = broker.group_consumer_migration_policy;
    let size = |size: i32| usize::try_from(size).unwrap_or(usize::MAX);
    ConsumerSettings {
        session_timeout_ms: broker.group_consumer_session_timeout_ms,
        heartbeat_interval_ms: broker.group_consumer_heartbeat_interval_ms,
        max_size: size(broker.group_consumer_max_size),
        assignors: broker.group_consumer_assignors.0.iter().filter_map(|name| Assignor::by_name(name)).collect(),
        upgrade: matches!(policy, MigrationPolicy::Bidirectional | MigrationPolicy::Upgrade),
        downgrade: matches!(policy, MigrationPolicy::Bidirectional | MigrationPolicy::Downgrade),
        classic_max_size: size(broker.group_max_size),
    }
}
