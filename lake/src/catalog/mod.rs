//! Which metadata file is a table's current one: the catalog.
//!
//! [`LakeCatalog`] is what the committer and the REST surface need of a catalog; [`EmbeddedCatalog`] keeps the pointers in
//! the broker's own metadata store and the metadata files in the lake. [`rest`] serves any of them as an Iceberg REST catalog.

pub(crate) mod embedded;
pub mod ownership;
pub mod rest;

use std::collections::HashMap;

use async_trait::async_trait;
use iceberg::spec::{TableMetadata, TableMetadataRef};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};

use crate::LakeError;
pub use embedded::EmbeddedCatalog;

/// The namespace of tables that are topics.
pub const NAMESPACE: &str = "weir";

/// A table as the catalog has it now.
#[derive(Clone, Debug)]
pub struct LoadedTable {
    /// Its name.
    pub ident: TableIdent,
    /// Where its metadata file lies.
    pub metadata_location: String,
    /// What that file says.
    pub metadata: TableMetadataRef,
}

/// One table's part of a commit.
#[derive(Clone, Debug)]
pub struct TableChange {
    /// The table.
    pub ident: TableIdent,
    /// What must hold of its current metadata.
    pub requirements: Vec<TableRequirement>,
    /// What changes.
    pub updates: Vec<TableUpdate>,
}

/// What a catalog refuses, or cannot say.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No such namespace.
    #[error("namespace '{0}' does not exist")]
    NoSuchNamespace(NamespaceIdent),
    /// It exists already.
    #[error("namespace '{0}' exists already")]
    NamespaceExists(NamespaceIdent),
    /// It still has tables.
    #[error("namespace '{0}' still has tables; drop or move them first")]
    NamespaceNotEmpty(NamespaceIdent),
    /// No such table.
    #[error("table '{0}' does not exist")]
    NoSuchTable(TableIdent),
    /// It exists already.
    #[error("table '{0}' exists already")]
    TableExists(TableIdent),
    /// A requirement does not hold, or another commit came first. Nothing changed.
    #[error("commit to '{table}' was not made: {reason}; load the table again and retry")]
    Conflict {
        /// The table.
        table: TableIdent,
        /// What differs.
        reason: String,
    },
    /// Nobody knows whether the commit was made.
    #[error("the outcome of the commit to '{table}' is unknown: {reason}; load the table and look for the snapshot")]
    Unknown {
        /// The table.
        table: TableIdent,
        /// What failed.
        reason: String,
    },
    /// Not allowed on this table.
    #[error("{0}")]
    Refused(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The lake failed below.
    #[error(transparent)]
    Lake(LakeError),
}

impl From<LakeError> for CatalogError {
    fn from(error: LakeError) -> Self {
        Self::Lake(error)
    }
}

impl From<iceberg::Error> for CatalogError {
    fn from(error: iceberg::Error) -> Self {
        Self::Lake(error.into())
    }
}

/// A catalog of Iceberg tables. Every change is conditional and atomic; [`CatalogError::Unknown`] is the only answer after
/// which a commit may or may not have been made.
#[async_trait]
pub trait LakeCatalog: Send + Sync + std::fmt::Debug {
    /// Every namespace, in order.
    async fn list_namespaces(&self) -> Result<Vec<NamespaceIdent>, CatalogError>;

    /// Properties of a namespace.
    async fn namespace(&self, namespace: &NamespaceIdent) -> Result<HashMap<String, String>, CatalogError>;

    /// Makes a namespace.
    async fn create_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> Result<(), CatalogError>;

    /// Replaces the properties of a namespace.
    async fn update_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> Result<(), CatalogError>;

    /// Drops an empty namespace.
    async fn drop_namespace(&self, namespace: &NamespaceIdent) -> Result<(), CatalogError>;

    /// Tables of a namespace, in order.
    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>, CatalogError>;

    /// The table as it is now.
    async fn load(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError>;

    /// As [`Self::load`], with nothing taken from a cache: every byte is read from where it is stored (LAKE-2).
    async fn load_uncached(&self, table: &TableIdent) -> Result<LoadedTable, CatalogError>;

    /// Adds a table with this metadata.
    async fn create(&self, table: &TableIdent, metadata: TableMetadata) -> Result<LoadedTable, CatalogError>;

    /// Adds a table whose metadata file exists.
    async fn register(&self, table: &TableIdent, metadata_location: &str) -> Result<LoadedTable, CatalogError>;

    /// Commits to one or more tables, all or none.
    async fn commit(&self, changes: Vec<TableChange>) -> Result<Vec<LoadedTable>, CatalogError>;

    /// Forgets a table. Its files stay.
    async fn drop_table(&self, table: &TableIdent) -> Result<(), CatalogError>;

    /// Gives a table another name.
    async fn rename(&self, from: &TableIdent, to: &TableIdent) -> Result<(), CatalogError>;

    /// Where a new table would lie.
    fn default_location(&self, table: &TableIdent) -> String;
}

/// The name of a topic's table.
pub fn topic_table(topic: &str) -> TableIdent {
    TableIdent::new(NamespaceIdent::new(NAMESPACE.to_owned()), topic.to_owned())
}
