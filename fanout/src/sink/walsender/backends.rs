//! The sessions of this endpoint as its clients see them: numbers in the place of process ids, keys to cancel,
//! and who streams from which slot.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::SecureRandom;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio_util::sync::CancellationToken;

use super::sql::FIRST_PID;

/// The highest number of a session.
const LAST_PID: u32 = i32::MAX.unsigned_abs();

/// All sessions.
#[derive(Debug)]
pub(super) struct Backends {
    random: &'static dyn SecureRandom,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last_pid: u32,
    sessions: HashMap<u32, Entry>,
    /// Slots that are being streamed from, by which session.
    active: HashMap<String, u32>,
}

#[derive(Debug)]
struct Entry {
    key: [u8; 4],
    user: String,
    cancel: Arc<Notify>,
    terminate: CancellationToken,
}

/// What came of a signal to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signalled {
    /// It has it.
    Done,
    /// It is another role's.
    NotAllowed,
    /// There is none of this number.
    NoSuchSession,
}

impl Backends {
    /// No sessions yet. The first number is any: those of other fanouts are shown here (`active_pid`), and whoever signals one of
    /// them must not hit a session of this one.
    pub(super) fn new() -> Self {
        let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
        let mut place = [0; 4];
        // Without random bytes no session comes about anyhow.
        let filled = random.fill(&mut place).is_ok();
        let place = if filled { u32::from_be_bytes(place) } else { 0 };
        let table = Table {
            last_pid: FIRST_PID + place / 8,
            ..Table::default()
        };
        Self {
            random,
            table: Mutex::new(table),
        }
    }

    /// Adds a session for as long as the result lives. `None` if the system has no random bytes for its key.
    pub(super) fn register(self: &Arc<Self>, user: &str) -> Option<Backend> {
        let mut key = [0; 4];
        self.random.fill(&mut key).ok()?;
        let cancel = Arc::new(Notify::new());
        let terminate = CancellationToken::new();
        let mut table = self.table.lock();
        let pid = table.free_pid();
        let entry = Entry {
            key,
            user: user.to_owned(),
            cancel: Arc::clone(&cancel),
            terminate: terminate.clone(),
        };
        table.sessions.insert(pid, entry);
        Some(Backend {
            pid,
            key,
            cancel,
            terminate,
            backends: Arc::clone(self),
        })
    }

    /// Cancels what the session does now, if the key is its key. A session that does nothing is not disturbed.
    pub(super) fn cancel(&self, pid: u32, key: &[u8]) {
        let table = self.table.lock();
        if let Some(entry) = table.sessions.get(&pid).filter(|entry| entry.key == key) {
            entry.cancel.notify_waiters();
        }
    }

    /// Ends a session (`pg_terminate_backend`), or what it does now, at the wish of a session of `user`, which may do so to
    /// its own, and with `all` to every session.
    pub(super) fn signal(&self, pid: u32, user: &str, all: bool, terminate: bool) -> Signalled {
        let table = self.table.lock();
        match table.sessions.get(&pid) {
            None => Signalled::NoSuchSession,
            Some(entry) if !all && entry.user != user => Signalled::NotAllowed,
            Some(entry) => {
                if terminate {
                    entry.terminate.cancel();
                } else {
                    entry.cancel.notify_waiters();
                }
                Signalled::Done
            }
        }
    }

    /// The session that streams from a slot here.
    pub(super) fn streaming(&self, slot: &str) -> Option<u32> {
        self.table.lock().active.get(slot).copied()
    }
}

impl Table {
    fn free_pid(&mut self) -> u32 {
        loop {
            // Clients keep it in a signed integer.
            self.last_pid = match self.last_pid {
                FIRST_PID..LAST_PID => self.last_pid + 1,
                _ => FIRST_PID,
            };
            if !self.sessions.contains_key(&self.last_pid) {
                return self.last_pid;
            }
        }
    }
}

/// One session's entry.
#[derive(Debug)]
pub(super) struct Backend {
    pid: u32,
    key: [u8; 4],
    cancel: Arc<Notify>,
    terminate: CancellationToken,
    backends: Arc<Backends>,
}

impl Backend {
    /// What the client takes for a process id.
    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// What the client must show to cancel.
    pub(super) const fn key(&self) -> [u8; 4] {
        self.key
    }

    /// Wakes whoever waits on it when the client cancels.
    pub(super) fn cancelled(&self) -> Arc<Notify> {
        Arc::clone(&self.cancel)
    }

    /// Cancelled when somebody ends the session.
    pub(super) fn terminated(&self) -> CancellationToken {
        self.terminate.clone()
    }

    /// Notes that this session streams from `slot`, for as long as the result lives.
    pub(super) fn streams(&self, slot: &str) -> Streams {
        let mut table = self.backends.table.lock();
        table.active.insert(slot.to_owned(), self.pid);
        Streams {
            slot: slot.to_owned(),
            pid: self.pid,
            backends: Arc::clone(&self.backends),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.backends.table.lock().sessions.remove(&self.pid);
    }
}

/// Requests to cancel, none of which is missed.
#[derive(Debug)]
pub(super) struct Cancelling {
    notify: Arc<Notify>,
    waiting: Pin<Box<OwnedNotified>>,
}

impl Cancelling {
    /// From now on.
    pub(super) fn new(notify: Arc<Notify>) -> Self {
        let mut waiting = Box::pin(Arc::clone(&notify).notified_owned());
        waiting.as_mut().enable();
        Self { notify, waiting }
    }

    /// Returns when the next request comes. Cancel safe.
    pub(super) async fn next(&mut self) {
        self.waiting.as_mut().await;
        *self = Self::new(Arc::clone(&self.notify));
    }
}

/// A session streams from a slot.
#[derive(Debug)]
pub(super) struct Streams {
    slot: String,
    pid: u32,
    backends: Arc<Backends>,
}

impl Drop for Streams {
    fn drop(&mut self) {
        let mut table = self.backends.table.lock();
        if table.active.get(&self.slot) == Some(&self.pid) {
            table.active.remove(&self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_come_back_only_much_later() {
        let backends = Arc::new(Backends::new());
        let first = backends.register("alice").unwrap();
        let second = backends.register("alice").unwrap();
        let start = first.pid();
        assert!((FIRST_PID..LAST_PID).contains(&start));
        assert_eq!(second.pid(), start + 1);
        drop(first);
        backends.table.lock().last_pid = start + 1;
        assert_eq!(backends.register("alice").unwrap().pid(), start + 2);
        backends.table.lock().last_pid = LAST_PID;
        assert_eq!(backends.register("alice").unwrap().pid(), FIRST_PID);
    }

    #[test]
    fn a_slot_is_streamed_from_as_long_as_the_note_lives() {
        let backends = Arc::new(Backends::new());
        let backend = backends.register("alice").unwrap();
        let streams = backend.streams("s");
        assert_eq!(backends.streaming("s"), Some(backend.pid()));
        drop(streams);
        assert_eq!(backends.streaming("s"), None);
    }

    #[test]
    fn a_session_is_ended_by_its_own_user_or_whoever_may() {
        let backends = Arc::new(Backends::new());
        let backend = backends.register("alice").unwrap();
        let signal = |pid, user, all| backends.signal(pid, user, all, true);
        assert_eq!(signal(1, "alice", false), Signalled::NoSuchSession);
        assert_eq!(signal(backend.pid(), "bob", false), Signalled::NotAllowed);
        assert!(!backend.terminated().is_cancelled());
        assert_eq!(signal(backend.pid(), "bob", true), Signalled::Done);
        assert!(backend.terminated().is_cancelled());
    }

    #[tokio::test]
    async fn only_the_key_cancels() {
        let backends = Arc::new(Backends::new());
        let backend = backends.register("alice").unwrap();
        let cancelled = backend.cancelled();
        let mut waiting = std::pin::pin!(cancelled.notified());
        waiting.as_mut().enable();
        let mut wrong = backend.key();
        wrong[0] ^= 1;
        backends.cancel(backend.pid(), &wrong);
        backends.cancel(backend.pid() + 1, &backend.key());
        let patience = std::time::Duration::from_millis(20);
        assert!(
            tokio::time::timeout(patience, waiting.as_mut())
                .await
                .is_err()
        );
        backends.cancel(backend.pid(), &backend.key());
        waiting.await;
    }
}
