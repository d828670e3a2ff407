//! The decoder's threads: ingest, appender, sealer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pg_proto::Lsn;
use service::config::Config;
use storage_format::FormatError;
use storage_format::fs::Fs;
use storage_format::write::{LogWriter, Recovery};
use tokio::sync::oneshot;

use crate::appender::{Appender, AppenderPorts, Sealer};
use crate::catalog::Recogniser;
use crate::clock::Clock;
use crate::error::DecoderError;
use crate::ingest::{
    AppenderPort, Ingest, IngestError, IngestSettings, Input, Pipeline, StagingArea,
};
use crate::mailbox::{Sender, mailbox};
use crate::metrics::Metrics;
use crate::state::DecoderState;

/// How long the process waits at its end for the segment that is being sealed.
const SEALER_PATIENCE: Duration = Duration::from_secs(2);

/// What the threads need.
pub(crate) struct ThreadSettings<'a> {
    pub(crate) config: &'a Config,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<DecoderState>,
    pub(crate) metrics: Metrics,
    pub(crate) recogniser: Arc<Recogniser>,
}

/// What the threads do, before they run.
pub(crate) struct Workers {
    pub(crate) ingest: Ingest,
    pub(crate) appender: Appender,
    pub(crate) sealer: Sealer,
    pub(crate) inputs: Sender<Input>,
    pub(crate) give_up: Arc<AtomicBool>,
}

impl Workers {
    /// Connects them over an open log.
    pub(crate) fn connect(
        log: LogWriter,
        recovery: &Recovery,
        settings: ThreadSettings<'_>,
    ) -> Result<Self, IngestError> {
        let ThreadSettings {
            config,
            fs,
            clock,
            state,
            metrics,
            recogniser,
        } = settings;
        let directory = config.log.directory.clone();
        let (work, work_receiver) = mailbox();
        let (returned, returned_receiver) = mailbox();
        let (inputs, inputs_receiver) = mailbox();
        let (finished, finished_receiver) = mailbox();
        for name in &recovery.unsealed {
            // The receiver is here.
            let _ = finished.send(*name);
        }
        let give_up = Arc::new(AtomicBool::new(false));
        let ports = AppenderPorts {
            work: work_receiver,
            returned,
            wake: inputs.clone(),
            finished,
            give_up: Arc::clone(&give_up),
            clock: Arc::clone(&clock),
        };
        let staging = StagingArea::open(
            &directory,
            recovery.end_lsn,
            Arc::clone(&fs),
            config.decoder.staging_memory_bytes,
            Arc::clone(&give_up),
            Arc::clone(&clock),
            Arc::clone(&state),
        )?;
        let ingest = Ingest::new(
            inputs_receiver,
            AppenderPort {
                work,
                returned: returned_receiver,
                #[cfg(feature = "simulation")]
                turn: None,
            },
            IngestSettings {
                end_lsn: recovery.end_lsn,
                parameters: recovery.catalog.parameters().as_ref().clone(),
                progress_interval: Duration::from_millis(config.decoder.progress_interval_ms),
                staging,
                recogniser,
                clock,
                state: Arc::clone(&state),
            },
        );
        Ok(Self {
            ingest,
            appender: Appender::new(log, ports, state, metrics),
            sealer: Sealer {
                directory,
                fs,
                zstd_level: config.log.zstd_level,
                finished: finished_receiver,
                give_up: Arc::clone(&give_up),
            },
            inputs,
            give_up,
        })
    }
}

/// The running threads, and how they ended.
pub(crate) struct Threads {
    ingest: Thread<Result<(), IngestError>>,
    appender: Thread<Result<(), FormatError>>,
    sealer: Thread<()>,
    inputs: Sender<Input>,
    give_up: Arc<AtomicBool>,
    directory: String,
}

impl Threads {
    /// Starts them over an open log.
    pub(crate) fn start(
        log: LogWriter,
        recovery: &Recovery,
        settings: ThreadSettings<'_>,
    ) -> Result<(Self, Pipeline), DecoderError> {
        let directory = settings.config.log.directory.display().to_string();
        let workers = Workers::connect(log, recovery, settings);
        let Workers {
            ingest,
            appender,
            sealer,
            inputs,
            give_up,
        } = workers.map_err(staging_error(&directory))?;
        let threads = Self {
            appender: Thread::spawn("appender", move || appender.run())?,
            ingest: Thread::spawn("ingest", move || ingest.run())?,
            sealer: Thread::spawn("sealer", move || sealer.run())?,
            inputs: inputs.clone(),
            give_up,
            directory,
        };
        Ok((threads, Pipeline::new(inputs)))
    }

    /// Returns as soon as one of the two that must not end has ended.
    pub(crate) async fn one_ended(&mut self) {
        tokio::select! {
            () = self.ingest.ended() => {}
            () = self.appender.ended() => {}
        }
    }

    /// Tells all to end and waits until they have. The reason of whichever failed first in the way of the data:
    /// the ingest thread ends because the appender has.
    pub(crate) async fn join(mut self) -> Result<(), DecoderError> {
        self.give_up.store(true, Ordering::Relaxed);
        // Ignored: it has ended already.
        let _ = self.inputs.send(Input::Stop);
        let ingest = self.ingest.join().await?;
        let appender = self.appender.join().await?;
        // A large segment takes its time, and nothing is lost with a half sealed one.
        let _ = tokio::time::timeout(SEALER_PATIENCE, self.sealer.ended()).await;
        appender.map_err(log_error(&self.directory))?;
        match ingest {
            Ok(()) | Err(IngestError::Stopped) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// For `map_err`: an error of the log with its directory.
pub(crate) fn log_error(directory: &str) -> impl FnOnce(FormatError) -> DecoderError {
    let directory = directory.to_owned();
    move |source| DecoderError::Log { directory, source }
}

fn staging_error(directory: &str) -> impl FnOnce(IngestError) -> DecoderError {
    let directory = directory.to_owned();
    move |error| match error {
        IngestError::Staging(source) => DecoderError::Log { directory, source },
        error => error.into(),
    }
}

/// A thread whose end can be awaited.
struct Thread<T> {
    name: &'static str,
    result: oneshot::Receiver<T>,
    ended: Option<Option<T>>,
}

impl<T: Send + 'static> Thread<T> {
    fn spawn(
        name: &'static str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, DecoderError> {
        let (sender, result) = oneshot::channel();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // Ignored: nobody waits any more.
                let _ = sender.send(body());
            })
            .map_err(DecoderError::system("start a thread"))?;
        Ok(Self {
            name,
            result,
            ended: None,
        })
    }

    async fn ended(&mut self) {
        if self.ended.is_none() {
            self.ended = Some((&mut self.result).await.ok());
        }
    }

    async fn join(&mut self) -> Result<T, DecoderError> {
        self.ended().await;
        let result = self.ended.take().flatten();
        result.ok_or(DecoderError::Panicked { name: self.name })
    }
}

/// Where the log ends, for a log message.
pub(crate) fn report_recovery(recovery: &Recovery) {
    if let Some(cut) = &recovery.cut {
        tracing::warn!(
            file = %cut.path.display(),
            offset = cut.offset,
            reason = ?cut.reason,
            "the end of the last segment was incomplete and is cut off; the source sends it again"
        );
    }
    let end: Lsn = recovery.end_lsn;
    tracing::info!(
        %end,
        epoch = recovery.writer_epoch,
        created = recovery.created,
        unsealed = recovery.unsealed.len(),
        "log opened"
    );
}
