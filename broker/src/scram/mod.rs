//! SCRAM credentials of users (KIP-554), kept in the metadata store.
//!
//! As in Kafka, the salted password that a client sends is not kept: only the salt, the iterations, and the two keys that a server needs (RFC 5802). Nobody can log in
//! with them yet, as SASL is not built; a Kafka without a SASL listener keeps them the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use weir_storage::meta::{MetaBatch, MetaError, MetaStore};

/// Kafka's `ScramMechanism.MAX_ITERATIONS` of every mechanism.
const MAX_ITERATIONS: i32 = 16_384;

/// Kafka's least iterations of every mechanism.
const MIN_ITERATIONS: i32 = 4_096;

/// Where they are in the metadata store: `scram/MECHANISM/USER`.
const PREFIX: &str = "scram/";

/// A hash that SCRAM is done with; the number is the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// SCRAM-SHA-256.
    Sha256 = 1,
    /// SCRAM-SHA-512.
    Sha512 = 2,
}

impl Mechanism {
    /// From the number on the wire.
    #[must_use]
    pub fn from_wire(number: i8) -> Option<Self> {
        match number {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// The number on the wire.
    #[must_use]
    pub fn to_wire(self) -> i8 {
        self as i8
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha512].into_iter().find(|mechanism| mechanism.name() == name)
    }
}

/// What a server keeps of a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Credential {
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
    iterations: i32,
}

impl Credential {
    /// RFC 5802, section 3: the keys that follow from `salted_password`.
    fn derive(mechanism: Mechanism, salt: &[u8], salted_password: &[u8], iterations: i32) -> Self {
        let (mac, hash) = match mechanism {
            Mechanism::Sha256 => (hmac::HMAC_SHA256, &digest::SHA256),
            Mechanism::Sha512 => (hmac::HMAC_SHA512, &digest::SHA512),
        };
        let key = hmac::Key::new(mac, salted_password);
        let client_key = hmac::sign(&key, b"Client Key");
        Self {
            salt: salt.to_vec(),
            stored_key: digest::digest(hash, client_key.as_ref()).as_ref().to_vec(),
            server_key: hmac::sign(&key, b"Server Key").as_ref().to_vec(),
            iterations,
        }
    }
}

/// One change of one user.
pub enum Change {
    /// Sets the credential of a mechanism.
    Upsert {
        /// The mechanism's number.
        mechanism: i8,
        /// Rounds of hashing that were done.
        iterations: i32,
        /// What was hashed along.
        salt: Vec<u8>,
        /// What came out.
        salted_password: Vec<u8>,
    },
    /// Removes it.
    Delete {
        /// The mechanism's number.
        mechanism: i8,
    },
}

impl Change {
    fn mechanism(&self) -> i8 {
        match self {
            Self::Upsert { mechanism, .. } | Self::Delete { mechanism } => *mechanism,
        }
    }
}

/// Why a user's credentials were not changed. Kafka's sentences.
#[derive(Debug, thiserror::Error)]
pub enum ScramError {
    /// The user has no name.
    #[error("Username must not be empty")]
    NoName,
    /// A mechanism nobody knows.
    #[error("Unknown SCRAM mechanism")]
    UnknownMechanism,
    /// Too weak.
    #[error("Too few iterations: at least {MIN_ITERATIONS}")]
    TooFewIterations,
    /// Too dear for the server.
    #[error("Too many iterations: at most {MAX_ITERATIONS}")]
    TooManyIterations,
    /// Twice in one request.
    #[error("A user credential cannot be altered twice in the same request")]
    Twice,
    /// There is nothing to delete.
    #[error("Attempt to delete a user credential that does not exist")]
    NotThere,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] MetaError),
}

/// Why the credentials could not be read at start.
#[derive(Debug, thiserror::Error)]
pub enum ScramOpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] MetaError),
    /// What is stored is none.
    #[error("the SCRAM credential '{key}' does not read: {reason}; run weir doctor")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

type Credentials = BTreeMap<String, BTreeMap<Mechanism, Credential>>;

/// All credentials.
pub struct Scram {
    store: Arc<dyn MetaStore>,
    users: Mutex<Credentials>,
}

impl Scram {
    /// Reads what is stored.
    ///
    /// # Errors
    /// [`ScramOpenError`].
    pub fn open(store: Arc<dyn MetaStore>) -> Result<Self, ScramOpenError> {
        let mut users = Credentials::new();
        for (key, value) in store.scan_prefix(PREFIX.as_bytes())? {
            let damaged =
                |reason: String| ScramOpenError::Damaged { key: String::from_utf8_lossy(&key).into_owned(), reason };
            let text = std::str::from_utf8(&key).map_err(|error| damaged(error.to_string()))?;
            let (mechanism, user) = text[PREFIX.len()..]
                .split_once('/')
                .and_then(|(mechanism, user)| Some((Mechanism::from_name(mechanism)?, user)))
                .ok_or_else(|| damaged("the key names no mechanism and user".to_owned()))?;
            let credential = serde_json::from_slice(&value).map_err(|error| damaged(error.to_string()))?;
            users.entry(user.to_owned()).or_default().insert(mechanism, credential);
        }
        Ok(Self { store, users: Mutex::new(users) })
    }

    /// Applies all changes of a user, or none. Durable when it returns. Blocks.
    ///
    /// # Errors
    /// [`ScramError`].
    pub fn change(&self, user: &str, changes: &[Change]) -> Result<(), ScramError> {
        if user.is_empty() {
            return Err(ScramError::NoName);
        }
        let mut users = self.users.lock();
        let mut known = users.get(user).cloned().unwrap_or_default();
        let mut batch = MetaBatch::new();
        let mut changed = BTreeSet::new();
        for change in changes {
            let mechanism = Mechanism::from_wire(change.mechanism()).ok_or(ScramError::UnknownMechanism)?;
            if !changed.insert(mechanism) {
                return Err(ScramError::Twice);
            }
            let key = format!("{PREFIX}{}/{user}", mechanism.name());
            match change {
                Change::Delete { .. } => {
                    known.remove(&mechanism).ok_or(ScramError::NotThere)?;
                    batch = batch.delete(key);
                }
                Change::Upsert { iterations, .. } if *iterations < MIN_ITERATIONS => {
                    return Err(ScramError::TooFewIterations);
                }
                Change::Upsert { iterations, .. } if *iterations > MAX_ITERATIONS => {
                    return Err(ScramError::TooManyIterations);
                }
                Change::Upsert { iterations, salt, salted_password, .. } => {
                    let credential = Credential::derive(mechanism, salt, salted_password, *iterations);
                    let value = serde_json::to_vec(&credential).expect("a credential is plain data");
                    batch = batch.put(key, value);
                    known.insert(mechanism, credential);
                }
            }
        }
        self.store.commit(batch)?;
        if known.is_empty() {
            users.remove(user);
        } else {
            users.insert(user.to_owned(), known);
        }
        Ok(())
    }

    /// The mechanisms of a user with their iterations; `None` for one without credentials.
    #[must_use]
    pub fn of(&self, user: &str) -> Option<Vec<(Mechanism, i32)>> {
        let users = self.users.lock();
        let known = users.get(user)?;
        Some(known.iter().map(|(mechanism, credential)| (*mechanism, credential.iterations)).collect())
    }

    /// Everybody who has credentials, by name.
    #[must_use]
    pub fn users(&self) -> Vec<String> {
        self.users.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
