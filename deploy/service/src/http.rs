//! Metrics and health over HTTP.
//!
//! `/metrics` in the OpenMetrics text format; `/healthz` answers 200 as long as the process runs its loop;
//! `/readyz` answers 200 when it serves, otherwise 503 with the reason.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Says whether the process serves; if not, why.
pub type Readiness = dyn Fn() -> Result<(), String> + Send + Sync;

/// Called before metrics are written, to bring gauges up to date.
pub type Refresh = dyn Fn() + Send + Sync;

/// The address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({setting})")]
pub struct BindError {
    address: SocketAddr,
    setting: &'static str,
    #[source]
    source: std::io::Error,
}

/// Listens on `address`; `setting` names it in the error, such as `decoder.http`.
pub async fn bind(address: SocketAddr, setting: &'static str) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError {
            address,
            setting,
            source,
        })
}

/// What the endpoints answer with.
pub struct Endpoints {
    /// The metrics.
    pub registry: Registry,
    /// Brings them up to date.
    pub refresh: Box<Refresh>,
    /// Whether the process serves.
    pub ready: Box<Readiness>,
}

/// Serves until `shutdown` is cancelled.
pub async fn serve(
    listener: TcpListener,
    endpoints: Endpoints,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(Arc::new(endpoints));
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

async fn metrics(State(endpoints): State<Arc<Endpoints>>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (endpoints.refresh)();
    let mut text = String::new();
    match encode(&mut text, &endpoints.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn ready(State(endpoints): State<Arc<Endpoints>>) -> Response {
    match (endpoints.ready)() {
        Ok(()) => "ready\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}
