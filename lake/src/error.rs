//! What can go wrong between a log and its lake table.

use iceberg::TableIdent;
use weir_model::TopicId;

/// An error of the lake. Every variant that needs a person says what the person can do.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The object store refused or failed.
    #[error("lake storage: {0}")]
    Storage(#[from] object_store::Error),
    /// A file of the local lake could not be made durable.
    #[error("lake storage: cannot sync {path}: {source}")]
    Sync {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The lake's own address cannot be used.
    #[error(
        "weir.lake.url '{url}' cannot be used: {reason}; give a folder, or a file://, s3://, gs://, az:// or memory:// URL"
    )]
    Url {
        /// The address as configured.
        url: String,
        /// Why not.
        reason: String,
    },
    /// A file location that does not lie in this lake.
    #[error("'{location}' lies outside the lake at '{root}'; only locations below it can be read or written")]
    OutsideLake {
        /// The location.
        location: String,
        /// Where the lake is.
        root: String,
    },
    /// Iceberg metadata could not be read, written or built.
    #[error("iceberg: {0}")]
    Iceberg(#[from] iceberg::Error),
    /// A Parquet file could not be read or written.
    #[error("parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Columns could not be converted.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// The metadata store failed.
    #[error("metadata store: {0}")]
    Store(String),
    /// A record in the metadata store is not what it must be.
    #[error("metadata store: the record '{key}' cannot be read: {reason}")]
    Record {
        /// Its key.
        key: String,
        /// Why not.
        reason: String,
    },
    /// A newer committer owns the table.
    #[error("another committer took over '{table}' (epoch {current}, ours is {ours}); this one stops")]
    Fenced {
        /// The table.
        table: TableIdent,
        /// The epoch we hold.
        ours: u64,
        /// The epoch in the metadata store.
        current: u64,
    },
    /// The table belongs to another incarnation of the topic.
    #[error(
        "table '{table}' holds the rows of topic id {found}, not of {expected}: the topic was made again under the same name; \
         rename or drop the table, then tiering starts afresh"
    )]
    OtherTopic {
        /// The table.
        table: TableIdent,
        /// The topic id in its marker.
        found: TopicId,
        /// The topic id of the topic that is tiered now.
        expected: TopicId,
    },
    /// A table of that name exists that Weir did not make.
    #[error(
        "table '{table}' was not made by Weir (it has no property '{property}'); rename or drop it, or rename the topic"
    )]
    NotOurs {
        /// The table.
        table: TableIdent,
        /// The property that is missing.
        property: &'static str,
    },
    /// A Weir table lost its marker.
    #[error(
        "table '{table}' has no readable tiering marker ({reason}); restore the property '{property}' from an older metadata file"
    )]
    MarkerLost {
        /// The table.
        table: TableIdent,
        /// What is wrong with it.
        reason: String,
        /// The property that holds it.
        property: &'static str,
    },
    /// The commit was made, and yet the marker does not say so.
    #[error("table '{table}' was committed, but reading it back gave {found}; local data is kept")]
    ReadBack {
        /// The table.
        table: TableIdent,
        /// What was found instead.
        found: String,
    },
    /// The topic's schema cannot be poured into the table's.
    #[error("column '{column}' of table '{table}': {reason}")]
    Schema {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What does not fit.
        reason: String,
    },
    /// Other commits kept winning.
    #[error("table '{table}': {attempts} commits in a row met another commit; the rows stay local and are tried again")]
    Contended {
        /// The table.
        table: TableIdent,
        /// How often it was tried.
        attempts: u32,
    },
    /// The catalog refused.
    #[error("catalog: {0}")]
    Catalog(Box<crate::catalog::CatalogError>),
    /// The log could not be read.
    #[error("cannot read rows to tier: {0}")]
    Source(String),
    /// Data in the lake is not as this reader needs it.
    #[error("lake file '{file}': {reason}")]
    DataFile {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A worker thread ended early.
    #[error("lake worker: {0}")]
    Worker(String),
}

impl From<crate::catalog::CatalogError> for LakeError {
    fn from(error: crate::catalog::CatalogError) -> Self {
        match error {
            crate::catalog::CatalogError::Lake(error) => error,
            other => Self::Catalog(Box::new(other)),
        }
    }
}

impl From<tokio::task::JoinError> for LakeError {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Worker(error.to_string())
    }
}
