//! The task that keeps the stream going: one session after the other, with a wait in between when something failed.

use std::sync::Arc;
use std::time::Duration;

use pg_proto::Lsn;
use service::cli::causes;
use service::config::Config;
use storage_format::fs::RealFs;
use storage_format::watermark::WatermarkPublisher;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::checks::LogEnd;
use super::connect::Source;
use super::error::{Severity, SourceError};
use super::feedback::Pace;
use super::session::{Ended, Streaming};
use super::witness::Witness;
use crate::catalog::{Recogniser, prepare};
use crate::ingest::{Pipeline, Stopped};
use crate::registry::Registry;
use crate::state::{DecoderState, SourceState};

/// A session that lasted so long was a good one: after it the waits begin anew.
const STABLE: Duration = Duration::from_secs(5);

/// Follows the source.
pub(crate) struct SourceTask {
    pub(crate) config: Arc<Config>,
    pub(crate) state: Arc<DecoderState>,
    pub(crate) pipeline: Pipeline,
    pub(crate) recogniser: Arc<Recogniser>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) log: LogEnd,
    pub(crate) shutdown: CancellationToken,
}

impl SourceTask {
    /// Works until the decoder is told to stop, the ingest thread ends, or the source can't be followed any more.
    pub(crate) async fn run(mut self) -> Result<(), SourceError> {
        let mut backoff = Backoff::new();
        let shutdown = self.shutdown.clone();
        loop {
            let Some(Ok(end_lsn)) = shutdown.run_until_cancelled(self.pipeline.reset()).await
            else {
                return Ok(());
            };
            self.log.end_lsn = end_lsn;
            let begun = Instant::now();
            let Err(error) = self.session().await else {
                return Ok(());
            };
            if let SourceError::Fork { switch_lsn, .. } = &error {
                self.fence(Some(*switch_lsn));
            }
            if error.severity() == Severity::Fatal {
                fail(&self.state, &error);
                return Err(error);
            }
            if begun.elapsed() >= STABLE {
                backoff.reset();
            }
            if !wait(&self.state, &error, &mut backoff, &shutdown).await {
                return Ok(());
            }
            self.state.counters().reconnects.add(1);
        }
    }

    /// Keeps readers from what the source never had, or from nothing any more. This decoder holds the log's lock.
    fn fence(&self, lsn: Option<Lsn>) {
        let directory = &self.config.log.directory;
        let done = WatermarkPublisher::open(&RealFs, directory).and_then(|watermark| {
            if watermark.fence() == lsn {
                return Ok(());
            }
            tracing::warn!(fence = ?lsn, "what readers may see has changed");
            watermark.set_fence(lsn)
        });
        if let Err(error) = done {
            tracing::error!(error = causes(&error), "the watermark can't be changed");
        }
    }

    async fn session(&mut self) -> Result<Ended, SourceError> {
        let shutdown = self.shutdown.clone();
        let state = Arc::clone(&self.state);
        let Some(started) = shutdown.run_until_cancelled(self.start()).await else {
            return Ok(Ended::Shutdown);
        };
        let streaming = match started? {
            Ok(streaming) => streaming,
            Err(Stopped) => return Ok(Ended::PipelineStopped),
        };
        state.update_source(|source| {
            source.state = SourceState::Streaming;
            source.last_error.clear();
        });
        state.begin_session();
        streaming.run().await
    }

    /// Connects, checks, and starts the stream at the log's end.
    async fn start(&mut self) -> Result<Result<Streaming<'_>, Stopped>, SourceError> {
        let Self { config, state, .. } = self;
        state.update_source(|source| source.state = SourceState::Connecting);
        let mut source = Source::connect(config, Some(&self.log)).await?;
        note(state, &source);
        self.fence(None);
        let Self { config, state, .. } = self;
        // The secret must be known before the first message comes that it proves.
        prepare(
            &mut source.connection,
            &self.registry,
            state,
            &self.recogniser,
        )
        .await?;
        let parameters = source.server_parameters();
        source.use_server_encoding().await?;
        let pace = Pace::new(
            config.decoder.feedback_interval_ms,
            source.facts.wal_sender_timeout,
        );
        let (timeline, version) = (source.facts.timeline, source.facts.version.clone());
        let witness = Witness::connect(config, &source).await?;
        let copy = source.start(config, self.log.end_lsn).await?;
        // Not what another connection had sent: a server that is told too much keeps silent.
        state.counters().received_lsn.set(self.log.end_lsn.0);
        self.log.identity.timeline = timeline;
        tracing::info!(
            start = %self.log.end_lsn,
            slot = self.log.identity.slot,
            server = version,
            timeline,
            "streaming from the source"
        );
        let session = match self.pipeline.begin(parameters, timeline) {
            Ok(session) => session,
            Err(stopped) => return Ok(Err(stopped)),
        };
        Ok(Ok(Streaming::new(
            copy,
            session,
            witness,
            &self.pipeline,
            pace,
            &self.state,
            &self.shutdown,
        )))
    }
}

/// Connects until the source is there and may be followed; for the first start, when there is no log yet. `None` if the
/// decoder is told to stop.
pub(crate) async fn wait_for_source(
    config: &Config,
    state: &DecoderState,
    shutdown: &CancellationToken,
) -> Result<Option<LogEnd>, SourceError> {
    let mut backoff = Backoff::new();
    loop {
        let Some(result) = shutdown
            .run_until_cancelled(Source::connect(config, None))
            .await
        else {
            return Ok(None);
        };
        match result {
            Ok(source) => {
                note(state, &source);
                let log = source.new_log(config);
                // Ignored: it is closed either way.
                let _ = source.connection.close().await;
                return Ok(Some(log));
            }
            Err(error) if error.severity() == Severity::Fatal => {
                fail(state, &error);
                return Err(error);
            }
            Err(error) => {
                if !wait(state, &error, &mut backoff, shutdown).await {
                    return Ok(None);
                }
            }
        }
    }
}

/// Puts into the state what the source says of itself.
fn note(state: &DecoderState, source: &Source) {
    let facts = &source.facts;
    state.update_source(|status| {
        status.system_identifier = facts.system_identifier;
        status.timeline = facts.timeline;
        status.standby = facts.in_recovery;
        status.server_version.clone_from(&facts.version);
        status.server_version_num = facts.version_num;
        let two_phase = facts.slot.as_ref().is_some_and(|slot| slot.two_phase);
        status.protocol_version = super::command::protocol_version(facts.version_num, two_phase);
    });
}

fn fail(state: &DecoderState, error: &SourceError) {
    state.update_source(|source| {
        source.state = SourceState::Failed;
        source.last_error = causes(error);
    });
}

/// Waits before the next attempt; false if the decoder is told to stop.
async fn wait(
    state: &DecoderState,
    error: &SourceError,
    backoff: &mut Backoff,
    shutdown: &CancellationToken,
) -> bool {
    let pause = backoff.wait();
    let text = causes(error);
    tracing::warn!(error = text, retry_in = ?pause, "the source can't be followed now");
    state.update_source(|source| {
        source.state = SourceState::Backoff;
        source.last_error = text;
    });
    shutdown
        .run_until_cancelled(tokio::time::sleep(pause))
        .await
        .is_some()
}
