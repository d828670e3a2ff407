//! The running process: opens the log, starts the endpoints, ends in order.

pub(crate) mod lanes;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::registry::Registry;
use service::config::{Config, Serve};
use service::http::{self, BindError, Endpoints};
use storage_format::log::{Log, ReadError, ReadOptions};
use storage_format::watermark::WatermarkError;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::auth::{AccessError, Guard, Roles};
use crate::filter::Filters;
use crate::metrics;
use crate::positions::{InvalidAddress, Positions, report};
use crate::replay::{HeadWatcher, Replay, StagedFiles};
use crate::sink::{Services, grpc, walsender};
use crate::snapshot::Snapshots;
use crate::subscriber::Subscribers;
use crate::versions::VersionsFile;

pub use lanes::Lanes;

/// Time between two attempts to open a log that is not there yet.
const OPEN_INTERVAL: Duration = Duration::from_millis(250);
/// Time between two notes that it is not there yet.
const OPEN_NOTE_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time for subscribers to take what is there at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time for the last positions to reach the decoder, behind that.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The process can't start, or can't go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The setting `fanout.decoder` is no address.
    #[error(transparent)]
    Decoder(#[from] InvalidAddress),
    /// The log can't be used.
    #[error("can't open the log (log.directory)")]
    Log(#[from] ReadError),
    /// An address can't be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The PostgreSQL endpoint's address can't be listened on.
    #[error("cannot listen on {address} (fanout.postgres)")]
    BindPostgres {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Who may connect.
    #[error("can't use the settings for access")]
    Access(#[from] AccessError),
    /// The threads for subscribers that catch up don't start.
    #[error("can't start threads")]
    Threads(#[source] io::Error),
    /// Signals can't be listened to.
    #[error("can't listen to signals")]
    Signals(#[source] io::Error),
    /// The gRPC service.
    #[error(transparent)]
    Grpc(#[from] grpc::ServeError),
}

/// Runs a fanout until a signal ends it.
pub async fn run(config: Config) -> Result<(), RunError> {
    let shutdown = service::shutdown::on_signal().map_err(RunError::Signals)?;
    serve(config, shutdown).await
}

/// Runs a fanout until `shutdown` is cancelled. Metrics and health are there from the beginning, the other endpoints
/// when the log is open.
pub async fn serve(config: Config, shutdown: CancellationToken) -> Result<(), RunError> {
    let config = Arc::new(config);
    let positions = Positions::new(&config.fanout.decoder, &config.fanout.name)?;
    let guard = Guard::new(&config.fanout)?;
    let background = CancellationToken::new();
    let mut helpers = JoinSet::new();
    let reloads = Arc::clone(&guard).reload_on_hangup(background.clone());
    helpers.spawn(reloads.map_err(RunError::Signals)?);
    let ready = Arc::new(OnceLock::new());
    let listener = http::bind(config.fanout.http, "fanout.http").await?;
    helpers.spawn(serve_http(listener, Arc::clone(&ready), background.clone()));

    let mut result = Ok(());
    if let Some(log) = wait_for_log(&config, &shutdown).await? {
        let staged = StagedFiles::new(Arc::clone(&log));
        let versions = VersionsFile::new(log.directory());
        let (watcher, head) = HeadWatcher::new(
            Arc::clone(&log),
            positions.clone(),
            staged.clone(),
            versions.clone(),
        );
        helpers.spawn(watcher.run(background.clone()));
        helpers.spawn(report(
            positions.clone(),
            Arc::clone(&log),
            background.clone(),
        ));
        let services = Services {
            replay: Replay::new(log, head)
                .with_filters(Filters::new(config.source.clone()))
                .with_staged(staged)
                .with_versions(versions),
            positions,
            subscribers: Subscribers::new(limit(&config)),
            snapshots: Snapshots::default(),
            guard: Arc::clone(&guard),
            roles: Arc::new(Roles::new(&config.source)),
            lanes: Lanes::start().map_err(RunError::Threads)?,
            config,
        };
        result = serve_subscribers(services, guard, &ready, &shutdown).await;
    }
    // The head is told, and positions are reported, until the last subscriber has left.
    background.cancel();
    while helpers.join_next().await.is_some() {}
    tracing::info!("stopped");
    result
}

/// Serves subscribers until `shutdown` is cancelled and they have what is there, or until an endpoint fails.
async fn serve_subscribers(
    services: Services,
    guard: Arc<Guard>,
    ready: &OnceLock<Services>,
    shutdown: &CancellationToken,
) -> Result<(), RunError> {
    let settings = &services.config.fanout;
    let grpc = grpc::Endpoint::bind(settings.grpc, services.clone()).await?;
    tracing::info!(addr = %grpc.local_addr(), "listening for gRPC");
    let postgres = bind_postgres(settings.postgres, &services, guard).await?;
    let mut endpoints: JoinSet<Result<(), RunError>> = JoinSet::new();
    let stop = shutdown.clone();
    endpoints.spawn(async move { Ok(grpc.serve(stop).await?) });
    let stop = shutdown.clone();
    endpoints.spawn(async move {
        postgres.serve(stop).await;
        Ok(())
    });
    let positions = services.positions.clone();
    // Nothing else sets it.
    let _ = ready.set(services);

    let first = endpoints.join_next().await;
    shutdown.cancel();
    let drain = async { while endpoints.join_next().await.is_some() {} };
    if timeout(DRAIN_TIMEOUT, drain).await.is_err() {
        tracing::warn!("some subscribers did not take what was there in time");
    }
    if timeout(RELEASE_TIMEOUT, positions.all_given_back())
        .await
        .is_err()
    {
        tracing::warn!("not every slot could be released; their leases will run out");
    }
    match first {
        Some(Ok(result)) => result,
        // A task that was cancelled or panicked has said so itself.
        Some(Err(_)) | None => Ok(()),
    }
}

async fn bind_postgres(
    address: SocketAddr,
    services: &Services,
    guard: Arc<Guard>,
) -> Result<walsender::Endpoint, RunError> {
    let failed = |source| RunError::BindPostgres { address, source };
    let endpoint = walsender::Endpoint::bind(address, services.clone(), guard)
        .await
        .map_err(failed)?;
    let bound = endpoint.local_addr().map_err(failed)?;
    tracing::info!(addr = %bound, "listening for PostgreSQL");
    Ok(endpoint)
}

async fn serve_http(
    listener: TcpListener,
    services: Arc<OnceLock<Services>>,
    stop: CancellationToken,
) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(addr = %address, "listening for HTTP");
    }
    let mut registry = Registry::default();
    metrics::register(&mut registry, Arc::clone(&services));
    let endpoints = Endpoints {
        registry,
        refresh: Box::new(|| {}),
        ready: Box::new(move || match services.get() {
            Some(_) => Ok(()),
            None => Err("waiting for the log".to_owned()),
        }),
    };
    if let Err(error) = http::serve(listener, endpoints, stop).await {
        tracing::error!(%error, "metrics and health (HTTP) failed");
    }
}

/// The log, as soon as the decoder has made it; `None` if `shutdown` was cancelled before.
async fn wait_for_log(
    config: &Config,
    shutdown: &CancellationToken,
) -> Result<Option<Arc<Log>>, ReadError> {
    let directory = &config.log.directory;
    let options = ReadOptions {
        serve: match config.fanout.serve {
            Serve::Durable => storage_format::log::Serve::Durable,
            Serve::Written => storage_format::log::Serve::Written,
        },
        cache_bytes: usize::try_from(config.fanout.cache_bytes).unwrap_or(usize::MAX),
    };
    let mut next_note = Instant::now();
    loop {
        let reason = match Log::open(directory, options) {
            Ok(log) => return Ok(Some(log)),
            Err(error) if is_missing(&error) => error,
            Err(error) => return Err(error),
        };
        if Instant::now() >= next_note {
            let reason = service::cli::causes(&reason);
            tracing::warn!(
                reason,
                "there is no log yet; waiting for the decoder to make it"
            );
            next_note = Instant::now() + OPEN_NOTE_INTERVAL;
        }
        tokio::select! {
            () = tokio::time::sleep(OPEN_INTERVAL) => {}
            () = shutdown.cancelled() => return Ok(None),
        }
    }
}

/// Whether the decoder has not made the log yet.
fn is_missing(error: &ReadError) -> bool {
    match error {
        ReadError::Empty { .. } => true,
        ReadError::Watermark(WatermarkError::Io { source, .. }) => {
            source.kind() == io::ErrorKind::NotFound
        }
        _ => false,
    }
}

fn limit(config: &Config) -> usize {
    usize::try_from(config.fanout.max_connections).unwrap_or(usize::MAX)
}
