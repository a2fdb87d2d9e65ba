//! An Iceberg REST catalog over any [`LakeCatalog`]: the paths, bodies and errors of the specification's `v1`.
//!
//! Served: config; namespaces (list, create, load, exists, properties, drop); tables (list, create, staged create, load,
//! exists, commit, register, rename, drop); transactions over several tables; metrics reports, which are accepted and dropped.
//! Not served, and so not listed in the config: views, scan planning, credential vending, OAuth.

mod error;
mod namespaces;
mod staged;
mod tables;

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use iceberg::io::FileIO;
use iceberg::{NamespaceIdent, TableIdent};
use weir_model::TopicId;

use super::{CatalogError, LakeCatalog};
use crate::LakeStorage;
pub use error::RestError;

/// Largest request body: a commit carries whole schemas and summaries, never data.
const BODY_BYTES_MAX: usize = 16 << 20;

/// What the catalog asks of the broker around it.
#[async_trait]
pub trait CatalogHooks: Send + Sync + 'static {
    /// Called before a table is loaded; returns within a bounded time.
    ///
    /// # Errors
    /// When what would be loaded is not the topic of that name; the load is answered with it.
    async fn before_load(&self, table: &TableIdent) -> Result<(), CatalogError>;

    /// Whether the topic that owns a table still exists; then the table cannot be dropped or renamed under it.
    fn is_live(&self, topic: TopicId) -> bool;
}

/// Hooks of a catalog that stands alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

#[async_trait]
impl CatalogHooks for NoHooks {
    async fn before_load(&self, _table: &TableIdent) -> Result<(), CatalogError> {
        Ok(())
    }

    fn is_live(&self, _topic: TopicId) -> bool {
        false
    }
}

/// What every handler needs.
#[derive(Clone)]
struct Ctx {
    catalog: Arc<dyn LakeCatalog>,
    hooks: Arc<dyn CatalogHooks>,
    io: FileIO,
}

/// The routes, `/v1/...`; the broker nests them under `/iceberg`.
pub fn router(catalog: Arc<dyn LakeCatalog>, storage: &LakeStorage, hooks: Arc<dyn CatalogHooks>) -> Router {
    let namespace = get(namespaces::load).head(namespaces::exists).delete(namespaces::remove);
    let table = get(tables::load).head(tables::exists).post(tables::commit).delete(tables::remove);
    Router::new()
        .route("/v1/config", get(tables::config))
        .route("/v1/namespaces", get(namespaces::list).post(namespaces::create))
        .route("/v1/namespaces/{namespace}", namespace)
        .route("/v1/namespaces/{namespace}/properties", post(namespaces::update))
        .route("/v1/namespaces/{namespace}/tables", get(tables::list).post(tables::create))
        .route("/v1/namespaces/{namespace}/register", post(tables::register))
        .route("/v1/namespaces/{namespace}/tables/{table}", table)
        .route("/v1/namespaces/{namespace}/tables/{table}/metrics", post(tables::metrics))
        .route("/v1/tables/rename", post(tables::rename))
        .route("/v1/transactions/commit", post(tables::commit_transaction))
        .fallback(error::unknown_path)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Ctx { catalog, hooks, io: storage.file_io() })
}

/// A namespace in a path: its levels joined by the unit separator.
fn namespace_of(text: &str) -> Result<NamespaceIdent, RestError> {
    NamespaceIdent::from_strs(text.split('\u{1f}')).map_err(|error| RestError::bad_request(error.message()))
}

fn table_of(namespace: &str, table: &str) -> Result<TableIdent, RestError> {
    Ok(TableIdent::new(namespace_of(namespace)?, table.to_owned()))
}
