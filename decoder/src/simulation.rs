//! The decoder's core without its threads: assembling, staging, appending, sealing, confirming and collecting, each of
//! which goes on when it is told to. The simulation in `tests/simulation` runs it on a disk, a clock and a source of its
//! own. What works here is what works in the process; only who calls it is another.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pg_proto::Lsn;
use pg_proto::replication::StatusUpdate;
use service::config::Config;
use storage_format::catalog::ServerParameters;
use storage_format::fs::Fs;
use storage_format::write::{LogWriter, Recovery, WriterOptions};
use storage_format::{FormatError, Identity};
use tokio::sync::{Semaphore, oneshot};

use crate::appender::{Appender, Returned, Sealer};
use crate::catalog::Recogniser;
use crate::clock::Clock;
use crate::ingest::{Ingest, IngestError, Input, glance};
use crate::mailbox::{Received, Receiver};
use crate::metrics::Metrics;
use crate::source::status;
use crate::state::DecoderState;
use crate::threads::{ThreadSettings, Workers};

/// Why the core ended; nothing more can be done with it then.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What the core stands on.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The disk.
    pub fs: Arc<dyn Fs>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// As the process has it; the log's directory is a folder of `fs`.
    pub config: Config,
    /// Whose log it is.
    pub identity: Identity,
    /// Where a new log begins.
    pub start_lsn: Lsn,
}

/// The appender, and why it ended.
#[derive(Default)]
struct Seat {
    appender: Option<Appender>,
    failure: Option<FormatError>,
}

impl Seat {
    /// Lets the appender do something; `None` if it has ended.
    fn with<T>(&mut self, work: impl FnOnce(&mut Appender) -> Result<T, FormatError>) -> Option<T> {
        match work(self.appender.as_mut()?) {
            Ok(done) => Some(done),
            Err(error) => {
                self.failure = Some(error);
                self.appender = None;
                None
            }
        }
    }
}

/// Lets the appender work while the ingest side waits for it.
#[derive(Clone)]
pub(crate) struct Turn(Arc<Mutex<Seat>>);

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Turn")
    }
}

impl Turn {
    /// What the appender gives back next.
    pub(crate) fn until(&self, returned: &Receiver<Returned>) -> Received<Returned> {
        loop {
            if let Some(returned) = returned.try_receive() {
                return Received::Item(returned);
            }
            let mut seat = self.0.lock();
            let Some(worked) = seat.with(Appender::perform_next) else {
                return Received::Closed;
            };
            if worked {
                continue;
            }
            if seat.with(Appender::settle).is_none() {
                return Received::Closed;
            }
            drop(seat);
            let waited_in_vain =
                "the ingest side waits for an appender that has nothing to give back";
            return Received::Item(returned.try_receive().expect(waited_in_vain));
        }
    }
}

/// A decoder that takes steps.
pub struct Core {
    ingest: Ingest,
    seat: Arc<Mutex<Seat>>,
    sealer: Sealer,
    permits: Arc<Semaphore>,
    clock: Arc<dyn Clock>,
    state: Arc<DecoderState>,
}

impl Core {
    /// Opens the log as the process does at its start.
    pub fn open(ground: &Ground) -> Result<(Self, Recovery), Failure> {
        let Ground {
            fs, clock, config, ..
        } = ground;
        let options = WriterOptions {
            segment_bytes: config.log.segment_bytes,
            start_lsn: ground.start_lsn,
        };
        let directory: &Path = &config.log.directory;
        let identity = ground.identity.clone();
        let (writer, recovery) = LogWriter::open(directory, options, identity, Arc::clone(fs))?;
        let state = Arc::new(DecoderState::new().0);
        let mut metrics = prometheus_client::registry::Registry::default();
        let settings = ThreadSettings {
            config,
            fs: Arc::clone(fs),
            clock: Arc::clone(clock),
            state: Arc::clone(&state),
            metrics: Metrics::register(&mut metrics, &state),
            recogniser: Arc::new(Recogniser::new([])),
        };
        let workers = Workers::connect(writer, &recovery, settings)?;
        let seat = Arc::new(Mutex::new(Seat {
            appender: Some(workers.appender),
            failure: None,
        }));
        let mut ingest = workers.ingest;
        ingest.set_turn(Turn(Arc::clone(&seat)));
        let core = Self {
            ingest,
            seat,
            sealer: workers.sealer,
            permits: Arc::new(Semaphore::new(1)),
            clock: Arc::clone(clock),
            state,
        };
        Ok((core, recovery))
    }

    /// What happens before each connection: where the stream has to start.
    pub fn reset(&mut self) -> Result<Lsn, Failure> {
        let (reply, mut end) = oneshot::channel();
        self.input(Input::Reset { reply })?;
        Ok(end.try_recv()?)
    }

    /// The stream of a connection begins.
    pub fn begin(&mut self, parameters: ServerParameters, timeline: u32) -> Result<(), Failure> {
        self.input(Input::Begin {
            parameters,
            timeline,
        })
    }

    /// Whole frames of the stream came.
    pub fn batch(&mut self, frames: Bytes) -> Result<(), Failure> {
        self.state
            .counters()
            .received_lsn
            .raise(glance(&frames)?.received.0);
        let permit = Arc::clone(&self.permits).try_acquire_owned()?;
        self.input(Input::Batch { frames, permit })
    }

    /// The ingest side looks what the appender has given back.
    pub fn wake(&mut self) -> Result<(), Failure> {
        self.input(Input::Wake)
    }

    fn input(&mut self, input: Input) -> Result<(), Failure> {
        self.ingest.drain_wakes();
        match self.ingest.turn(input) {
            Ok(_) => Ok(()),
            Err(IngestError::Stopped) => Err(self.appender_failure()),
            Err(error) => Err(error.into()),
        }
    }

    /// The appender does one piece of work; whether there was one.
    pub fn append(&mut self) -> Result<bool, Failure> {
        let done = self.seat.lock().with(Appender::perform_next);
        done.ok_or_else(|| self.appender_failure())
    }

    /// The appender makes durable what it has done.
    pub fn sync(&mut self) -> Result<(), Failure> {
        let done = self.seat.lock().with(Appender::settle);
        done.ok_or_else(|| self.appender_failure())
    }

    fn appender_failure(&self) -> Failure {
        match self.seat.lock().failure.take() {
            Some(error) => error.into(),
            None => "the appender has ended".into(),
        }
    }

    /// The sealer seals one segment; whether there was one.
    pub fn seal(&self) -> bool {
        self.sealer.seal_next()
    }

    /// What the source would be told now.
    #[must_use]
    pub fn status(&self) -> StatusUpdate {
        status(&self.state, self.clock.time_of_day(), false)
    }

    /// What all parts know.
    #[must_use]
    pub const fn state(&self) -> &Arc<DecoderState> {
        &self.state
    }
}
