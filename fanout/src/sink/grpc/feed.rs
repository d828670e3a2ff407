//! One subscriber's task.

use std::time::Duration;

use bytes::Bytes;
use pg_proto::Lsn;
use proto::v1::subscribe_response::Kind;
use proto::v1::{Progress, SubscribeResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::batch::Batcher;
use super::message::Message;
use super::slots::ServedGuard;
use crate::emit::{Step, Warning};
use crate::error::StreamError;
use crate::replay::{Advance, Replay, Stream};
use crate::runtime::lanes::Distance;
use crate::subscriber::Registration;

/// Batches that wait for a client that reads more slowly than the log is read.
pub(super) const CHANNEL_BATCHES: usize = 2;
/// Time between two notes of progress to a client that gets nothing else.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// What a subscriber's task works with.
pub(super) struct Feed {
    pub(super) stream: Stream,
    pub(super) distance: Distance,
    pub(super) batcher: Batcher,
    pub(super) replay: Replay,
    pub(super) registration: Registration,
    pub(super) slot: Option<ServedGuard>,
    pub(super) sender: mpsc::Sender<Result<Bytes, Status>>,
    pub(super) shutdown: CancellationToken,
}

/// Why a stream ends without an error to the client.
enum End {
    /// It asked for no more, or is gone.
    Done,
    /// Something to tell it.
    Failed(Status),
}

impl std::convert::From<StreamError> for End {
    fn from(error: StreamError) -> Self {
        Self::Failed(error.into())
    }
}

impl Feed {
    /// Feeds the subscriber until its end.
    pub(super) async fn run(mut self) {
        let id = self.registration.id();
        let mut told = self.stream.position();
        let mut last_message = Instant::now()
            .checked_sub(PROGRESS_INTERVAL)
            .unwrap_or_else(Instant::now);
        let end = loop {
            if let Err(end) = self.round(&mut told, &mut last_message).await {
                break end;
            }
        };
        if let End::Failed(status) = end {
            report(id, &status);
            // Fails only if the client is gone, and then it does not matter.
            let _ = self.sender.send(Err(status)).await;
        }
    }

    /// One step along the log, and what is due after it.
    async fn round(&mut self, told: &mut Lsn, last_message: &mut Instant) -> Result<(), End> {
        let advance = self.stream.advance(&mut self.batcher)?;
        if let Some(source) = self.batcher.take_error() {
            let position = self.stream.position();
            return Err(StreamError::Unreadable { position, source }.into());
        }
        match &advance {
            Advance::Moved(step) => {
                self.distance.moved();
                self.note(step);
            }
            Advance::AtHead | Advance::End => {
                self.distance.at_head();
                self.batcher.flush();
            }
            Advance::Asking => self.batcher.flush(),
        }
        while let Some(batch) = self.batcher.pop() {
            *told = batch.end.unwrap_or(*told);
            *last_message = Instant::now();
            // Before the client has it, so that what it acknowledges at once is known as sent.
            self.sent(if self.batcher.is_empty() {
                self.stream.position()
            } else {
                *told
            });
            self.send(batch).await?;
        }
        if self.batcher.is_empty() {
            let position = self.stream.position();
            self.sent(position);
            // The last message of a stream that ends says how far it went, also if there was nothing.
            let last = advance == Advance::End;
            if last || (position > *told && last_message.elapsed() >= PROGRESS_INTERVAL) {
                *told = position;
                *last_message = Instant::now();
                self.send_progress(position).await?;
            }
        }
        match advance {
            Advance::End => Err(End::Done),
            Advance::AtHead | Advance::Asking => self.wait(*told, *last_message).await,
            Advance::Moved(_) => {
                tokio::task::consume_budget().await;
                Ok(())
            }
        }
    }

    /// Waits at the head for more, or for the time of the next note of progress.
    async fn wait(&mut self, told: Lsn, last_message: Instant) -> Result<(), End> {
        if self.shutdown.is_cancelled() {
            return Err(StreamError::ShuttingDown.into());
        }
        let due = last_message + PROGRESS_INTERVAL;
        let untold = self.stream.position() > told;
        let lost = async {
            match &self.slot {
                Some(guard) => guard.slot().lease().lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            moved = self.stream.head_moved() => Ok(moved?),
            () = tokio::time::sleep_until(due), if untold => Ok(()),
            () = lost => Err(End::Failed(lost_slot())),
            () = self.sender.closed() => Err(End::Done),
            () = self.shutdown.cancelled() => Ok(()),
        }
    }

    /// Waits until the client takes it.
    async fn send(&self, message: Message) -> Result<(), End> {
        let bytes = u64::try_from(message.len()).unwrap_or(u64::MAX);
        let lost = async {
            match &self.slot {
                Some(guard) => guard.slot().lease().lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            sent = self.sender.send(Ok(message.bytes)) => sent.map_err(|_| End::Done)?,
            () = lost => return Err(End::Failed(lost_slot())),
        }
        self.registration.count(0, bytes);
        Ok(())
    }

    async fn send_progress(&self, position: Lsn) -> Result<(), End> {
        let progress = Progress {
            lsn: position.0,
            head_lsn: self.replay.head().0,
        };
        let kind = Some(Kind::Progress(progress));
        self.send(Message::of(&SubscribeResponse { kind })).await
    }

    fn note(&self, step: &Step) {
        self.registration.count(step.changes, 0);
        for Warning::PublicationSkipped(publication) in &step.warnings {
            let (subscriber, position) = (self.registration.id(), self.stream.position());
            tracing::info!(subscriber, publication, %position, "no such publication here: skipped");
        }
    }

    fn sent(&self, position: Lsn) {
        self.registration.set_sent(position);
        if let Some(guard) = &self.slot {
            guard.slot().set_sent(position);
        }
    }
}

/// Damage is for an operator; everything else is between the client and its request.
fn report(id: u64, status: &Status) {
    let error = status.message();
    if status.code() == Code::DataLoss {
        tracing::error!(subscriber = id, error, "stream ended");
    } else {
        tracing::info!(subscriber = id, code = ?status.code(), error, "stream ended");
    }
}

fn lost_slot() -> Status {
    Status::aborted("the slot was dropped, or is served by another fanout now")
}
