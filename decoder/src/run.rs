//! From a configuration to a decoder at work, and to its end.

use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;
use service::config::Config;
use storage_format::Identity;
use storage_format::fs::Fs;
use storage_format::segment::{list_segments, read_identity};
use storage_format::watermark::WatermarkReader;
use storage_format::write::{LogWriter, Recovery, WriterOptions};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::catalog::Recogniser;
use crate::clock::SystemClock;
use crate::error::DecoderError;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::services::{Parts, Services};
use crate::source::{LogEnd, SourceError, SourceTask, check_configuration, wait_for_source};
use crate::state::{DecoderState, RefreshCatalog};
use crate::threads::{ThreadSettings, Threads, log_error, report_recovery};

/// A log that is open for writing.
type OpenLog = (LogWriter, Recovery);

/// What is there before the runtime: everything that can fail without a network.
pub struct Prepared {
    config: Arc<Config>,
    fs: Arc<dyn Fs>,
    log: Option<OpenLog>,
    registry: Arc<Registry>,
}

impl Prepared {
    /// Opens the log, if there is one, and the registry. Another decoder on the same directory is noticed here.
    pub fn open(config: Config) -> Result<Self, DecoderError> {
        let fs = storage_format::fs::system();
        let directory = &config.log.directory;
        let name = directory.display().to_string();
        let identity = read_identity(&*fs, directory).map_err(log_error(&name))?;
        let log = match identity {
            Some(identity) => {
                check_configuration(&config, &identity)?;
                Some(open_log(&config, &fs, identity, Lsn::INVALID)?)
            }
            None => None,
        };
        let exists = !list_segments(&*fs, directory)
            .map_err(log_error(&name))?
            .is_empty();
        let registry = Registry::open(&directory.join("registry"), exists)?;
        if log.is_some() {
            forget_cut_off(&registry, directory)?;
        }
        Ok(Self {
            config: Arc::new(config),
            fs,
            log,
            registry: Arc::new(registry),
        })
    }

    /// Works until the process is told to stop.
    pub async fn run(self) -> Result<(), DecoderError> {
        let shutdown =
            service::shutdown::on_signal().map_err(DecoderError::system("watch for signals"))?;
        let (state, requests) = DecoderState::new();
        let recogniser = Recogniser::new(self.registry.secrets()?);
        recogniser.set_own(self.registry.own_publications()?);
        let decoder = Decoder {
            recogniser: Arc::new(recogniser),
            config: self.config,
            fs: self.fs,
            registry: self.registry,
            state: Arc::new(state),
            shutdown,
        };
        decoder.run(self.log, requests).await
    }
}

/// After the log was cut off: slots whose subscribers have what the source never had can't go on.
fn forget_cut_off(registry: &Registry, directory: &Path) -> Result<(), DecoderError> {
    let cut = WatermarkReader::open(directory)
        .map_err(|error| log_error(&directory.display().to_string())(error.into()))?
        .cut();
    let Some(cut) = cut else {
        return Ok(());
    };
    for slot in registry.note_cut(cut)? {
        tracing::error!(
            slot = slot.name,
            confirmed = %slot.confirmed_lsn,
            cut = %cut.lsn,
            "slot invalidated: its subscriber has transactions that were cut off the log; make it and its tables anew"
        );
    }
    Ok(())
}

fn open_log(
    config: &Config,
    fs: &Arc<dyn Fs>,
    identity: Identity,
    start_lsn: Lsn,
) -> Result<OpenLog, DecoderError> {
    let directory = &config.log.directory;
    let options = WriterOptions {
        segment_bytes: config.log.segment_bytes,
        start_lsn,
    };
    let opened = LogWriter::open(directory, options, identity, Arc::clone(fs));
    let (writer, recovery) = opened.map_err(log_error(&directory.display().to_string()))?;
    report_recovery(&recovery);
    Ok((writer, recovery))
}

/// The source's stream has a thread of its own, which is the only one that waits for its socket: while that thread lets
/// messages gather (`source/gather.rs`), nobody is woken by them. In the other threads' runtime somebody would be, each time.
fn spawn_source(
    source: SourceTask,
) -> Result<oneshot::Receiver<Result<(), SourceError>>, DecoderError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DecoderError::system("start the source's runtime"))?;
    let (ended, end) = oneshot::channel();
    let work = move || {
        // Ignored: who waits for it may have been cancelled.
        let _ = ended.send(runtime.block_on(source.run()));
    };
    std::thread::Builder::new()
        .name("source".to_owned())
        .spawn(work)
        .map_err(DecoderError::system("start the thread of the source"))?;
    Ok(end)
}

struct Decoder {
    config: Arc<Config>,
    fs: Arc<dyn Fs>,
    registry: Arc<Registry>,
    recogniser: Arc<Recogniser>,
    state: Arc<DecoderState>,
    /// Cancelled by a signal.
    shutdown: CancellationToken,
}

impl Decoder {
    async fn run(
        &self,
        log: Option<OpenLog>,
        requests: mpsc::Receiver<RefreshCatalog>,
    ) -> Result<(), DecoderError> {
        let parts = Parts {
            config: Arc::clone(&self.config),
            fs: Arc::clone(&self.fs),
            state: Arc::clone(&self.state),
            registry: Arc::clone(&self.registry),
            recogniser: Arc::clone(&self.recogniser),
        };
        let (services, metrics) = Services::start(&parts, requests).await?;
        let result = self.follow(log, metrics).await;
        services.stop().await;
        result
    }

    /// The way from the source to the log.
    async fn follow(&self, log: Option<OpenLog>, metrics: Metrics) -> Result<(), DecoderError> {
        let (writer, recovery) = match log {
            Some(log) => log,
            None => match self.create_log().await? {
                Some(log) => log,
                None => return Ok(()),
            },
        };
        let log = LogEnd {
            identity: writer.identity().clone(),
            end_lsn: recovery.end_lsn,
        };
        let settings = ThreadSettings {
            config: &self.config,
            fs: Arc::clone(&self.fs),
            clock: Arc::new(SystemClock),
            state: Arc::clone(&self.state),
            metrics,
            recogniser: Arc::clone(&self.recogniser),
        };
        let (mut threads, pipeline) = Threads::start(writer, &recovery, settings)?;
        let source = SourceTask {
            config: Arc::clone(&self.config),
            state: Arc::clone(&self.state),
            pipeline,
            recogniser: Arc::clone(&self.recogniser),
            registry: Arc::clone(&self.registry),
            log,
            shutdown: self.shutdown.child_token(),
        };
        let stop = source.shutdown.clone();
        let mut source = spawn_source(source)?;
        let source = tokio::select! {
            ended = &mut source => ended,
            () = threads.one_ended() => {
                stop.cancel();
                source.await
            }
        };
        threads.join().await?;
        match source {
            Ok(result) => Ok(result?),
            Err(_) => Err(DecoderError::Panicked { name: "source" }),
        }
    }

    /// The first start: the log begins where the slot stands. `None` if the decoder is told to stop.
    async fn create_log(&self) -> Result<Option<OpenLog>, DecoderError> {
        tracing::info!(directory = %self.config.log.directory.display(), "there is no log yet");
        let Some(LogEnd { identity, end_lsn }) =
            wait_for_source(&self.config, &self.state, &self.shutdown).await?
        else {
            return Ok(None);
        };
        open_log(&self.config, &self.fs, identity, end_lsn).map(Some)
    }
}
