//! What runs beside the way from the source to the log: metrics and health, the control service, the catalog task,
//! retention, the registry's upkeep.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry as MetricsRegistry;
use service::config::Config;
use service::http::Endpoints;
use storage_format::fs::Fs;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::catalog::{CatalogWatch, Explainer, Recogniser};
use crate::control::{About, ControlService, maintain_registry};
use crate::error::DecoderError;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::retention::{Policy, Retention};
use crate::source::Addresses;
use crate::state::{DecoderState, RefreshCatalog, SourceState};

/// What the services share with the rest.
pub(crate) struct Parts {
    pub(crate) config: Arc<Config>,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) state: Arc<DecoderState>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) recogniser: Arc<Recogniser>,
}

/// The running services.
pub(crate) struct Services {
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
    /// Stores the slots' positions, also those that came last, so it ends after the others.
    upkeep: JoinHandle<()>,
    stop_upkeep: CancellationToken,
}

impl Services {
    /// Binds the addresses and starts everything. They serve also while there is no log and no source yet.
    pub(crate) async fn start(
        parts: &Parts,
        requests: mpsc::Receiver<RefreshCatalog>,
    ) -> Result<(Self, Metrics), DecoderError> {
        let addresses = &parts.config.decoder;
        let http = service::http::bind(addresses.http, "decoder.http").await?;
        let control = service::http::bind(addresses.control, "decoder.control").await?;
        report_address("metrics and health (HTTP)", &http);
        report_address("control (gRPC)", &control);
        let mut metrics_registry = MetricsRegistry::default();
        let metrics = Metrics::register(&mut metrics_registry, &parts.state);
        let stop = CancellationToken::new();
        let stop_upkeep = CancellationToken::new();
        let retention = parts.retention();
        let tasks = vec![
            parts.serve_http(http, metrics_registry, stop.clone()),
            parts.serve_control(control, &retention, stop.clone()),
            parts.watch_catalog(requests, stop.clone()),
            parts.collect_garbage(retention, stop.clone()),
        ];
        let upkeep = maintain_registry(Arc::clone(&parts.registry), stop_upkeep.clone());
        let services = Self {
            tasks,
            stop,
            upkeep: tokio::spawn(upkeep),
            stop_upkeep,
        };
        Ok((services, metrics))
    }

    /// Stops everything in order.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            // Ignored: a task that panicked has said so itself.
            let _ = task.await;
        }
        self.stop_upkeep.cancel();
        let _ = self.upkeep.await;
    }
}

impl Parts {
    fn retention(&self) -> Arc<Retention> {
        let policy = Policy {
            keep_bytes: self.config.retention.keep_bytes,
            keep_age: Duration::from_secs(self.config.retention.keep_seconds),
            slot_keep_bytes_max: self.config.retention.slot_keep_bytes_max,
            slot_keep_age_max: Duration::from_secs(self.config.retention.slot_keep_seconds_max),
        };
        Arc::new(Retention::new(
            Arc::clone(&self.fs),
            self.config.log.directory.clone(),
            policy,
            Arc::clone(&self.registry),
        ))
    }

    fn serve_http(
        &self,
        listener: TcpListener,
        registry: MetricsRegistry,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let state = Arc::clone(&self.state);
        let endpoints = Endpoints {
            registry,
            refresh: Box::new(|| {}),
            ready: Box::new(move || ready(&state)),
        };
        tokio::spawn(async move {
            if let Err(error) = service::http::serve(listener, endpoints, stop).await {
                tracing::error!(%error, "metrics and health are no longer served");
            }
        })
    }

    fn serve_control(
        &self,
        listener: TcpListener,
        retention: &Arc<Retention>,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let source = &self.config.source;
        let service = ControlService::new(
            Arc::clone(&self.state),
            Arc::clone(&self.registry),
            Arc::clone(retention),
            About {
                log_directory: self.config.log.directory.clone(),
                database: source.database.clone(),
                slot: source.slot.clone(),
                publication: source.publication.clone(),
            },
            Arc::clone(&self.recogniser),
            Explainer::new(
                Addresses::new(&self.config, &format!("decant_{}_explain", source.slot)),
                Arc::clone(&self.state),
            ),
            stop.clone(),
        );
        tokio::spawn(async move {
            if let Err(error) = crate::control::serve(listener, service, stop).await {
                tracing::error!(
                    error = service::cli::causes(&error),
                    "the control service is no longer served"
                );
            }
        })
    }

    fn watch_catalog(
        &self,
        requests: mpsc::Receiver<RefreshCatalog>,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let name = format!("decant_{}_catalog", self.config.source.slot);
        let watch = CatalogWatch {
            state: Arc::clone(&self.state),
            recogniser: Arc::clone(&self.recogniser),
            registry: Arc::clone(&self.registry),
            addresses: Addresses::new(&self.config, &name),
            poll_interval: Duration::from_millis(self.config.decoder.catalog_poll_ms),
            slot: self.config.source.slot.clone(),
        };
        tokio::spawn(watch.run(requests, stop))
    }

    fn collect_garbage(
        &self,
        retention: Arc<Retention>,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let interval = Duration::from_secs(self.config.retention.interval_seconds);
        tokio::spawn(retention.run(interval, stop))
    }
}

fn report_address(what: &str, listener: &TcpListener) {
    if let Ok(addr) = listener.local_addr() {
        tracing::info!(%addr, what, "listening");
    }
}

/// Ready: the log is there, can be written, and the source streams into it.
fn ready(state: &DecoderState) -> Result<(), String> {
    if let Some(trouble) = state.disk().trouble(Instant::now()) {
        return Err(trouble);
    }
    let source = state.source();
    if source.state == SourceState::Streaming {
        return Ok(());
    }
    Err(format!(
        "the source is not streaming: {:?} {}",
        source.state, source.last_error
    ))
}
