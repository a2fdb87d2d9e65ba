//! The little that the lake keeps in the metadata store: catalog pointers, plans, epochs.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use weir_storage::meta::{MetaBatch, MetaError, MetaStore};

use crate::LakeError;

/// What must hold for a [`LakeStore::commit`] to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The key.
    pub key: String,
    /// The value it must have; `None`: it must not exist.
    pub value: Option<Bytes>,
}

/// One change of a [`LakeStore::commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Bytes,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
}

/// How a conditional commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable.
    Applied,
    /// An expectation did not hold; nothing changed.
    Conflict,
}

/// A durable, transactional map. An error of [`Self::commit`] means that the outcome is *unknown*.
#[async_trait]
pub trait LakeStore: Send + Sync + std::fmt::Debug {
    /// The value of a key.
    async fn get(&self, key: &str) -> Result<Option<Bytes>, LakeError>;

    /// Every key with this prefix, in order.
    async fn scan(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, LakeError>;

    /// Applies all changes or none, durably, if every expectation holds.
    async fn commit(&self, expect: Vec<Expect>, changes: Vec<Change>) -> Result<Outcome, LakeError>;
}

/// A [`LakeStore`] in memory.
#[derive(Debug, Default)]
pub struct MemoryLakeStore {
    values: Mutex<BTreeMap<String, Bytes>>,
}

#[async_trait]
impl LakeStore for MemoryLakeStore {
    async fn get(&self, key: &str) -> Result<Option<Bytes>, LakeError> {
        Ok(self.values.lock().get(key).cloned())
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, LakeError> {
        let values = self.values.lock();
        let from = values.range(prefix.to_owned()..);
        Ok(from
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    async fn commit(&self, expect: Vec<Expect>, changes: Vec<Change>) -> Result<Outcome, LakeError> {
        let mut values = self.values.lock();
        if expect.iter().any(|wanted| values.get(&wanted.key) != wanted.value.as_ref()) {
            return Ok(Outcome::Conflict);
        }
        for change in changes {
            match change {
                Change::Put { key, value } => values.insert(key, value),
                Change::Delete { key } => values.remove(&key),
            };
        }
        Ok(Outcome::Applied)
    }
}

/// A [`LakeStore`] on the broker's metadata store, whose calls block and so run on the blocking pool.
#[derive(Clone)]
pub struct MetaLakeStore {
    meta: Arc<dyn MetaStore>,
}

impl MetaLakeStore {
    /// The lake's share of this store: keys that begin with `lake/`.
    pub fn new(meta: Arc<dyn MetaStore>) -> Self {
        Self { meta }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn MetaStore) -> Result<T, MetaError> + Send + 'static,
    ) -> Result<Result<T, MetaError>, LakeError> {
        let meta = Arc::clone(&self.meta);
        Ok(tokio::task::spawn_blocking(move || work(meta.as_ref())).await?)
    }
}

impl std::fmt::Debug for MetaLakeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaLakeStore").finish_non_exhaustive()
    }
}

fn failed(error: MetaError) -> LakeError {
    LakeError::Store(error.to_string())
}

#[async_trait]
impl LakeStore for MetaLakeStore {
    async fn get(&self, key: &str) -> Result<Option<Bytes>, LakeError> {
        let key = key.to_owned();
        self.blocking(move |meta| meta.get(key.as_bytes())).await?.map_err(failed)
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, LakeError> {
        let prefix = prefix.to_owned();
        let found = self.blocking(move |meta| meta.scan_prefix(prefix.as_bytes())).await?.map_err(failed)?;
        found
            .into_iter()
            .map(|(key, value)| {
                let key = String::from_utf8(key.to_vec())
                    .map_err(|error| LakeError::Record { key: format!("{key:?}"), reason: error.to_string() })?;
                Ok((key, value))
            })
            .collect()
    }

    async fn commit(&self, expect: Vec<Expect>, changes: Vec<Change>) -> Result<Outcome, LakeError> {
        let batch = expect.into_iter().fold(MetaBatch::new(), |batch, wanted| match wanted.value {
            Some(value) => batch.if_equals(wanted.key, value),
            None => batch.if_absent(wanted.key),
        });
        let batch = changes.into_iter().fold(batch, |batch, change| match change {
            Change::Put { key, value } => batch.put(key, value),
            Change::Delete { key } => batch.delete(key),
        });
        match self.blocking(move |meta| meta.commit(batch)).await? {
            Ok(()) => Ok(Outcome::Applied),
            Err(MetaError::Conflict { .. }) => Ok(Outcome::Conflict),
            Err(error) => Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_storage::meta::MemoryMetaStore;

    use super::*;

    #[tokio::test]
    async fn both_stores_commit_all_or_nothing_and_only_as_expected() {
        let stores: [Arc<dyn LakeStore>; 2] =
            [Arc::new(MemoryLakeStore::default()), Arc::new(MetaLakeStore::new(Arc::new(MemoryMetaStore::default())))];
        for store in stores {
            let put = |key: &str, value: &'static str| Change::Put { key: key.to_owned(), value: Bytes::from(value) };
            let expect =
                |key: &str, value: Option<&'static str>| Expect { key: key.to_owned(), value: value.map(Bytes::from) };
            let outcome =
                store.commit(vec![expect("lake/a", None)], vec![put("lake/a", "1"), put("lake/b", "2")]).await;
            assert_eq!(outcome.expect("commits"), Outcome::Applied);
            let outcome = store.commit(vec![expect("lake/a", None)], vec![put("lake/b", "3")]).await;
            assert_eq!(outcome.expect("answers"), Outcome::Conflict);
            let outcome = store
                .commit(vec![expect("lake/a", Some("1"))], vec![Change::Delete { key: "lake/a".to_owned() }])
                .await;
            assert_eq!(outcome.expect("commits"), Outcome::Applied);
            assert_eq!(store.get("lake/a").await.expect("reads"), None);
            assert_eq!(store.scan("lake/").await.expect("scans"), vec![("lake/b".to_owned(), Bytes::from("2"))]);
        }
    }
}
