//! The thread's loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pg_proto::Lsn;
use pg_proto::replication::BackendCopy;
use storage_format::catalog::ServerParameters;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::IngestError;
use super::assembler::Assembler;
use super::frames::Frames;
use super::log_sink::{AppenderPort, LogSink};
use super::record::Incoming;
use super::staging::StagingArea;
use crate::catalog::Recogniser;
use crate::clock::Clock;
use crate::mailbox::{Received, Receiver};
use crate::state::DecoderState;

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// Whole frames of the stream. The permit is given back when they are taken in.
    Batch {
        frames: Bytes,
        permit: OwnedSemaphorePermit,
    },
    /// No more comes of this connection: forget what is incomplete, make the rest durable, and say where the log ends.
    Reset { reply: oneshot::Sender<Lsn> },
    /// The stream of a new connection begins, at the log's end.
    Begin {
        parameters: ServerParameters,
        timeline: u32,
    },
    /// The appender has given something back.
    Wake,
    /// Nothing more comes.
    Stop,
}

/// What the thread starts with.
pub(crate) struct IngestSettings {
    pub(crate) end_lsn: Lsn,
    pub(crate) parameters: ServerParameters,
    pub(crate) progress_interval: Duration,
    pub(crate) staging: StagingArea,
    pub(crate) recogniser: Arc<Recogniser>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<DecoderState>,
}

/// The thread's state.
pub(crate) struct Ingest {
    inputs: Receiver<Input>,
    sink: LogSink,
    assembler: Option<Assembler>,
    end_lsn: Lsn,
    recogniser: Arc<Recogniser>,
    state: Arc<DecoderState>,
}

impl Ingest {
    pub(crate) fn new(
        inputs: Receiver<Input>,
        port: AppenderPort,
        settings: IngestSettings,
    ) -> Self {
        let sink = LogSink::new(
            port,
            settings.staging,
            settings.end_lsn,
            settings.parameters,
            settings.progress_interval,
            settings.clock,
            Arc::clone(&settings.state),
        );
        Self {
            inputs,
            sink,
            assembler: None,
            end_lsn: settings.end_lsn,
            recogniser: settings.recogniser,
            state: settings.state,
        }
    }

    /// Works until it is told to stop.
    pub(crate) fn run(mut self) -> Result<(), IngestError> {
        match self.work() {
            // Only when waiting for room was given up: the source keeps what could not be staged.
            Err(IngestError::Staging(error)) if error.is_retryable() => Ok(()),
            // What came whole before it is kept, so that whoever goes on with a gap loses nothing but that.
            Err(error @ IngestError::Stream(_)) => {
                self.sink.reset()?;
                Err(error)
            }
            result => result,
        }
    }

    fn work(&mut self) -> Result<(), IngestError> {
        let mut call_again: Option<Instant> = None;
        loop {
            match self.inputs.receive(call_again) {
                Received::Item(Input::Stop) | Received::Closed => return Ok(()),
                Received::Item(input) => call_again = self.turn(input)?,
                Received::Deadline => call_again = self.sink.settle()?,
            }
        }
    }

    /// In the simulation, where there are no threads: whom to let work when the sink has to wait.
    #[cfg(feature = "simulation")]
    pub(crate) fn set_turn(&mut self, turn: crate::simulation::Turn) {
        self.sink.set_turn(turn);
    }

    /// Forgets that it was woken; the next turn looks anyway.
    #[cfg(feature = "simulation")]
    pub(crate) fn drain_wakes(&mut self) {
        while self.inputs.try_receive().is_some() {}
    }

    /// Takes one input; returns when to look again at the latest.
    pub(crate) fn turn(&mut self, input: Input) -> Result<Option<Instant>, IngestError> {
        self.take(input)?;
        self.sink.settle()
    }

    fn take(&mut self, input: Input) -> Result<(), IngestError> {
        match input {
            Input::Wake | Input::Stop => Ok(()),
            Input::Batch { frames, permit } => {
                let result = self.batch(&frames);
                drop(permit);
                result
            }
            Input::Begin {
                parameters,
                timeline,
            } => {
                self.assembler = Some(Assembler::new(
                    self.end_lsn,
                    Arc::clone(&self.recogniser),
                    Arc::clone(&self.state),
                ));
                self.sink.begin_timeline(timeline)?;
                self.sink.server_parameters(parameters)
            }
            Input::Reset { reply } => {
                self.assembler = None;
                self.end_lsn = self.sink.reset()?;
                // Ignored: who asked may have been cancelled.
                let _ = reply.send(self.end_lsn);
                Ok(())
            }
        }
    }

    fn batch(&mut self, frames: &[u8]) -> Result<(), IngestError> {
        let Some(assembler) = &mut self.assembler else {
            // What was on its way when the connection was given up.
            return Ok(());
        };
        let mut frames = Frames::new(frames);
        while let Some(frame) = frames.next()? {
            match frame {
                BackendCopy::XLogData(data) => {
                    let incoming = Incoming {
                        start: data.start,
                        send_time: data.send_time,
                        payload: data.payload,
                    };
                    assembler.message(&incoming, &mut self.sink)?;
                }
                BackendCopy::Keepalive(keepalive) => {
                    assembler.keepalive(keepalive.end, &mut self.sink)?;
                }
            }
        }
        Ok(())
    }
}
