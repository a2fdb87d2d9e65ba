//! A metadata store for tests.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use super::{MetaBatch, MetaError, MetaOp, MetaStore, check};

/// Holds everything in memory; durable until it is dropped.
#[derive(Default)]
pub struct MemoryMetaStore {
    entries: Mutex<BTreeMap<Bytes, Bytes>>,
}

impl MemoryMetaStore {
    /// An empty store.
    pub fn new() -> MemoryMetaStore {
        MemoryMetaStore::default()
    }
}

impl MetaStore for MemoryMetaStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, MetaError> {
        Ok(self.entries.lock().get(key).cloned())
    }

    fn scan_prefix(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, MetaError> {
        let entries = self.entries.lock();
        let from = entries.range(Bytes::copy_from_slice(prefix)..);
        Ok(from
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    fn commit(&self, batch: MetaBatch) -> Result<(), MetaError> {
        let mut entries = self.entries.lock();
        check(&batch, |key| Ok(entries.get(key).cloned()))?;
        for op in batch.ops {
            match op {
                MetaOp::Put { key, value } => {
                    entries.insert(key, value);
                }
                MetaOp::Delete { key } => {
                    entries.remove(&key);
                }
            }
        }
        Ok(())
    }
}
