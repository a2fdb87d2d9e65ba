//! A store, a catalog and an object store that fail at a chosen operation, counted over all three.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use iceberg::spec::TableMetadata;
use iceberg::{NamespaceIdent, TableIdent};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};

use crate::LakeError;
use crate::catalog::{CatalogError, LakeCatalog, LoadedTable, TableChange};
use crate::store::{Change, Expect, LakeStore, Outcome};

/// When the chosen operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Before,
    After,
}

/// Counts operations and says which fail.
#[derive(Debug)]
pub(super) struct Faults {
    left: AtomicI64,
    moment: Moment,
    /// After the chosen operation everything fails: the process is dead.
    dies: bool,
}

impl Faults {
    pub(super) fn new(at: i64, moment: Moment, dies: bool) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(at), moment, dies })
    }

    /// Whether the chosen operation was reached.
    pub(super) fn hit(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    async fn run<T, E>(&self, fault: impl Fn() -> E, operation: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        if left < 0 && self.dies {
            return Err(fault());
        }
        if left != 0 {
            return operation.await;
        }
        if self.moment == Moment::After {
            operation.await?;
        }
        Err(fault())
    }
}

#[derive(Debug)]
pub(super) struct FaultyStore(pub(super) Arc<dyn LakeStore>, pub(super) Arc<Faults>);

fn store_fault() -> LakeError {
    LakeError::Store("injected fault".to_owned())
}

#[async_trait]
impl LakeStore for FaultyStore {
    async fn get(&self, key: &str) -> Result<Option<Bytes>, LakeError> {
        self.1.run(store_fault, self.0.get(key)).await
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, LakeError> {
        self.1.run(store_fault, self.0.scan(prefix)).await
    }

    async fn commit(&self, expect: Vec<Expect>, changes: Vec<Change>) -> Result<Outcome, LakeError> {
        self.1.run(store_fault, self.0.commit(expect, changes)).await
    }
}

/// Fails commits and loads as a catalog behind a network does.
#[derive(Debug)]
pub(super) struct FaultyCatalog(pub(super) Arc<dyn LakeCatalog>, pub(super) Arc<Faults>);

impl FaultyCatalog {
    fn unknown(table: &TableIdent) -> CatalogError {
        CatalogError::Unknown { table: table.clone(), reason: "injected fault".to_owned() }
    }
}

#[async_trait]
impl LakeCatalog for FaultyCatalog {
    async fn list_namespaces(&self) -> Result<Vec<NamespaceIdent>, CatalogError> {
        self.0.list_namespaces().await
    }

    async fn namespace(&self, namespace: &NamespaceIdent) -> Result<HashMap<String, String>, CatalogError> {
        self.0.namespace(namespace).await
    }

    async fn create_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> Result<(), CatalogError> {
        self.0.create_namespace(namespace, properties).await
    }

    async fn update_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> Result<(), CatalogError> {
        self.0.update_namespace(namespace, properties).await
    }

    async fn drop_namespace(&self, namespace: &NamespaceIdent) -> Result<(), CatalogError> {
        self.0.drop_namespace(namespace).await
    }

    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>, CatalogError> {
        self.0.list_tables(namespace).await
    }

    async fn load(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError> {
        self.1.run(|| CatalogError::from(store_fault()), self.0.load(table)).await
    }

    async fn load_uncached(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError> {
        self.1.run(|| CatalogError::from(store_fault()), self.0.load_uncached(table)).await
    }

    async fn create(&self, table: &TableIdent, metadata: TableMetadata) -> Result<LoadedTable, CatalogError> {
        self.1.run(|| Self::unknown(table), self.0.create(table, metadata)).await
    }

    async fn register(&self, table: &TableIdent, metadata_location: &str) -> Result<LoadedTable, CatalogError> {
        self.0.register(table, metadata_location).await
    }

    async fn commit(&self, changes: Vec<TableChange>) -> Result<Vec<LoadedTable>, CatalogError> {
        let table = changes.first().expect("a change").ident.clone();
        self.1.run(|| Self::unknown(&table), self.0.commit(changes)).await
    }

    async fn drop_table(&self, table: &TableIdent) -> Result<(), CatalogError> {
        self.0.drop_table(table).await
    }

    async fn rename(&self, from: &TableIdent, to: &TableIdent) -> Result<(), CatalogError> {
        self.0.rename(from, to).await
    }

    fn default_location(&self, table: &TableIdent) -> String {
        self.0.default_location(table)
    }
}

#[derive(Debug)]
pub(super) struct FaultyObjects(pub(super) Arc<dyn ObjectStore>, pub(super) Arc<Faults>);

impl fmt::Display for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.0)
    }
}

fn object_fault() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "injected fault".into() }
}

#[async_trait]
impl ObjectStore for FaultyObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.1.run(object_fault, self.0.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.1.run(object_fault, self.0.put_multipart_opts(location, options)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.1.run(object_fault, self.0.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> object_store::Result<Vec<Bytes>> {
        self.1.run(object_fault, self.0.get_ranges(location, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let (inner, faults) = (Arc::clone(&self.0), Arc::clone(&self.1));
        locations
            .then(move |location| {
                let (inner, faults) = (Arc::clone(&inner), Arc::clone(&faults));
                async move {
                    let delete = async {
                        let one = futures::stream::once(async { location }).boxed();
                        match inner.delete_stream(one).next().await {
                            Some(result) => result,
                            None => Err(object_fault()),
                        }
                    };
                    faults.run(object_fault, delete).await
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}
