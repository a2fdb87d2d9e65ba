//! Client quotas (KIP-13, KIP-124, KIP-546): how many bytes per second a client may produce and fetch.
//!
//! A client over its rate is answered at once, told how long it is throttled, and its connection is not read for that long (KIP-219, S-11). Quotas are kept in the metadata
//! store. There is no authentication, so every client's user is [`ANONYMOUS`].

mod bucket;
mod entity;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_storage::meta::{MetaBatch, MetaError, MetaStore};

use bucket::Bucket;
pub use entity::{Entity, Filter, Match, Name};

/// The user of a connection without authentication (Kafka's `KafkaPrincipal.ANONYMOUS`).
pub const ANONYMOUS: &str = "ANONYMOUS";

/// Where they are in the metadata store: `quota/` and the entity as JSON.
const PREFIX: &str = "quota/";

/// Clients whose rates are watched at once. Beyond it those within their rate are forgotten, which costs them nothing.
const MAX_BUCKETS: usize = 10_000;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Bytes of records produced, per second.
    ProducerBytes,
    /// Bytes of records fetched, per second.
    ConsumerBytes,
}

impl Limit {
    fn key(self) -> &'static str {
        match self {
            Self::ProducerBytes => "producer_byte_rate",
            Self::ConsumerBytes => "consumer_byte_rate",
        }
    }
}

/// Quotas of Kafka that Weir does not enforce, and so does not take.
const NOT_BUILT: [&str; 3] = ["request_percentage", "controller_mutation_rate", "connection_creation_rate"];

/// One change of an entity's quotas: `None` removes it.
pub type Change = (String, Option<f64>);

/// Why a quota was not changed.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The entity is none that quotas are for.
    #[error("{0}")]
    Entity(String),
    /// A quota nobody knows.
    #[error("unknown quota '{0}': known are producer_byte_rate and consumer_byte_rate")]
    UnknownKey(String),
    /// A quota that would not be enforced.
    #[error(
        "the quota '{0}' is not built: nothing would be limited, so it cannot be set; known are producer_byte_rate and consumer_byte_rate"
    )]
    NotBuilt(String),
    /// A value that is no rate.
    #[error("the quota '{key}' must be a whole number of bytes per second, at least 1, not {value}")]
    Value {
        /// Which quota.
        key: String,
        /// What was given.
        value: f64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] MetaError),
}

/// Why the quotas could not be read at start.
#[derive(Debug, thiserror::Error)]
pub enum QuotaOpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] MetaError),
    /// What is stored is none.
    #[error("the client quota '{key}' does not read: {source}; run weir doctor")]
    Damaged {
        /// Its key.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
}

type Values = BTreeMap<String, f64>;

/// All quotas, and who used how much of them.
pub struct Quotas {
    store: Arc<dyn MetaStore>,
    /// False while no quota is set: clients then cost nothing here.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    quotas: BTreeMap<Entity, Values>,
    buckets: HashMap<(Limit, Entity), Bucket>,
}

impl Quotas {
    /// Reads what is stored.
    ///
    /// # Errors
    /// [`QuotaOpenError`].
    pub fn open(store: Arc<dyn MetaStore>) -> Result<Self, QuotaOpenError> {
        let mut quotas = BTreeMap::new();
        for (key, value) in store.scan_prefix(PREFIX.as_bytes())? {
            let damaged = |source| QuotaOpenError::Damaged { key: String::from_utf8_lossy(&key).into_owned(), source };
            let entity: Entity = serde_json::from_slice(&key[PREFIX.len()..]).map_err(damaged)?;
            let values: Values = serde_json::from_slice(&value).map_err(damaged)?;
            quotas.insert(entity, values);
        }
        let any = AtomicBool::new(!quotas.is_empty());
        Ok(Self { store, any, state: Mutex::new(State { quotas, buckets: HashMap::new() }) })
    }

    /// Applies all changes of an entity, or none; only checks them when `validate_only`. Durable when it returns. Blocks.
    ///
    /// # Errors
    /// [`QuotaError`].
    pub fn alter(&self, entity: Entity, changes: &[Change], validate_only: bool) -> Result<(), QuotaError> {
        let mut state = self.state.lock();
        let mut values = state.quotas.get(&entity).cloned().unwrap_or_default();
        for (key, value) in changes {
            check_key(key)?;
            match value {
                None => {
                    values.remove(key);
                }
                Some(value) if *value >= 1.0 && value.fract() == 0.0 && value.is_finite() => {
                    values.insert(key.clone(), *value);
                }
                Some(value) => return Err(QuotaError::Value { key: key.clone(), value: *value }),
            }
        }
        if validate_only {
            return Ok(());
        }
        let key = format!("{PREFIX}{}", serde_json::to_string(&entity).expect("an entity is plain data"));
        let batch = if values.is_empty() {
            MetaBatch::new().delete(key)
        } else {
            MetaBatch::new().put(key, serde_json::to_vec(&values).expect("quotas are plain data"))
        };
        self.store.commit(batch)?;
        if values.is_empty() {
            state.quotas.remove(&entity);
        } else {
            state.quotas.insert(entity, values);
        }
        // Rates changed: everybody starts anew.
        state.buckets.clear();
        self.any.store(!state.quotas.is_empty(), Ordering::Release);
        Ok(())
    }

    /// The quotas whose entity passes the filter, in the order of the entities.
    #[must_use]
    pub fn describe(&self, filter: &Filter) -> Vec<(Entity, Vec<(String, f64)>)> {
        let state = self.state.lock();
        let passing = state.quotas.iter().filter(|(entity, _)| filter.passes(entity));
        passing.map(|(entity, values)| (entity.clone(), values.clone().into_iter().collect())).collect()
    }

    /// Counts what a client did, and answers how long it is throttled for it; zero within its rate, or without a quota.
    #[must_use]
    pub fn charge(&self, limit: Limit, client_id: &str, bytes: usize, now: Instant) -> Duration {
        if !self.any.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let mut state = self.state.lock();
        let Some((rate, watched)) = state.rate(limit, client_id) else { return Duration::ZERO };
        if state.buckets.len() >= MAX_BUCKETS {
            state.buckets.retain(|_, bucket| !bucket.is_drained(now));
        }
        let bucket = state.buckets.entry((limit, watched)).or_insert_with(|| Bucket::new(rate, now));
        bucket.fill(bytes, now)
    }
}

impl State {
    /// The rate of a client, bytes per second, and whose use counts toward it. Kafka's order of preference (`DefaultQuotaCallback`).
    fn rate(&self, limit: Limit, client_id: &str) -> Option<(f64, Entity)> {
        let user = |name| Entity::default().with_user(name);
        let client = |entity: Entity, name| entity.with_client_id(name);
        let me = || Name::Named(ANONYMOUS.to_owned());
        let id = || Name::Named(client_id.to_owned());
        let candidates = [
            (client(user(me()), id()), client(user(me()), id())),
            (client(user(me()), Name::Default), client(user(me()), id())),
            (user(me()), user(me())),
            (client(user(Name::Default), id()), client(user(me()), id())),
            (client(user(Name::Default), Name::Default), client(user(me()), id())),
            (user(Name::Default), user(me())),
            (client(Entity::default(), id()), client(Entity::default(), id())),
            (client(Entity::default(), Name::Default), client(Entity::default(), id())),
        ];
        candidates.into_iter().find_map(|(entity, watched)| {
            let rate = *self.quotas.get(&entity)?.get(limit.key())?;
            Some((rate, watched))
        })
    }
}

fn check_key(key: &str) -> Result<(), QuotaError> {
    if [Limit::ProducerBytes, Limit::ConsumerBytes].iter().any(|limit| limit.key() == key) {
        Ok(())
    } else if NOT_BUILT.contains(&key) {
        Err(QuotaError::NotBuilt(key.to_owned()))
    } else {
        Err(QuotaError::UnknownKey(key.to_owned()))
    }
}

#[cfg(test)]
mod tests;
