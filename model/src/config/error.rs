//! Why a config was refused.

/// Why a config was refused. Each message names the config and says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No config has this name.
    #[error("unknown config `{name}`{}", did_you_mean(.nearest))]
    Unknown {
        /// The name as given.
        name: String,
        /// The config that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The name is reserved for a behaviour that does not exist yet.
    #[error("config `{name}` is not built yet: leave it out")]
    NotBuilt {
        /// The name as given.
        name: &'static str,
    },
    /// The name was given without a value.
    #[error("config `{name}` has no value: give one, or leave the config out to have its default")]
    NoValue {
        /// The name as given.
        name: String,
    },
    /// The value is not of the config's type.
    #[error("config `{name}` is `{value}`: write {expected}")]
    WrongType {
        /// The config.
        name: &'static str,
        /// The value as given.
        value: String,
        /// What the type wants.
        expected: &'static str,
    },
    /// The number is outside its bounds.
    #[error("config `{name}` is {value}: write a value {}", range(*.min, *.max))]
    OutOfRange {
        /// The config.
        name: &'static str,
        /// The value as given.
        value: String,
        /// Smallest legal value.
        min: i64,
        /// Largest legal value.
        max: i64,
    },
    /// The value is none of the fixed set.
    #[error("config `{name}` does not know `{value}`: write one of {choices}")]
    NotAChoice {
        /// The config.
        name: &'static str,
        /// The value as given.
        value: String,
        /// The values that work.
        choices: String,
    },
    /// The value is reserved for a behaviour that does not exist yet.
    #[error("config `{name}`: `{value}` is not built yet; write one of {built}")]
    ValueNotBuilt {
        /// The config.
        name: &'static str,
        /// The value as given.
        value: String,
        /// The values that work.
        built: String,
    },
    /// Only the default is accepted for this config.
    #[error("config `{name}` is `{value}`, which is not built yet: leave it at its default `{default}`")]
    OnlyDefault {
        /// The config.
        name: &'static str,
        /// The value as given.
        value: String,
        /// The default.
        default: &'static str,
    },
    /// A schema was given with a value format that has none.
    #[error("`weir.schema` needs `weir.value.format=json`, but the format is `raw`: set it to json, or leave it out")]
    SchemaNeedsFormat,
    /// A structured value format was given without a schema.
    #[error(
        "`weir.value.format=json` needs `weir.schema`: declare the columns, or leave the format out to store raw bytes"
    )]
    FormatNeedsSchema,
    /// Compaction of a table.
    #[error(
        "`cleanup.policy=compact` is not built for a topic with `weir.schema`: set it to delete, or leave the schema out"
    )]
    CompactTable,
    /// The local copy would have to outlive the data.
    #[error(
        "`{local}` is {local_value}, more than `{total}` which is {total_value}: local data cannot outlive the data; lower it or write -2"
    )]
    LocalRetentionExceedsRetention {
        /// `local.retention.ms` or `local.retention.bytes`.
        local: &'static str,
        /// Its value.
        local_value: i64,
        /// `retention.ms` or `retention.bytes`.
        total: &'static str,
        /// Its value.
        total_value: i64,
    },
    /// A pair of bounds is the wrong way round.
    #[error("`{low}` is {low_value}, more than `{high}` which is {high_value}: swap them or leave both out")]
    Crossed {
        /// The config that should be smaller.
        low: &'static str,
        /// Its value.
        low_value: i64,
        /// The config that should be larger.
        high: &'static str,
        /// Its value.
        high_value: i64,
    },
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!(": did you mean `{name}`?"),
        None => String::from(": leave it out, or see docs/configuration.md for the names there are"),
    }
}

fn range(min: i64, max: i64) -> String {
    match (min, max) {
        (min, i64::MAX) => format!("of {min} or more"),
        (i64::MIN, max) => format!("of {max} or less"),
        (min, max) => format!("from {min} to {max}"),
    }
}
