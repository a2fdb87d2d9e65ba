//! Errors in the specification's form: `{"error": {"message", "type", "code"}}`.

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use iceberg_catalog_rest::ErrorModel;

use crate::LakeError;
use crate::catalog::CatalogError;

/// An error as a REST client sees it.
#[derive(Debug)]
pub struct RestError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl RestError {
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "BadRequestException", message: message.into() }
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, kind: "ForbiddenException", message: message.into() }
    }
}

impl From<CatalogError> for RestError {
    fn from(error: CatalogError) -> Self {
        let (status, kind) = match &error {
            CatalogError::NoSuchNamespace(_) => (StatusCode::NOT_FOUND, "NoSuchNamespaceException"),
            CatalogError::NoSuchTable(_) => (StatusCode::NOT_FOUND, "NoSuchTableException"),
            CatalogError::NamespaceExists(_) | CatalogError::TableExists(_) => {
                (StatusCode::CONFLICT, "AlreadyExistsException")
            }
            CatalogError::NamespaceNotEmpty(_) => (StatusCode::CONFLICT, "NamespaceNotEmptyException"),
            CatalogError::Conflict { .. } => (StatusCode::CONFLICT, "CommitFailedException"),
            // The one status after which a client must look before it cleans up.
            CatalogError::Unknown { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "CommitStateUnknownException"),
            // Not a conflict: clients retry those, and this will be refused for ever.
            CatalogError::Refused(_) | CatalogError::Invalid(_) => (StatusCode::BAD_REQUEST, "BadRequestException"),
            CatalogError::Lake(LakeError::OutsideLake { .. }) => (StatusCode::BAD_REQUEST, "BadRequestException"),
            CatalogError::Lake(_) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableException"),
        };
        if status.is_server_error() {
            tracing::warn!(%error, "catalog request failed");
        }
        Self { status, kind, message: error.to_string() }
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let error =
            ErrorModel { message: self.message, r#type: self.kind.to_owned(), code: self.status.as_u16(), stack: None };
        (self.status, Json(serde_json::json!({ "error": error }))).into_response()
    }
}

pub(super) async fn unknown_path(uri: Uri) -> RestError {
    RestError {
        status: StatusCode::NOT_FOUND,
        kind: "NotFoundException",
        message: format!("'{}' is not served by this catalog; GET /v1/config lists what is", uri.path()),
    }
}
