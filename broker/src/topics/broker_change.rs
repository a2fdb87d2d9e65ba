//! Changing the broker's own configs while it runs (KIP-226).

use std::collections::BTreeMap;

use weir_model::config::{BrokerConfig, BrokerLayer, ConfigDef, UpdateMode};
use weir_storage::BrokerConfigs;

use super::change::apply_changes;
use super::{ConfigChange, TopicError, Topics, blocking};

/// Configs that count threads. Kafka lets each at most double or halve in one step (`DynamicThreadPool`).
const THREADS: [&str; 5] = [
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
];

impl Topics {
    /// Changes some configs of this broker, or of all (IncrementalAlterConfigs). They take effect at once.
    ///
    /// # Errors
    /// [`TopicError`]; nothing changed then.
    pub async fn change_broker_configs(
        &self,
        layer: BrokerLayer,
        changes: &[ConfigChange],
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let _change = self.change.lock().await;
        let now = self.storage.broker_configs();
        let def = |name: &str| BrokerConfig::def(name).map_err(TopicError::from);
        let values = now.config.values();
        let current = |def: &'static ConfigDef| {
            let value = values.iter().find(|(known, _)| known.name == def.name);
            value.map(|(_, text)| text.clone()).unwrap_or_default()
        };
        let set = apply_changes(now.layers.layer(layer), changes, def, current)?;
        self.store_broker_configs(&now, layer, set, validate_only).await
    }

    /// Replaces what is set on this broker, or on all (AlterConfigs).
    ///
    /// # Errors
    /// [`TopicError`]; nothing changed then.
    pub async fn replace_broker_configs(
        &self,
        layer: BrokerLayer,
        set: BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let _change = self.change.lock().await;
        let now = self.storage.broker_configs();
        self.store_broker_configs(&now, layer, set, validate_only).await
    }

    async fn store_broker_configs(
        &self,
        now: &BrokerConfigs,
        layer: BrokerLayer,
        set: BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<(), TopicError> {
        let mut fixed = Vec::new();
        for (name, value) in &set {
            let def = BrokerConfig::def(name)?;
            if def.update == UpdateMode::ReadOnly {
                fixed.push(def.name);
            }
            def.check(value)?;
        }
        if !fixed.is_empty() {
            return Err(TopicError::FixedWhileRunning(fixed.join(", ")));
        }
        check_threads(now, layer, &set)?;
        let names: Vec<String> = set.keys().cloned().collect();
        let storage = self.storage.clone();
        blocking(move || storage.alter_broker_configs(layer, set, validate_only)).await?;
        if !validate_only {
            tracing::info!(?layer, set = names.join(","), "broker configs changed");
        }
        Ok(())
    }
}

fn check_threads(now: &BrokerConfigs, layer: BrokerLayer, set: &BTreeMap<String, String>) -> Result<(), TopicError> {
    let values = now.config.values();
    for (name, value) in set.iter().filter(|(name, _)| THREADS.contains(&name.as_str())) {
        if now.layers.layer(layer).get(name) == Some(value) {
            continue;
        }
        let current = values.iter().find(|(def, _)| def.name == name).and_then(|(_, text)| text.parse::<i64>().ok());
        let (Some(current), Ok(asked)) = (current, value.trim().parse::<i64>()) else { continue };
        if asked > current * 2 || asked * 2 < current {
            return Err(TopicError::ThreadStep { name: name.clone(), asked, current });
        }
    }
    Ok(())
}
