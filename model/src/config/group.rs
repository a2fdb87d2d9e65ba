//! Group configs: what one KIP-848 group may set otherwise than the broker (config resource type 32, KIP-1043).

use std::collections::BTreeMap;

use super::macros::configs;
use super::suggest::nearest;
use super::{BrokerConfig, ConfigDef, ConfigError};

configs! {
    /// The configs of a group, resolved.
    pub struct GroupConfig, table
    /// Every group config that is accepted, in the order DescribeConfigs lists them.
    GROUP_CONFIGS {
        /// How often members of the group send heartbeats.
        consumer_heartbeat_interval_ms: i32 = ConfigDef::new("consumer.heartbeat.interval.ms", "5000").at_least(1).synonyms(&["group.consumer.heartbeat.interval.ms"]);
        /// How long a member of the group may be silent.
        consumer_session_timeout_ms: i32 = ConfigDef::new("consumer.session.timeout.ms", "45000").at_least(1).synonyms(&["group.consumer.session.timeout.ms"]);
    }
}

impl GroupConfig {
    /// Types and checks the configs of a group; what is not set is the broker's.
    ///
    /// # Errors
    /// [`ConfigError`] names the first config that is unknown, or outside what the broker allows.
    pub fn resolve(given: &BTreeMap<String, String>, broker: &BrokerConfig) -> Result<Self, ConfigError> {
        for name in given.keys() {
            Self::def(name)?;
        }
        let config =
            Self::parse(given, |def| given.get(def.name).cloned().unwrap_or_else(|| Self::broker_value(def, broker)))?;
        let (interval, session) = (config.consumer_heartbeat_interval_ms, config.consumer_session_timeout_ms);
        let least = broker.group_consumer_min_heartbeat_interval_ms;
        in_order(("group.consumer.min.heartbeat.interval.ms", least), ("consumer.heartbeat.interval.ms", interval))?;
        let most = broker.group_consumer_max_heartbeat_interval_ms;
        in_order(("consumer.heartbeat.interval.ms", interval), ("group.consumer.max.heartbeat.interval.ms", most))?;
        let least = broker.group_consumer_min_session_timeout_ms;
        in_order(("group.consumer.min.session.timeout.ms", least), ("consumer.session.timeout.ms", session))?;
        let most = broker.group_consumer_max_session_timeout_ms;
        in_order(("consumer.session.timeout.ms", session), ("group.consumer.max.session.timeout.ms", most))?;
        in_order(("consumer.heartbeat.interval.ms", interval), ("consumer.session.timeout.ms", session))?;
        Ok(config)
    }

    /// The value a group has that does not set `def`.
    pub fn broker_value(def: &ConfigDef, broker: &BrokerConfig) -> String {
        let value = match def.name {
            "consumer.heartbeat.interval.ms" => broker.group_consumer_heartbeat_interval_ms,
            _ => broker.group_consumer_session_timeout_ms,
        };
        value.to_string()
    }

    /// The row of a group config.
    ///
    /// # Errors
    /// `Unknown`, with the nearest name.
    pub fn def(name: &str) -> Result<&'static ConfigDef, ConfigError> {
        ConfigDef::find(GROUP_CONFIGS, name)
            .ok_or_else(|| ConfigError::Unknown { name: name.to_owned(), nearest: nearest(GROUP_CONFIGS, &[], name) })
    }
}

/// Checks that the first of two configs is not above the second.
pub(super) fn in_order(low: (&'static str, i32), high: (&'static str, i32)) -> Result<(), ConfigError> {
    if low.1 <= high.1 {
        return Ok(());
    }
    Err(ConfigError::Crossed { low: low.0, low_value: i64::from(low.1), high: high.0, high_value: i64::from(high.1) })
}
