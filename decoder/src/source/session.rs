//! One connection's stream, from its start to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pg_client::{CopyBoth, CopyReceiver, CopySender};
use pg_proto::Lsn;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connect::client;
use super::error::SourceError;
use super::feedback::{Feedback, Pace, Requests};
use super::gather::Gather;
use super::witness::Witness;
use crate::ingest::{Glance, Pipeline, Session, glance};
use crate::state::DecoderState;

/// After this long without a word the source is asked for one, and after as long again given up, as
/// `wal_receiver_timeout` has it.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the last complete transactions may take to become durable when the decoder is told to stop.
const LAST_SYNC: Duration = Duration::from_secs(5);
/// How long the source may take to end the stream.
const GOOD_BYE: Duration = Duration::from_secs(3);

/// Why a stream ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The decoder was told to stop, and the source knows the last position.
    Shutdown,
    /// The ingest thread has ended, and says itself why.
    PipelineStopped,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// It was handed over.
    On(Glance),
    /// The stream ends.
    Ended(Ended),
}

type FeedbackTask = JoinHandle<Result<CopySender, SourceError>>;

/// A running stream.
pub(super) struct Streaming<'a> {
    receiver: CopyReceiver,
    gather: Gather,
    /// Before the next read.
    pause: Option<Duration>,
    session: Session<'a>,
    /// If the source is a standby.
    witness: Option<Witness>,
    pipeline: &'a Pipeline,
    requests: Arc<Requests>,
    feedback: FeedbackTask,
    stop_feedback: CancellationToken,
    state: Arc<DecoderState>,
    shutdown: CancellationToken,
}

/// What the stream did while it was waited for.
enum Event {
    Frames(Bytes),
    End,
    Silence,
    Shutdown,
}

impl<'a> Streaming<'a> {
    /// Starts answering the source.
    pub(super) fn new(
        copy: CopyBoth,
        session: Session<'a>,
        witness: Option<Witness>,
        pipeline: &'a Pipeline,
        pace: Pace,
        state: &Arc<DecoderState>,
        shutdown: &CancellationToken,
    ) -> Self {
        let (receiver, sender) = copy.split();
        let requests = Arc::new(Requests::default());
        let stop_feedback = CancellationToken::new();
        let feedback = Feedback {
            sender,
            requests: Arc::clone(&requests),
            state: Arc::clone(state),
            pace,
        };
        Self {
            receiver,
            gather: Gather::new(Instant::now()),
            pause: None,
            session,
            witness,
            pipeline,
            requests,
            feedback: tokio::spawn(feedback.run(stop_feedback.clone())),
            stop_feedback,
            state: Arc::clone(state),
            shutdown: shutdown.clone(),
        }
    }

    /// Passes the stream on until it ends.
    pub(super) async fn run(mut self) -> Result<Ended, SourceError> {
        let result = self.read().await;
        match result {
            Ok(Ended::Shutdown) => self.say_good_bye().await,
            _ => self.feedback.abort(),
        }
        result
    }

    async fn read(&mut self) -> Result<Ended, SourceError> {
        let mut silent = false;
        loop {
            match self.event().await? {
                Event::Frames(frames) => {
                    silent = false;
                    let len = frames.len();
                    match self.pass_on(frames).await? {
                        Passed::Ended(ended) => return Ok(ended),
                        Passed::On(seen) => {
                            self.pause = self.gather.after_read(len, &seen, Instant::now());
                        }
                    }
                }
                Event::Silence if silent => {
                    let silence = SILENCE * 2;
                    return Err(SourceError::Silent { silence });
                }
                Event::Silence => {
                    silent = true;
                    self.requests.ask();
                }
                Event::End => return Err(SourceError::Ended),
                Event::Shutdown => return Ok(Ended::Shutdown),
            }
        }
    }

    async fn event(&mut self) -> Result<Event, SourceError> {
        if let Some(pause) = self.pause.take() {
            // Not by the runtime's clock: its thread would wait for the socket meanwhile and be woken by each message.
            std::thread::sleep(pause);
        }
        let Self {
            receiver, feedback, ..
        } = self;
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Ok(Event::Shutdown),
            failure = feedback => Err(feedback_failure(failure)),
            next = tokio::time::timeout(SILENCE, receiver.next_batch()) => match next {
                Ok(Ok(Some(frames))) => Ok(Event::Frames(frames)),
                Ok(Ok(None)) => Ok(Event::End),
                Ok(Err(error)) => Err(client("the source's stream broke off")(error)),
                Err(_) => Ok(Event::Silence),
            },
        }
    }

    /// Notes what has to be answered, and hands the rest to the ingest thread, for as long as that takes.
    async fn pass_on(&mut self, frames: Bytes) -> Result<Passed, SourceError> {
        let counters = self.state.counters();
        counters.bytes_received.add(frames.len() as u64);
        let seen = glance(&frames).map_err(|error| SourceError::Answer {
            question: "START_REPLICATION",
            expected: "replication messages",
            found: error.to_string(),
        })?;
        counters.received_lsn.raise(seen.received.0);
        if seen.reply_requested {
            self.requests.answer();
        }
        for notice in self.receiver.take_notices() {
            tracing::warn!(%notice, "the source says");
        }
        let Self {
            feedback,
            session,
            witness,
            ..
        } = self;
        let take = async {
            if let Some(witness) = witness {
                witness.vouch().await?;
            }
            Ok(match session.batch(frames).await {
                Err(_) => Passed::Ended(Ended::PipelineStopped),
                Ok(()) => Passed::On(seen),
            })
        };
        tokio::select! {
            biased;
            taken = take => taken,
            () = self.shutdown.cancelled() => Ok(Passed::Ended(Ended::Shutdown)),
            failure = feedback => Err(feedback_failure(failure)),
        }
    }

    /// Makes the last complete transactions durable, tells the source, and ends the stream in good order. What fails
    /// here costs nothing but that the source sends something again.
    async fn say_good_bye(self) {
        match tokio::time::timeout(LAST_SYNC, self.pipeline.reset()).await {
            Ok(Ok(end)) => tracing::info!(lsn = %end, "the log is complete"),
            Ok(Err(_)) => return,
            Err(_) => tracing::warn!("the last transactions could not be made durable in time"),
        }
        self.stop_feedback.cancel();
        let receiver = self.receiver;
        let end = async {
            let Ok(Ok(sender)) = self.feedback.await else {
                return;
            };
            let Ok(copy) = CopyBoth::join(receiver, sender) else {
                return;
            };
            if let Ok(connection) = copy.into_connection().await {
                // Ignored: it is closed either way.
                let _ = connection.close().await;
            }
        };
        // Ignored: the connection is dropped then.
        let _ = tokio::time::timeout(GOOD_BYE, end).await;
        tracing::info!(confirmed = %Lsn(self.state.counters().confirmed_lsn.get()), "left the source");
    }
}

/// The task that answers ends by itself only with an error.
fn feedback_failure(
    result: Result<Result<CopySender, SourceError>, tokio::task::JoinError>,
) -> SourceError {
    match result {
        Ok(Err(error)) => error,
        Ok(Ok(_)) | Err(_) => SourceError::Ended,
    }
}
