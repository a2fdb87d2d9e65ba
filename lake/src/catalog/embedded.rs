//! The catalog inside the broker: pointers in the metadata store, metadata files in the lake.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use iceberg::spec::{TableMetadata, TableMetadataRef};
use iceberg::{MetadataLocation, NamespaceIdent, TableIdent, TableRequirement};
use serde::{Deserialize, Serialize};

use super::{CatalogError, LakeCatalog, LoadedTable, NAMESPACE, TableChange};
use crate::cache::BoundedCache;
use crate::store::{Change, Expect, LakeStore, Outcome};
use crate::{LakeError, LakeStorage};

const NAMESPACE_PREFIX: &str = "lake/namespace/";
const TABLE_PREFIX: &str = "lake/table/";
/// Between the levels of a namespace, as the REST specification has it.
const LEVEL: char = '\u{1f}';
/// Between a namespace and a table. Sorts below [`LEVEL`], so a prefix scan of one namespace finds no other's tables.
const TABLE: char = '\u{1e}';
/// Metadata files kept parsed, by bytes of their JSON.
const METADATA_CACHE_BYTES: usize = 32 << 20;
/// Iceberg's own switch: remove metadata files that left the log.
const DELETE_OLD_METADATA: &str = "write.metadata.delete-after-commit.enabled";

#[derive(Serialize, Deserialize)]
struct TablePointer {
    metadata_location: String,
}

/// Whether the value of one of the catalog's keys decodes; `None` for a key of somebody else.
pub(crate) fn check_record(key: &str, value: &[u8]) -> Option<Result<(), String>> {
    let decoded = if key.starts_with(NAMESPACE_PREFIX) {
        serde_json::from_slice::<HashMap<String, String>>(value).map(|_| ())
    } else if key.starts_with(TABLE_PREFIX) {
        serde_json::from_slice::<TablePointer>(value).map(|_| ())
    } else {
        return None;
    };
    Some(decoded.map_err(|error| error.to_string()))
}

/// See the module.
#[derive(Debug)]
pub struct EmbeddedCatalog {
    store: Arc<dyn LakeStore>,
    storage: LakeStorage,
    /// Metadata files never change, so their location is a safe key.
    metadata: BoundedCache<String, TableMetadataRef>,
}

impl EmbeddedCatalog {
    /// Opens the catalog. The namespace `weir` always exists.
    ///
    /// # Errors
    /// [`CatalogError::Lake`] when the metadata store fails.
    pub async fn open(store: Arc<dyn LakeStore>, storage: LakeStorage) -> Result<Self, CatalogError> {
        let catalog = Self { store, storage, metadata: BoundedCache::new(METADATA_CACHE_BYTES) };
        let weir = NamespaceIdent::new(NAMESPACE.to_owned());
        match catalog.create_namespace(&weir, HashMap::new()).await {
            Ok(()) | Err(CatalogError::NamespaceExists(_)) => Ok(catalog),
            Err(error) => Err(error),
        }
    }

    async fn pointer(&self, table: &TableIdent) -> Result<(Bytes, String), CatalogError> {
        let key = table_key(table);
        let value = self.store.get(&key).await?.ok_or_else(|| CatalogError::NoSuchTable(table.clone()))?;
        let pointer: TablePointer =
            serde_json::from_slice(&value).map_err(|error| LakeError::Record { key, reason: error.to_string() })?;
        Ok((value, pointer.metadata_location))
    }

    async fn read_metadata(&self, location: &str) -> Result<TableMetadataRef, CatalogError> {
        let metadata = Arc::new(TableMetadata::read_from(&self.storage.file_io(), location).await?);
        let weight = self.storage.size(location).await?.unwrap_or(0);
        let weight = usize::try_from(weight).unwrap_or(usize::MAX);
        self.metadata.put(location.to_owned(), Arc::clone(&metadata), weight);
        Ok(metadata)
    }

    async fn load_with(&self, table: &TableIdent, use_cache: bool) -> Result<LoadedTable, CatalogError> {
        let (_, metadata_location) = self.pointer(table).await?;
        let cached = if use_cache { self.metadata.get(&metadata_location) } else { None };
        let metadata = match cached {
            Some(metadata) => metadata,
            None => self.read_metadata(&metadata_location).await?,
        };
        Ok(LoadedTable { ident: table.clone(), metadata_location, metadata })
    }

    async fn write_metadata(&self, metadata: &TableMetadata, location: &MetadataLocation) -> Result<(), CatalogError> {
        Ok(metadata.write_to(&self.storage.file_io(), location).await?)
    }

    async fn expect_namespace(&self, namespace: &NamespaceIdent) -> Result<Expect, CatalogError> {
        let key = namespace_key(namespace);
        match self.store.get(&key).await? {
            Some(value) => Ok(Expect { key, value: Some(value) }),
            None => Err(CatalogError::NoSuchNamespace(namespace.clone())),
        }
    }

    /// Checks and applies one table's change, and writes the metadata file it would lead to.
    async fn prepare(&self, change: TableChange) -> Result<Prepared, CatalogError> {
        let TableChange { ident, requirements, updates } = change;
        let conflict =
            |error: iceberg::Error| CatalogError::Conflict { table: ident.clone(), reason: error.message().to_owned() };
        if requirements.contains(&TableRequirement::NotExist) {
            return Err(CatalogError::Invalid(format!("'{ident}': a table cannot be created and changed in one step")));
        }
        let (pointer, current_location) = self.pointer(&ident).await?;
        let current = match self.metadata.get(&current_location) {
            Some(metadata) => metadata,
            None => self.read_metadata(&current_location).await?,
        };
        for requirement in &requirements {
            requirement.check(Some(&current)).map_err(conflict)?;
        }
        let mut builder = TableMetadata::clone(&current).into_builder(Some(current_location.clone()));
        for update in updates {
            builder = update.apply(builder).map_err(|error| CatalogError::Invalid(error.to_string()))?;
        }
        let built = builder.build().map_err(|error| CatalogError::Invalid(error.to_string()))?;
        let location = MetadataLocation::from_str(&current_location)
            .map(|location| location.with_next_version())
            .unwrap_or_else(|_| MetadataLocation::new_with_metadata(built.metadata.location(), &built.metadata))
            .with_new_metadata(&built.metadata);
        self.write_metadata(&built.metadata, &location).await?;
        let deletes = built.metadata.properties().get(DELETE_OLD_METADATA).is_some_and(|value| value == "true");
        let expired = if deletes { built.expired_metadata_logs } else { Vec::new() };
        Ok(Prepared {
            expect: Expect { key: table_key(&ident), value: Some(pointer) },
            table: LoadedTable { ident, metadata_location: location.to_string(), metadata: Arc::new(built.metadata) },
            expired: expired.into_iter().map(|log| log.metadata_file).collect(),
        })
    }

    async fn forget_files(&self, locations: impl Iterator<Item = String>) {
        for location in locations {
            if let Err(error) = self.storage.delete(&location).await {
                tracing::warn!(location, %error, "cannot delete an unused metadata file");
            }
        }
    }
}

struct Prepared {
    expect: Expect,
    table: LoadedTable,
    expired: Vec<String>,
}

#[async_trait]
impl LakeCatalog for EmbeddedCatalog {
    async fn list_namespaces(&self) -> Result<Vec<NamespaceIdent>, CatalogError> {
        let found = self.store.scan(NAMESPACE_PREFIX).await?;
        found
            .iter()
            .map(|(key, _)| {
                let name = key.strip_prefix(NAMESPACE_PREFIX).unwrap_or(key);
                Ok(NamespaceIdent::from_strs(name.split(LEVEL))?)
            })
            .collect()
    }

    async fn namespace(&self, namespace: &NamespaceIdent) -> Result<HashMap<String, String>, CatalogError> {
        let key = namespace_key(namespace);
        let value = self.store.get(&key).await?.ok_or_else(|| CatalogError::NoSuchNamespace(namespace.clone()))?;
        serde_json::from_slice(&value).map_err(|error| LakeError::Record { key, reason: error.to_string() }.into())
    }

    async fn create_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> Result<(), CatalogError> {
        let bad = |part: &String| part.is_empty() || part.contains([LEVEL, TABLE]);
        if namespace.iter().any(bad) {
            return Err(CatalogError::Invalid(
                "every level of a namespace needs a name without control characters".to_owned(),
            ));
        }
        let key = namespace_key(namespace);
        let change = Change::Put { key: key.clone(), value: encode(&properties) };
        match self.store.commit(vec![Expect { key, value: None }], vec![change]).await? {
            Outcome::Applied => Ok(()),
            Outcome::Conflict => Err(CatalogError::NamespaceExists(namespace.clone())),
        }
    }

    async fn update_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> Result<(), CatalogError> {
        let expect = self.expect_namespace(namespace).await?;
        let change = Change::Put { key: namespace_key(namespace), value: encode(&properties) };
        match self.store.commit(vec![expect], vec![change]).await? {
            Outcome::Applied => Ok(()),
            Outcome::Conflict => {
                Err(CatalogError::Invalid(format!("namespace '{namespace}' changed meanwhile; retry")))
            }
        }
    }

    async fn drop_namespace(&self, namespace: &NamespaceIdent) -> Result<(), CatalogError> {
        let expect = self.expect_namespace(namespace).await?;
        if !self.list_tables(namespace).await?.is_empty() {
            return Err(CatalogError::NamespaceNotEmpty(namespace.clone()));
        }
        let change = Change::Delete { key: namespace_key(namespace) };
        match self.store.commit(vec![expect], vec![change]).await? {
            Outcome::Applied => Ok(()),
            Outcome::Conflict => Err(CatalogError::NoSuchNamespace(namespace.clone())),
        }
    }

    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>, CatalogError> {
        self.expect_namespace(namespace).await?;
        let prefix = format!("{TABLE_PREFIX}{}{TABLE}", joined(namespace));
        let found = self.store.scan(&prefix).await?;
        let name = |key: &String| key.strip_prefix(&prefix).unwrap_or(key).to_owned();
        Ok(found.iter().map(|(key, _)| TableIdent::new(namespace.clone(), name(key))).collect())
    }

    async fn load(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError> {
        self.load_with(table, true).await
    }

    async fn load_uncached(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError> {
        self.load_with(table, false).await
    }

    async fn create(&self, table: &TableIdent, metadata: TableMetadata) -> Result<LoadedTable, CatalogError> {
        let namespace = self.expect_namespace(&table.namespace).await?;
        let key = table_key(table);
        if self.store.get(&key).await?.is_some() {
            return Err(CatalogError::TableExists(table.clone()));
        }
        // Where the files go must be inside the lake, whoever asks.
        self.storage.path_of(metadata.location()).map_err(|error| CatalogError::Invalid(error.to_string()))?;
        let location = MetadataLocation::new_with_metadata(metadata.location(), &metadata);
        self.write_metadata(&metadata, &location).await?;
        let metadata_location = location.to_string();
        let value = pointer_to(&metadata_location);
        let expect = vec![namespace, Expect { key: key.clone(), value: None }];
        match self.store.commit(expect, vec![Change::Put { key, value }]).await {
            Ok(Outcome::Applied) => {
                Ok(LoadedTable { ident: table.clone(), metadata_location, metadata: Arc::new(metadata) })
            }
            Ok(Outcome::Conflict) => {
                self.forget_files(std::iter::once(metadata_location)).await;
                Err(CatalogError::TableExists(table.clone()))
            }
            Err(error) => Err(CatalogError::Unknown { table: table.clone(), reason: error.to_string() }),
        }
    }

    async fn register(&self, table: &TableIdent, metadata_location: &str) -> Result<LoadedTable, CatalogError> {
        let namespace = self.expect_namespace(&table.namespace).await?;
        let metadata = self.read_metadata(metadata_location).await?;
        let key = table_key(table);
        let expect = vec![namespace, Expect { key: key.clone(), value: None }];
        match self.store.commit(expect, vec![Change::Put { key, value: pointer_to(metadata_location) }]).await? {
            Outcome::Applied => {
                Ok(LoadedTable { ident: table.clone(), metadata_location: metadata_location.to_owned(), metadata })
            }
            Outcome::Conflict => Err(CatalogError::TableExists(table.clone())),
        }
    }

    async fn commit(&self, changes: Vec<TableChange>) -> Result<Vec<LoadedTable>, CatalogError> {
        let Some(first) = changes.first().map(|change| change.ident.clone()) else { return Ok(Vec::new()) };
        let mut prepared: Vec<Prepared> = Vec::with_capacity(changes.len());
        for change in changes {
            if prepared.iter().any(|other| other.table.ident == change.ident) {
                return Err(CatalogError::Invalid(format!("'{}' appears twice in one commit", change.ident)));
            }
            match self.prepare(change).await {
                Ok(ready) => prepared.push(ready),
                Err(error) => {
                    self.forget_files(prepared.into_iter().map(|ready| ready.table.metadata_location)).await;
                    return Err(error);
                }
            }
        }
        let expect = prepared.iter().map(|ready| ready.expect.clone()).collect();
        let puts = prepared
            .iter()
            .map(|ready| Change::Put {
                key: ready.expect.key.clone(),
                value: pointer_to(&ready.table.metadata_location),
            })
            .collect();
        match self.store.commit(expect, puts).await {
            Ok(Outcome::Applied) => {
                let mut tables = Vec::with_capacity(prepared.len());
                for ready in prepared {
                    self.forget_files(ready.expired.into_iter()).await;
                    tables.push(ready.table);
                }
                Ok(tables)
            }
            Ok(Outcome::Conflict) => {
                self.forget_files(prepared.into_iter().map(|ready| ready.table.metadata_location)).await;
                Err(CatalogError::Conflict { table: first, reason: "another commit came first".to_owned() })
            }
            Err(error) => Err(CatalogError::Unknown { table: first, reason: error.to_string() }),
        }
    }

    async fn drop_table(&self, table: &TableIdent) -> Result<(), CatalogError> {
        let (value, _) = self.pointer(table).await?;
        let key = table_key(table);
        let expect = vec![Expect { key: key.clone(), value: Some(value) }];
        match self.store.commit(expect, vec![Change::Delete { key }]).await? {
            Outcome::Applied => Ok(()),
            Outcome::Conflict => {
                Err(CatalogError::Conflict { table: table.clone(), reason: "it changed meanwhile".to_owned() })
            }
        }
    }

    async fn rename(&self, from: &TableIdent, to: &TableIdent) -> Result<(), CatalogError> {
        let (value, _) = self.pointer(from).await?;
        let namespace = self.expect_namespace(&to.namespace).await?;
        let (old, new) = (table_key(from), table_key(to));
        if self.store.get(&new).await?.is_some() {
            return Err(CatalogError::TableExists(to.clone()));
        }
        let expect = vec![
            namespace,
            Expect { key: old.clone(), value: Some(value.clone()) },
            Expect { key: new.clone(), value: None },
        ];
        let changes = vec![Change::Delete { key: old }, Change::Put { key: new, value }];
        match self.store.commit(expect, changes).await? {
            Outcome::Applied => Ok(()),
            Outcome::Conflict => {
                Err(CatalogError::Conflict { table: from.clone(), reason: "it changed meanwhile".to_owned() })
            }
        }
    }

    fn default_location(&self, table: &TableIdent) -> String {
        format!("{}/{}/{}", self.storage.root(), table.namespace.join("/"), table.name)
    }
}

fn joined(namespace: &NamespaceIdent) -> String {
    namespace.join("\u{1f}")
}

fn namespace_key(namespace: &NamespaceIdent) -> String {
    format!("{NAMESPACE_PREFIX}{}", joined(namespace))
}

fn table_key(table: &TableIdent) -> String {
    format!("{TABLE_PREFIX}{}{TABLE}{}", joined(&table.namespace), table.name)
}

fn pointer_to(metadata_location: &str) -> Bytes {
    encode(&TablePointer { metadata_location: metadata_location.to_owned() })
}

fn encode(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("maps of strings always serialise"))
}
