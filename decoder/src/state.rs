//! What the parts of the decoder know of each other.
//!
//! One [`DecoderState`] is shared by all tasks and threads. The source task and the appender write it; the control
//! service, the metrics and the catalog task read it. Nothing here blocks: counters are atomics, positions travel in
//! watch channels that keep only the newest value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use pg_proto::{Lsn, PgTimestamp};
use tokio::sync::{mpsc, oneshot, watch};

use crate::disk::Disk;

/// Where the log ends. `confirmed <= durable <= written`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Counts the writers that this log has had; 0 as long as the log has not been created.
    pub writer_epoch: u64,
    /// End of what is in the files.
    pub written_lsn: Lsn,
    /// End of what is fsynced.
    pub durable_lsn: Lsn,
    /// Counts what happens to the files of transactions that are streamed before their end.
    pub staging_changes: u64,
}

/// What the connection to the source is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SourceState {
    /// Connecting, checking, starting.
    #[default]
    Connecting,
    /// Receiving.
    Streaming,
    /// Waiting before the next attempt; the status' `last_error` says why.
    Backoff,
    /// Stopped for good; the status' `last_error` says why.
    Failed,
}

/// How changes of publications are learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CatalogMode {
    /// Not known yet.
    #[default]
    Unknown,
    /// Event triggers on the source report each change in its own place.
    Triggers,
    /// The decoder asks every few seconds.
    Polling,
}

/// The source as it was found at the last connection.
#[derive(Clone, Debug, Default)]
pub struct SourceStatus {
    /// What the connection is doing.
    pub state: SourceState,
    /// `pg_control_system().system_identifier`.
    pub system_identifier: u64,
    /// The timeline.
    pub timeline: u32,
    /// Whether it is a standby.
    pub standby: bool,
    /// `server_version` as the source says it.
    pub server_version: String,
    /// `server_version_num`, such as 150018.
    pub server_version_num: u32,
    /// Version of the pgoutput protocol that was asked for.
    pub protocol_version: u32,
    /// How changes of publications are learnt.
    pub catalog_mode: CatalogMode,
    /// Why the last connection ended or could not be made; empty while all is well.
    pub last_error: String,
}

/// A number that only grows, or a position; shared without locks.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Replaces the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Replaces the value if the new one is higher.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Highest position that the source has sent.
    pub received_lsn: Counter,
    /// Position that the source was told is safe.
    pub confirmed_lsn: Counter,
    /// From here on the source would decode again, as far as it was asked; 0 if it was not. No transaction that commits
    /// later has a change before it, unless it is prepared.
    pub slot_restart_lsn: Counter,
    /// Bytes of the replication stream.
    pub bytes_received: Counter,
    /// Transactions written to the log.
    pub transactions: Counter,
    /// Row changes and truncates written to the log.
    pub changes: Counter,
    /// Blocks written to the log.
    pub blocks: Counter,
    /// Bytes written to the log.
    pub bytes_written: Counter,
    /// Syncs of the log.
    pub fsyncs: Counter,
    /// Connections to the source after the first.
    pub reconnects: Counter,
    /// Messages with Decant's prefix that were not Decant's.
    pub forged_messages: Counter,
    /// Earlier definitions of the publications that the log keeps.
    pub definitions_kept: Counter,
    /// Position from which on all of them are known: an older change is judged by the oldest.
    pub definitions_known_from: Counter,
    /// No transaction that commits from now on has a change before this, as of when publications were last stated.
    pub horizon: Counter,
    /// In-progress transactions being staged now.
    pub staged_transactions: Counter,
    /// Prepared transactions that are not decided.
    pub prepared_transactions: Counter,
    /// Bytes that staged transactions take, in files and in memory.
    pub staged_bytes: Counter,
}

/// Asks the catalog task to make the source say its publications again.
#[derive(Debug)]
pub struct RefreshCatalog {
    /// Gets the position at which they are said, as soon as it is durable in the log.
    pub reply: oneshot::Sender<Result<Lsn, RefreshError>>,
}

/// The publications could not be asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RefreshError {
    /// There is no connection to the source.
    #[error("the source can't be asked for its publications now: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// The decoder is ending.
    #[error("the decoder is shutting down")]
    ShuttingDown,
}

/// The process ends, so the position will not be reached in it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the decoder is shutting down")]
pub struct Stopped;

/// Requests that wait for the catalog task; more are made to wait by the channel.
const REFRESH_QUEUE: usize = 64;

/// State shared by all parts of one decoder.
#[derive(Debug)]
pub struct DecoderState {
    started_at: PgTimestamp,
    counters: Counters,
    disk: Arc<Disk>,
    source: RwLock<SourceStatus>,
    head: watch::Sender<Head>,
    session: watch::Sender<u64>,
    refresh: mpsc::Sender<RefreshCatalog>,
}

impl DecoderState {
    /// The state of a decoder that has just started, and the requests to its catalog task.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<RefreshCatalog>) {
        let (refresh, requests) = mpsc::channel(REFRESH_QUEUE);
        let state = Self {
            started_at: PgTimestamp::now(),
            counters: Counters::default(),
            disk: Arc::default(),
            source: RwLock::default(),
            head: watch::Sender::default(),
            session: watch::Sender::new(0),
            refresh,
        };
        (state, requests)
    }

    /// When the process started.
    #[must_use]
    pub const fn started_at(&self) -> PgTimestamp {
        self.started_at
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The log's disk.
    #[must_use]
    pub const fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// The source as it was last seen.
    #[must_use]
    pub fn source(&self) -> SourceStatus {
        self.source.read().clone()
    }

    /// Changes what is known of the source.
    pub fn update_source(&self, change: impl FnOnce(&mut SourceStatus)) {
        change(&mut self.source.write());
    }

    /// Where the log ends now.
    #[must_use]
    pub fn head(&self) -> Head {
        *self.head.borrow()
    }

    /// Follows the head; the receiver sees only the newest one.
    #[must_use]
    pub fn watch_head(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// Tells everybody where the log ends. Called by the appender, after what it says is so.
    pub fn publish_head(&self, head: Head) {
        debug_assert!(head.durable_lsn <= head.written_lsn);
        self.head.send_if_modified(|current| {
            let head = Head {
                staging_changes: current.staging_changes,
                ..head
            };
            let changed = *current != head;
            *current = head;
            changed
        });
    }

    /// Tells everybody that there is more, or less, to read of transactions that are streamed before their end.
    pub fn staging_changed(&self) {
        self.head.send_modify(|head| head.staging_changes += 1);
    }

    /// Waits until everything up to `lsn` is durable.
    pub async fn wait_durable(&self, lsn: Lsn) -> Result<(), Stopped> {
        let mut head = self.head.subscribe();
        head.wait_for(|head| head.durable_lsn >= lsn)
            .await
            .map(|_| ())
            .map_err(|_| Stopped)
    }

    /// Counts the connections to the source on which the stream has started; 0 before the first. The catalog task
    /// makes the source say its publications at each new number.
    #[must_use]
    pub fn watch_session(&self) -> watch::Receiver<u64> {
        self.session.subscribe()
    }

    /// Tells everybody that the stream has started on a new connection.
    pub fn begin_session(&self) {
        self.session.send_modify(|number| *number += 1);
    }

    /// Makes the source say its publications again; the position from which the log knows them as they are now, once
    /// that is durable.
    pub async fn refresh_catalog(&self) -> Result<Lsn, RefreshError> {
        let (reply, answer) = oneshot::channel();
        self.refresh
            .send(RefreshCatalog { reply })
            .await
            .map_err(|_| RefreshError::ShuttingDown)?;
        answer.await.map_err(|_| RefreshError::ShuttingDown)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_what_is_durable() {
        let (state, _requests) = DecoderState::new();
        let head = |written, durable| Head {
            writer_epoch: 1,
            written_lsn: Lsn(written),
            durable_lsn: Lsn(durable),
            staging_changes: 0,
        };
        state.publish_head(head(10, 5));
        state.wait_durable(Lsn(5)).await.unwrap();
        let later = state.wait_durable(Lsn(10));
        tokio::pin!(later);
        tokio::select! {
            biased;
            _ = &mut later => panic!("10 is only written"),
            () = std::future::ready(()) => {}
        }
        state.publish_head(head(10, 10));
        later.await.unwrap();
    }

    #[tokio::test]
    async fn refresh_is_answered_by_the_catalog_task() {
        let (state, mut requests) = DecoderState::new();
        let answer = async {
            let request = requests.recv().await.unwrap();
            request.reply.send(Ok(Lsn(7))).unwrap();
        };
        let (lsn, ()) = tokio::join!(state.refresh_catalog(), answer);
        assert_eq!(lsn.unwrap(), Lsn(7));
        drop(requests);
        assert!(matches!(
            state.refresh_catalog().await,
            Err(RefreshError::ShuttingDown)
        ));
    }
}
