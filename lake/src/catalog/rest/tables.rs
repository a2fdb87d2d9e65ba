//! Tables and commits.

use std::collections::HashMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use iceberg::{TableIdent, TableRequirement};
use iceberg_catalog_rest::{
    CommitTableRequest, CommitTableResponse, CreateTableRequest, ListTablesResponse, LoadTableResult,
    RegisterTableRequest, RenameTableRequest,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::namespaces::is_ours;
use super::staged::{created_metadata, new_metadata};
use super::{Ctx, RestError, namespace_of, table_of};
use crate::catalog::ownership::{check_foreign, owner};
use crate::catalog::{CatalogError, LoadedTable, NAMESPACE, TableChange};

/// What the config says is served, in the specification's spelling.
const ENDPOINTS: [&str; 16] = [
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
];

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, RestError> {
    serde_json::from_slice(body).map_err(|error| RestError::bad_request(format!("the body cannot be read: {error}")))
}

pub(super) async fn config() -> Json<serde_json::Value> {
    Json(serde_json::json!({ "defaults": {}, "overrides": {}, "endpoints": ENDPOINTS }))
}

pub(super) async fn list(
    State(ctx): State<Ctx>,
    Path(namespace): Path<String>,
) -> Result<Json<ListTablesResponse>, RestError> {
    let identifiers = ctx.catalog.list_tables(&namespace_of(&namespace)?).await?;
    Ok(Json(ListTablesResponse { identifiers, next_page_token: None }))
}

pub(super) async fn load(
    State(ctx): State<Ctx>,
    Path((namespace, table)): Path<(String, String)>,
) -> Result<Json<LoadTableResult>, RestError> {
    let table = table_of(&namespace, &table)?;
    ctx.hooks.before_load(&table).await?;
    Ok(Json(loaded(ctx.catalog.load(&table).await?)))
}

pub(super) async fn exists(
    State(ctx): State<Ctx>,
    Path((namespace, table)): Path<(String, String)>,
) -> Result<StatusCode, RestError> {
    ctx.catalog.load(&table_of(&namespace, &table)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn create(
    State(ctx): State<Ctx>,
    Path(namespace): Path<String>,
    body: Bytes,
) -> Result<Json<LoadTableResult>, RestError> {
    let request: CreateTableRequest = parse(&body)?;
    let ident = table_of(&namespace, &request.name)?;
    expect_free(&ident)?;
    let staged = request.stage_create.unwrap_or(false);
    let metadata = new_metadata(request, ctx.catalog.default_location(&ident))?;
    if staged {
        ctx.catalog.namespace(&ident.namespace).await?;
        if ctx.catalog.load(&ident).await.is_ok() {
            return Err(CatalogError::TableExists(ident).into());
        }
        return Ok(Json(LoadTableResult {
            metadata_location: None,
            metadata,
            config: HashMap::new(),
            storage_credentials: None,
        }));
    }
    Ok(Json(loaded(ctx.catalog.create(&ident, metadata).await?)))
}

pub(super) async fn register(
    State(ctx): State<Ctx>,
    Path(namespace): Path<String>,
    body: Bytes,
) -> Result<Json<LoadTableResult>, RestError> {
    let request: RegisterTableRequest = parse(&body)?;
    let ident = table_of(&namespace, &request.name)?;
    expect_free(&ident)?;
    if request.overwrite == Some(true) {
        return Err(RestError::bad_request("a table is not registered over another; drop the other first"));
    }
    Ok(Json(loaded(ctx.catalog.register(&ident, &request.metadata_location).await?)))
}

pub(super) async fn commit(
    State(ctx): State<Ctx>,
    Path((namespace, table)): Path<(String, String)>,
    body: Bytes,
) -> Result<Json<CommitTableResponse>, RestError> {
    let ident = table_of(&namespace, &table)?;
    let request: CommitTableRequest = parse(&body)?;
    if request.identifier.as_ref().is_some_and(|named| *named != ident) {
        return Err(RestError::bad_request("the identifier in the body is not the table in the path"));
    }
    if request.requirements.contains(&TableRequirement::NotExist) {
        expect_free(&ident)?;
        let metadata = created_metadata(&ident, request.updates, ctx.catalog.default_location(&ident))?;
        let table = ctx.catalog.create(&ident, metadata).await.map_err(|error| match error {
            CatalogError::TableExists(table) => {
                CatalogError::Conflict { table, reason: "the table exists by now".to_owned() }
            }
            other => other,
        })?;
        return Ok(Json(committed(table)));
    }
    let change = foreign_change(&ctx, ident.clone(), request).await?;
    let mut tables = ctx.catalog.commit(vec![change]).await?;
    match tables.pop() {
        Some(table) => Ok(Json(committed(table))),
        None => Err(CatalogError::NoSuchTable(ident).into()),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CommitTransactionRequest {
    table_changes: Vec<CommitTableRequest>,
}

pub(super) async fn commit_transaction(State(ctx): State<Ctx>, body: Bytes) -> Result<StatusCode, RestError> {
    let request: CommitTransactionRequest = parse(&body)?;
    let mut changes = Vec::with_capacity(request.table_changes.len());
    for change in request.table_changes {
        let ident = change
            .identifier
            .clone()
            .ok_or_else(|| RestError::bad_request("every table change of a transaction needs an identifier"))?;
        if change.requirements.contains(&TableRequirement::NotExist) {
            return Err(RestError::bad_request(format!(
                "create '{ident}' in a commit of its own, not in a transaction"
            )));
        }
        changes.push(foreign_change(&ctx, ident, change).await?);
    }
    ctx.catalog.commit(changes).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks a commit against who owns the table. A commit checked on one base and made on another is caught by the catalog:
/// what [`check_foreign`] lets through on a topic's table is conditional on its snapshot, or touches no rows.
async fn foreign_change(ctx: &Ctx, ident: TableIdent, request: CommitTableRequest) -> Result<TableChange, RestError> {
    let table = ctx.catalog.load(&ident).await?;
    // The conditions first: whoever lost a race must hear of the race, which he can win, not of the rest.
    for requirement in &request.requirements {
        requirement
            .check(Some(&table.metadata))
            .map_err(|error| CatalogError::Conflict { table: ident.clone(), reason: error.message().to_owned() })?;
    }
    check_foreign(&ident, &table.metadata, &request.updates, &ctx.io).await?;
    let mut requirements = request.requirements;
    if owner(&table.metadata).is_some() {
        requirements.push(TableRequirement::UuidMatch { uuid: table.metadata.uuid() });
        requirements.push(TableRequirement::RefSnapshotIdMatch {
            r#ref: iceberg::spec::MAIN_BRANCH.to_owned(),
            snapshot_id: table.metadata.current_snapshot_id(),
        });
    }
    Ok(TableChange { ident, requirements, updates: request.updates })
}

pub(super) async fn remove(
    State(ctx): State<Ctx>,
    Path((namespace, table)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<StatusCode, RestError> {
    let ident = table_of(&namespace, &table)?;
    if query.get("purgeRequested").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(RestError::bad_request(
            "this catalog does not delete data files; drop the table without purge, then delete its folder",
        ));
    }
    expect_not_live(&ctx, &ident).await?;
    ctx.catalog.drop_table(&ident).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn rename(State(ctx): State<Ctx>, body: Bytes) -> Result<StatusCode, RestError> {
    let request: RenameTableRequest = parse(&body)?;
    expect_not_live(&ctx, &request.source).await?;
    ctx.catalog.rename(&request.source, &request.destination).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn metrics() -> StatusCode {
    StatusCode::NO_CONTENT
}

fn expect_free(ident: &TableIdent) -> Result<(), RestError> {
    if is_ours(&ident.namespace) {
        return Err(RestError::forbidden(format!(
            "tables of namespace '{NAMESPACE}' are topics; create a topic, or the table in another namespace"
        )));
    }
    Ok(())
}

async fn expect_not_live(ctx: &Ctx, ident: &TableIdent) -> Result<(), RestError> {
    let table = ctx.catalog.load(ident).await?;
    match owner(&table.metadata) {
        Some(topic) if ctx.hooks.is_live(topic) => Err(RestError::forbidden(format!(
            "table '{ident}' holds old rows of a topic that is in use; delete the topic first"
        ))),
        _ => Ok(()),
    }
}

fn loaded(table: LoadedTable) -> LoadTableResult {
    LoadTableResult {
        metadata_location: Some(table.metadata_location),
        metadata: table.metadata.as_ref().clone(),
        config: HashMap::new(),
        storage_credentials: None,
    }
}

fn committed(table: LoadedTable) -> CommitTableResponse {
    CommitTableResponse { metadata_location: table.metadata_location, metadata: table.metadata.as_ref().clone() }
}
