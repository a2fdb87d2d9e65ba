//! The lake: Parquet, Iceberg v2, exactly-once tiering, old offsets, and the catalog.
//!
//! - [`storage_io`]: files in any object store, under Iceberg's locations.
//! - [`schema`], [`convert`]: a topic's columns as an Iceberg table, and back.
//! - [`write`]: Parquet data files straight from Arrow.
//! - [`commit`]: plans, markers and conditional commits (LAKE-1).
//! - [`tier`]: pouring a topic into its table (LAKE-2).
//! - [`cold`]: old offsets read back from the table.
//! - [`catalog`]: the embedded catalog, and the Iceberg REST surface over any catalog.
//!
//! Nothing here knows a connection or a Kafka error code.

mod cache;
pub mod catalog;
pub mod cold;
pub mod commit;
pub mod convert;
mod error;
mod headers;
pub mod schema;
pub mod storage_io;
pub mod store;
pub mod tier;
pub mod write;

pub use catalog::rest::{CatalogHooks, NoHooks};
pub use catalog::{EmbeddedCatalog, LakeCatalog, LoadedTable};
pub use cold::{ColdOptions, ColdReader, TableNames};
pub use error::LakeError;
pub use storage_io::LakeStorage;
pub use store::{LakeStore, MemoryLakeStore, MetaLakeStore};
pub use tier::{PourOnLoad, TierBounds, TierOptions, TierReport, TierSource, TierTopic, Tierer};

/// Whether the value of one of the lake's keys in the broker's metadata decodes; `None` for a key of somebody else. Reads no file of the lake.
pub fn check_record(key: &str, value: &[u8]) -> Option<Result<(), String>> {
    catalog::embedded::check_record(key, value).or_else(|| commit::plan::check_record(key, value))
}
