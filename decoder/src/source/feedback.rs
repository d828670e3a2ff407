//! Telling the source what is safe.
//!
//! A task of its own with the sending half of the connection, so that nothing that waits for the disk can keep it from
//! answering: an answer that comes too late costs the connection. It says "flushed" only for what the log's head calls
//! durable.

use std::sync::Arc;
use std::time::Duration;

use pg_client::CopySender;
use pg_proto::replication::StatusUpdate;
use pg_proto::{Lsn, PgTimestamp};
use storage_format::failpoint::hit;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::connect::client;
use super::error::SourceError;
use crate::state::{DecoderState, Head};

/// The longest time without a status update, as `wal_receiver_status_interval` has it.
const STATUS_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// What the reader asks for.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Answer now.
    answer: Notify,
    /// Ask the source for an answer.
    ask: Notify,
}

impl Requests {
    /// The source wants an answer.
    pub(crate) fn answer(&self) {
        self.answer.notify_one();
    }

    /// The source has been silent: it should say something.
    pub(crate) fn ask(&self) {
        self.ask.notify_one();
    }
}

/// How often to say something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Shortest time between two updates that only say that more is durable.
    coalesce: Duration,
    /// Longest time between two updates.
    longest: Duration,
}

impl Pace {
    /// Well within the time after which the source gives up, if it does.
    pub(crate) fn new(feedback_interval_ms: u64, wal_sender_timeout: Duration) -> Self {
        let longest = if wal_sender_timeout.is_zero() {
            STATUS_INTERVAL_MAX
        } else {
            (wal_sender_timeout / 3).min(STATUS_INTERVAL_MAX)
        };
        let longest = longest.max(Duration::from_millis(10));
        Self {
            coalesce: Duration::from_millis(feedback_interval_ms).min(longest),
            longest,
        }
    }
}

/// The task's state.
#[derive(Debug)]
pub(crate) struct Feedback {
    pub(crate) sender: CopySender,
    pub(crate) requests: Arc<Requests>,
    pub(crate) state: Arc<DecoderState>,
    pub(crate) pace: Pace,
}

impl Feedback {
    /// Answers until `stop`, then tells the last position once more and gives the connection back.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<CopySender, SourceError> {
        let mut head = self.state.watch_head();
        let mut sent = self.send(false).await?;
        loop {
            let ask = tokio::select! {
                () = stop.cancelled() => break,
                () = self.requests.answer.notified() => false,
                () = self.requests.ask.notified() => true,
                () = durable_beyond(&mut head, sent.lsn, sent.at + self.pace.coalesce) => false,
                () = tokio::time::sleep_until(sent.at + self.pace.longest) => false,
            };
            sent = self.send(ask).await?;
        }
        self.send(false).await?;
        Ok(self.sender)
    }

    async fn send(&mut self, reply_requested: bool) -> Result<Sent, SourceError> {
        let status = status(&self.state, PgTimestamp::now(), reply_requested);
        hit("confirm.before");
        self.sender
            .status_update(&status)
            .await
            .map_err(client("cannot answer the source"))?;
        hit("confirm.after");
        self.state.counters().confirmed_lsn.raise(status.flush.0);
        Ok(Sent {
            lsn: status.flush,
            at: Instant::now(),
        })
    }
}

/// What the source may be told now. It forgets what it is told to be flushed, so that is what the log's head calls
/// durable, and nothing else.
pub(crate) fn status(
    state: &DecoderState,
    client_time: PgTimestamp,
    reply_requested: bool,
) -> StatusUpdate {
    let durable = state.head().durable_lsn;
    let received = Lsn(state.counters().received_lsn.get());
    StatusUpdate {
        write: received.max(durable),
        flush: durable,
        apply: durable,
        client_time,
        reply_requested,
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    lsn: Lsn,
    at: Instant,
}

/// Returns when more than `sent` is durable, but not before `earliest`.
async fn durable_beyond(head: &mut watch::Receiver<Head>, sent: Lsn, earliest: Instant) {
    if head.wait_for(|head| head.durable_lsn > sent).await.is_err() {
        // The process ends; the stop token says so.
        std::future::pending::<()>().await;
    }
    // Whatever becomes durable in the meantime goes with it.
    let _ = timeout_at(earliest, std::future::pending::<()>()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speaks_well_before_the_source_gives_up() {
        let pace = Pace::new(100, Duration::from_secs(60));
        assert_eq!(pace.longest, STATUS_INTERVAL_MAX);
        let pace = Pace::new(5_000, Duration::from_secs(3));
        assert_eq!(pace.longest, Duration::from_secs(1));
        assert_eq!(pace.coalesce, Duration::from_secs(1));
        assert_eq!(Pace::new(1, Duration::ZERO).longest, STATUS_INTERVAL_MAX);
    }
}
