//! Configs as DescribeConfigs shows them: value, source, synonyms, type, text (S-67, S-68).

use weir_model::config::{
    BROKER_CONFIGS, BrokerConfig, BrokerLayer, ConfigDef, TOPIC_CONFIGS, TopicConfig, UpdateMode,
};
use weir_storage::{BrokerConfigs, TopicInfo};

/// Where a value comes from, in Kafka's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set on the topic.
    Topic,
    /// Set on the group.
    Group,
    /// Set on this broker while it runs.
    DynamicBroker,
    /// Set for all brokers while they run.
    DynamicDefaultBroker,
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
            Self::DynamicBroker => 2,
            Self::DynamicDefaultBroker => 3,
            Self::StaticBroker => 4,
            Self::Default => 5,
            Self::Group => 8,
        }
    }
}

impl From<BrokerLayer> for ConfigSource {
    fn from(layer: BrokerLayer) -> Self {
        match layer {
            BrokerLayer::Broker => Self::DynamicBroker,
            BrokerLayer::Cluster => Self::DynamicDefaultBroker,
            BrokerLayer::Start => Self::StaticBroker,
        }
    }
}

/// A config with its value.
#[derive(Debug, Clone)]
pub struct ConfigEntry {
    /// All that is known about it.
    pub def: &'static ConfigDef,
    /// Its value; `None` for a secret, and for what is not set and has no default.
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
pub fn topic_entries(topic: &TopicInfo, broker: &BrokerConfigs) -> Vec<ConfigEntry> {
    TOPIC_CONFIGS.iter().map(|def| topic_entry(def, topic, broker)).collect()
}

fn topic_entry(def: &'static ConfigDef, topic: &TopicInfo, broker: &BrokerConfigs) -> ConfigEntry {
    let overrides = &topic.record.configs;
    let (value, _) = TopicConfig::value_and_source(def, overrides, &broker.config);
    let mut synonyms = Vec::new();
    if let Some(set) = overrides.get(def.name) {
        synonyms.push(ConfigSynonym { name: def.name, value: Some(set.clone()), source: ConfigSource::Topic });
    }
    synonyms.extend(broker_synonyms(def.synonyms, broker));
    entry(def, Some(value), synonyms)
}

/// The configs of this broker.
pub fn broker_entries(broker: &BrokerConfigs) -> Vec<ConfigEntry> {
    BROKER_CONFIGS
        .iter()
        .zip(broker.config.values())
        .map(|(def, (_, value))| {
            let is_unset = def.unset && value == def.default;
            let names: Vec<&'static str> = [def.name].into_iter().chain(def.synonyms.iter().copied()).collect();
            entry(def, (!is_unset).then_some(value), broker_synonyms(&names, broker))
        })
        .collect()
}

/// What is set for all brokers of the cluster while they run, and nothing else.
pub fn cluster_entries(broker: &BrokerConfigs) -> Vec<ConfigEntry> {
    let set = broker.layers.cluster.iter();
    set.filter_map(|(name, value)| {
        let def = BrokerConfig::def(name).ok()?;
        let source = ConfigSource::DynamicDefaultBroker;
        let synonym = ConfigSynonym { name: def.name, value: Some(value.clone()), source };
        Some(entry(def, Some(value.clone()), vec![synonym]))
    })
    .collect()
}

/// Everywhere that one of `names` is set, and the defaults.
fn broker_synonyms(names: &[&'static str], broker: &BrokerConfigs) -> Vec<ConfigSynonym> {
    let mut synonyms = Vec::new();
    for name in names {
        for (layer, value) in broker.layers.set(name) {
            synonyms.push(ConfigSynonym { name, value: Some(value.to_owned()), source: layer.into() });
        }
        let def = BrokerConfig::def(name).expect("synonyms are broker configs, as a test of the tables proves");
        if !def.unset && !def.default.is_empty() {
            let value = Some(def.default.to_owned());
            synonyms.push(ConfigSynonym { name, value, source: ConfigSource::Default });
        }
    }
    // As Kafka has it, a default under another name is only shown beside something under the first.
    let is_default = |synonym: &ConfigSynonym| synonym.source == ConfigSource::Default;
    if synonyms.iter().all(is_default) && synonyms.first().is_some_and(|synonym| Some(&synonym.name) != names.first()) {
        synonyms.clear();
    }
    synonyms
}

fn entry(def: &'static ConfigDef, value: Option<String>, mut synonyms: Vec<ConfigSynonym>) -> ConfigEntry {
    let source = synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source);
    if def.sensitive {
        synonyms.iter_mut().for_each(|synonym| synonym.value = None);
    }
    ConfigEntry {
        def,
        value: value.filter(|_| !def.sensitive),
        source,
        read_only: def.update == UpdateMode::ReadOnly,
        synonyms,
    }
}
