//! The metadata store: a small transactional map of bytes to bytes that names topics, configs and segments.
//!
//! A [`MetaBatch`] is applied whole or not at all, only if its preconditions hold, and is durable when `commit` returns. Calls block
//! (a commit syncs): keep them off the async workers. In a cluster the same trait sits on a database.

mod memory;
mod rocks;

use std::path::PathBuf;

use bytes::Bytes;

pub use memory::MemoryMetaStore;
pub use rocks::{InspectedMeta, RocksMetaStore};

/// What must hold for a batch to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no such key.
    Absent {
        /// The key.
        key: Bytes,
    },
    /// The key has exactly this value.
    Equals {
        /// The key.
        key: Bytes,
        /// The value it must have.
        value: Bytes,
    },
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaOp {
    /// Sets a value.
    Put {
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
    },
    /// Removes a key. One that is not there is fine.
    Delete {
        /// The key.
        key: Bytes,
    },
}

/// Changes that belong together, in order: a later one of the same key wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaBatch {
    preconditions: Vec<Precondition>,
    ops: Vec<MetaOp>,
}

impl MetaBatch {
    /// No changes yet.
    pub fn new() -> MetaBatch {
        MetaBatch::default()
    }

    /// Sets a value.
    pub fn put(mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> MetaBatch {
        self.ops.push(MetaOp::Put { key: key.into(), value: value.into() });
        self
    }

    /// Removes a key.
    pub fn delete(mut self, key: impl Into<Bytes>) -> MetaBatch {
        self.ops.push(MetaOp::Delete { key: key.into() });
        self
    }

    /// Applies only if there is no such key.
    pub fn if_absent(mut self, key: impl Into<Bytes>) -> MetaBatch {
        self.preconditions.push(Precondition::Absent { key: key.into() });
        self
    }

    /// Applies only if the key has this value.
    pub fn if_equals(mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> MetaBatch {
        self.preconditions.push(Precondition::Equals { key: key.into(), value: value.into() });
        self
    }

    /// True when there is nothing to change, though there may be something to check.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// Why the metadata store cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// A precondition does not hold; nothing was changed. Read again and decide anew.
    #[error("metadata key {key:?} is not as expected; somebody else changed it, read it again")]
    Conflict {
        /// The first key that differs.
        key: Bytes,
        /// What it has instead; `None` when it is not there.
        found: Option<Bytes>,
    },
    /// The directory cannot be opened.
    #[error("cannot open the metadata in {path}: {source}; check that no other broker uses it, then run `weir doctor`")]
    Open {
        /// The store's directory.
        path: PathBuf,
        /// What RocksDB said.
        source: rocksdb::Error,
    },
    /// The store failed while open. After a failed commit it is unknown whether the batch survives a restart.
    #[error("the metadata store failed to {action}: {source}; check the disk and restart the broker")]
    Storage {
        /// What was tried, as a verb.
        action: &'static str,
        /// What RocksDB said.
        source: rocksdb::Error,
    },
}

/// A durable, ordered map with atomic conditional batches.
pub trait MetaStore: Send + Sync {
    /// The value of a key, as of the last commit.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, MetaError>;

    /// All keys that begin with `prefix` and their values, in byte order, from one point in time.
    fn scan_prefix(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, MetaError>;

    /// Applies the batch if its preconditions hold; durable when it returns.
    ///
    /// # Errors
    /// [`MetaError::Conflict`] when one does not hold.
    fn commit(&self, batch: MetaBatch) -> Result<(), MetaError>;
}

/// The first precondition that fails, as an error.
fn check(batch: &MetaBatch, get: impl Fn(&[u8]) -> Result<Option<Bytes>, MetaError>) -> Result<(), MetaError> {
    for precondition in &batch.preconditions {
        let (key, wanted) = match precondition {
            Precondition::Absent { key } => (key, None),
            Precondition::Equals { key, value } => (key, Some(value)),
        };
        let found = get(key)?;
        if found.as_ref() != wanted {
            return Err(MetaError::Conflict { key: key.clone(), found });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
