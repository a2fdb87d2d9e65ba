//! Configs as DescribeConfigs shows them: value, source, synonyms, type, text (S-67, S-68).

use weir_model::config::{
    BROKER_CONFIGS, BrokerConfig, ConfigDef, TOPIC_CONFIGS, TopicConfig, TopicConfigSource, UpdateMode,
};
use weir_storage::TopicInfo;

/// Where a value comes from, in Kafka's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set on the topic.
    Topic,
    /// Set on the group.
    Group,
    /// Set when the broker was started.
    StaticBroker,
    /// Nowhere set.
    Default,
}

impl ConfigSource {
    /// Kafka's code.
    pub fn code(self) -> i8 {
        match self {
            Self::Topic => 1,
            Self::StaticBroker => 4,
            Self::Default => 5,
            Self::Group => 8,
        }
    }
}

/// A config with its value.
#[derive(Debug, Clone)]
pub struct ConfigEntry {
    /// All that is known about it.
    pub def: &'static ConfigDef,
    /// Its value; `None` for a secret.
    pub value: Option<String>,
    /// Where that comes from.
    pub source: ConfigSource,
    /// Whether it is fixed.
    pub read_only: bool,
    /// Where the value was looked for, strongest first: the first one is the value shown.
    pub synonyms: Vec<ConfigSynonym>,
}

/// One place a value was looked for and found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The name there.
    pub name: &'static str,
    /// The value there; `None` for a secret.
    pub value: Option<String>,
    /// What kind of place.
    pub source: ConfigSource,
}

/// The configs of a topic.
pub fn topic_entries(topic: &TopicInfo, broker: &BrokerConfig) -> Vec<ConfigEntry> {
    TOPIC_CONFIGS.iter().map(|def| topic_entry(def, topic, broker)).collect()
}

fn topic_entry(def: &'static ConfigDef, topic: &TopicInfo, broker: &BrokerConfig) -> ConfigEntry {
    let show = |value: String| (!def.sensitive).then_some(value);
    let overrides = &topic.record.configs;
    let (value, source) = TopicConfig::value_and_source(def, overrides, broker);
    let mut synonyms = Vec::new();
    if let Some(set) = overrides.get(def.name) {
        synonyms.push(ConfigSynonym { name: def.name, value: show(set.clone()), source: ConfigSource::Topic });
    }
    for name in def.synonyms {
        if let Some(set) = broker.given().get(*name) {
            synonyms.push(ConfigSynonym { name, value: show(set.clone()), source: ConfigSource::StaticBroker });
        }
    }
    let default_name = def.synonyms.first().copied().unwrap_or(def.name);
    synonyms.push(ConfigSynonym {
        name: default_name,
        value: show(def.default.to_owned()),
        source: ConfigSource::Default,
    });
    ConfigEntry {
        def,
        value: show(value),
        source: match source {
            TopicConfigSource::Topic => ConfigSource::Topic,
            TopicConfigSource::Broker(_) => ConfigSource::StaticBroker,
            TopicConfigSource::Default => ConfigSource::Default,
        },
        read_only: def.update == UpdateMode::ReadOnly,
        synonyms,
    }
}

/// The configs of the broker. All of them are read only: they change with a restart.
pub fn broker_entries(broker: &BrokerConfig) -> Vec<ConfigEntry> {
    let values = broker.values();
    BROKER_CONFIGS
        .iter()
        .zip(values)
        .map(|(def, (_, value))| {
            let show = |value: &str| (!def.sensitive).then(|| value.to_owned());
            let set = broker.given().get(def.name);
            let mut synonyms = Vec::new();
            if let Some(set) = set {
                synonyms.push(ConfigSynonym { name: def.name, value: show(set), source: ConfigSource::StaticBroker });
            }
            synonyms.push(ConfigSynonym { name: def.name, value: show(def.default), source: ConfigSource::Default });
            ConfigEntry {
                def,
                value: show(&value),
                source: if set.is_some() { ConfigSource::StaticBroker } else { ConfigSource::Default },
                read_only: def.update == UpdateMode::ReadOnly,
                synonyms,
            }
        })
        .collect()
}
