//! Namespaces.

use std::collections::HashMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use iceberg::NamespaceIdent;
use iceberg_catalog_rest::{
    CreateNamespaceRequest, ListNamespaceResponse, NamespaceResponse, UpdateNamespacePropertiesRequest,
    UpdateNamespacePropertiesResponse,
};

use super::tables::parse;
use super::{Ctx, RestError, namespace_of};
use crate::catalog::NAMESPACE;

pub(super) async fn list(
    State(ctx): State<Ctx>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<ListNamespaceResponse>, RestError> {
    let parent = match query.get("parent").filter(|parent| !parent.is_empty()) {
        Some(parent) => {
            let parent = namespace_of(parent)?;
            ctx.catalog.namespace(&parent).await?;
            Some(parent)
        }
        None => None,
    };
    let namespaces = ctx.catalog.list_namespaces().await?;
    let namespaces = namespaces.into_iter().filter(|namespace| namespace.parent() == parent).collect();
    Ok(Json(ListNamespaceResponse { namespaces, next_page_token: None }))
}

pub(super) async fn create(State(ctx): State<Ctx>, body: Bytes) -> Result<Json<NamespaceResponse>, RestError> {
    let request: CreateNamespaceRequest = parse(&body)?;
    if let Some(parent) = request.namespace.parent() {
        ctx.catalog.namespace(&parent).await?;
    }
    ctx.catalog.create_namespace(&request.namespace, request.properties.clone()).await?;
    Ok(Json(NamespaceResponse { namespace: request.namespace, properties: request.properties }))
}

pub(super) async fn load(
    State(ctx): State<Ctx>,
    Path(namespace): Path<String>,
) -> Result<Json<NamespaceResponse>, RestError> {
    let namespace = namespace_of(&namespace)?;
    let properties = ctx.catalog.namespace(&namespace).await?;
    Ok(Json(NamespaceResponse { namespace, properties }))
}

pub(super) async fn exists(State(ctx): State<Ctx>, Path(namespace): Path<String>) -> Result<StatusCode, RestError> {
    ctx.catalog.namespace(&namespace_of(&namespace)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn update(
    State(ctx): State<Ctx>,
    Path(namespace): Path<String>,
    body: Bytes,
) -> Result<Json<UpdateNamespacePropertiesResponse>, RestError> {
    let namespace = namespace_of(&namespace)?;
    let request: UpdateNamespacePropertiesRequest = parse(&body)?;
    let removals = request.removals.unwrap_or_default();
    if let Some(both) = removals.iter().find(|name| request.updates.contains_key(*name)) {
        return Err(RestError::bad_request(format!("property '{both}' is both removed and set")));
    }
    let mut properties = ctx.catalog.namespace(&namespace).await?;
    let (removed, missing): (Vec<String>, Vec<String>) =
        removals.into_iter().partition(|name| properties.remove(name).is_some());
    let mut updated: Vec<String> = request.updates.keys().cloned().collect();
    updated.sort();
    properties.extend(request.updates);
    ctx.catalog.update_namespace(&namespace, properties).await?;
    Ok(Json(UpdateNamespacePropertiesResponse { updated, removed, missing: Some(missing) }))
}

pub(super) async fn remove(State(ctx): State<Ctx>, Path(namespace): Path<String>) -> Result<StatusCode, RestError> {
    let namespace = namespace_of(&namespace)?;
    if is_ours(&namespace) {
        return Err(RestError::forbidden(format!("namespace '{NAMESPACE}' holds the topics; it cannot be dropped")));
    }
    ctx.catalog.drop_namespace(&namespace).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether tables of this namespace are topics.
pub(super) fn is_ours(namespace: &NamespaceIdent) -> bool {
    namespace.as_ref().as_slice() == [NAMESPACE]
}
