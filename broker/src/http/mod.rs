//! HTTP: health, metrics, tables for operators and tests, and the Iceberg catalog.
//!
//! | path | answers |
//! |---|---|
//! | `GET /health/live` | 200 while the process runs |
//! | `GET /health/ready` | 200 while it serves, 503 once it stops |
//! | `GET /metrics` | Prometheus text |
//! | `GET /api/v1/tables` | every topic |
//! | `GET /api/v1/tables/{table}` | one topic, with the offsets of each partition |
//! | `POST /api/v1/tables/{table}/seal` | seals what is in the tail, and answers when that is done |
//! | `POST /api/v1/tables/{table}/tier` | pours what was produced so far into the lake, and answers when that is done |
//! | `/iceberg/...` | the embedded Iceberg REST catalog |

mod tables;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::app::Broker;

/// The largest body of a request outside the catalog. None of them needs one.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Serves HTTP until `stop` is cancelled.
pub async fn serve(listener: TcpListener, broker: Arc<Broker>, stop: CancellationToken) {
    let shutdown = stop.clone();
    let router = router(broker, stop);
    if let Err(error) =
        axum::serve(listener, router).with_graceful_shutdown(async move { shutdown.cancelled().await }).await
    {
        warn!(%error, "HTTP stopped");
    }
}

/// What the handlers share.
#[derive(Clone)]
struct Shared {
    broker: Arc<Broker>,
    stop: CancellationToken,
}

fn router(broker: Arc<Broker>, stop: CancellationToken) -> Router {
    let catalog = broker.lake.router();
    Router::new()
        .route("/health/live", get(|| async { "alive\n" }))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/api/v1/tables", get(tables::list))
        .route("/api/v1/tables/{table}", get(tables::describe))
        .route("/api/v1/tables/{table}/seal", post(tables::seal))
        .route("/api/v1/tables/{table}/tier", post(tables::tier))
        .with_state(Shared { broker, stop })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        // With a limit of its own: commits carry whole schemas.
        .nest("/iceberg", catalog)
}

async fn ready(State(shared): State<Shared>) -> Response {
    if shared.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    "ready\n".into_response()
}

async fn metrics(State(shared): State<Shared>) -> Result<Response, Problem> {
    let text = shared.broker.metrics.print(&shared.broker).map_err(|error| Problem::internal(error.to_string()))?;
    Ok(([("content-type", "text/plain; version=0.0.4")], text).into_response())
}

/// An error as HTTP answers it: a status and one sentence.
struct Problem {
    status: StatusCode,
    error: String,
}

impl Problem {
    fn not_found(error: String) -> Self {
        Self { status: StatusCode::NOT_FOUND, error }
    }

    fn conflict(error: String) -> Self {
        Self { status: StatusCode::CONFLICT, error }
    }

    fn internal(error: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, error }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
        }
        (self.status, Json(Body { error: self.error })).into_response()
    }
}
