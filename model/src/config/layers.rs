//! The places where a broker config may be set, and which of them wins (KIP-226).

use std::collections::BTreeMap;

use super::{BrokerConfig, ConfigError, UpdateMode};

/// A place where a broker config is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BrokerLayer {
    /// While the broker runs, for this broker. Wins over the others.
    Broker,
    /// While the broker runs, for all brokers of the cluster.
    Cluster,
    /// At the broker's start: file, environment, command line.
    Start,
}

/// What is set in each place, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerLayers {
    /// See [`BrokerLayer::Broker`].
    pub broker: BTreeMap<String, String>,
    /// See [`BrokerLayer::Cluster`].
    pub cluster: BTreeMap<String, String>,
    /// See [`BrokerLayer::Start`].
    pub start: BTreeMap<String, String>,
}

impl BrokerLayers {
    /// Only what was set at the start.
    pub fn at_start(start: BTreeMap<String, String>) -> Self {
        Self { start, ..Self::default() }
    }

    /// What is set in one place.
    pub fn layer(&self, layer: BrokerLayer) -> &BTreeMap<String, String> {
        match layer {
            BrokerLayer::Broker => &self.broker,
            BrokerLayer::Cluster => &self.cluster,
            BrokerLayer::Start => &self.start,
        }
    }

    /// Where `name` is set, strongest first.
    pub fn set(&self, name: &str) -> impl Iterator<Item = (BrokerLayer, &str)> {
        [BrokerLayer::Broker, BrokerLayer::Cluster, BrokerLayer::Start]
            .into_iter()
            .filter_map(move |layer| Some((layer, self.layer(layer).get(name)?.as_str())))
    }

    /// The configs that come of it.
    ///
    /// # Errors
    /// As [`BrokerConfig::resolve`].
    pub fn resolve(&self) -> Result<BrokerConfig, ConfigError> {
        let mut merged = self.start.clone();
        merged.extend(self.cluster.clone());
        merged.extend(self.broker.clone());
        BrokerConfig::resolve(&merged)
    }

    /// Takes out of the two dynamic places what can no longer be honoured, as after an update of the program, and answers the
    /// names with the reasons.
    pub fn remove_unusable(&mut self) -> Vec<(String, String)> {
        let mut removed = Vec::new();
        for layer in [&mut self.broker, &mut self.cluster] {
            layer.retain(|name, value| {
                let reason = match BrokerConfig::def(name) {
                    Err(error) => error.to_string(),
                    Ok(def) if def.update == UpdateMode::ReadOnly => "it is fixed at the start".to_owned(),
                    Ok(def) => match def.check(value) {
                        Ok(()) => return true,
                        Err(error) => error.to_string(),
                    },
                };
                removed.push((name.clone(), reason));
                false
            });
        }
        if let Err(error) = self.resolve() {
            for (name, _) in std::mem::take(&mut self.broker).into_iter().chain(std::mem::take(&mut self.cluster)) {
                removed.push((name, error.to_string()));
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_set_for_the_broker_wins_over_the_cluster_and_the_start() {
        let mut layers = BrokerLayers::at_start(set(&[("message.max.bytes", "1"), ("log.cleaner.backoff.ms", "1")]));
        layers.cluster = set(&[("message.max.bytes", "2"), ("log.retention.ms", "2")]);
        layers.broker = set(&[("message.max.bytes", "3")]);
        let config = layers.resolve().expect("valid");
        let seen = (config.message_max_bytes, config.log_retention_ms, config.log_cleaner_backoff_ms);
        assert_eq!(seen, (3, 2, 1));
        let places: Vec<_> = layers.set("message.max.bytes").collect();
        assert_eq!(places, [(BrokerLayer::Broker, "3"), (BrokerLayer::Cluster, "2"), (BrokerLayer::Start, "1")]);
    }

    #[test]
    fn what_an_older_program_stored_and_this_one_refuses_is_taken_out() {
        let mut layers = BrokerLayers::default();
        layers.broker =
            set(&[("no.such", "1"), ("node.id", "3"), ("message.max.bytes", "x"), ("log.retention.ms", "5")]);
        let mut removed: Vec<String> = layers.remove_unusable().into_iter().map(|(name, _)| name).collect();
        removed.sort();
        assert_eq!(removed, ["message.max.bytes", "no.such", "node.id"]);
        assert_eq!(layers.resolve().expect("valid").log_retention_ms, 5);
    }
}
