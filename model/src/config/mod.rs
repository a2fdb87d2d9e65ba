//! Every config of Weir, declared once.
//!
//! One row of a table holds a config's name, type, default, bounds, broker synonyms, standing and text
//! ([`ConfigDef`]). Parsing, validation, DescribeConfigs, help and docs derive from the rows, so they cannot
//! disagree. [`TopicConfig`] and [`BrokerConfig`] are the typed forms that the rest of the broker uses: made only
//! by `resolve`, so code that holds one never meets a value out of bounds.
//!
//! CFG-1: an unknown config, or one whose behaviour does not exist, is refused by name; never ignored.

mod broker;
mod def;
mod error;
mod group;
mod layers;
mod macros;
mod suggest;
mod topic;
mod values;

#[cfg(test)]
mod tests;

pub use broker::{BROKER_CONFIGS, BrokerConfig};
pub use def::{Bounds, Choice, ConfigDef, ConfigType, Standing, UpdateMode};
pub use error::ConfigError;
pub use group::{GROUP_CONFIGS, GroupConfig};
pub use layers::{BrokerLayer, BrokerLayers};
pub use topic::{NOT_BUILT_TOPIC_CONFIGS, TOPIC_CONFIGS, TopicConfig, TopicConfigSource};
pub use values::{
    CleanupPolicy, CompressionType, ConfigValue, ConsumerAssignors, GroupProtocols, InvalidRows, KeepRaw, KeyFormat,
    List, MigrationPolicy, SchemaSource, TimestampKind, ValueFormat, WalSync,
};
