//! The sessions of this endpoint as its clients see them: numbers in the place of process ids, keys to cancel,
//! and who streams from which slot.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::SecureRandom;
use tokio::sync::Notify;

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
    cancel: Arc<Notify>,
}

impl Backends {
    /// No sessions yet.
    pub(super) fn new() -> Self {
        Self {
            random: rustls::crypto::aws_lc_rs::default_provider().secure_random,
            table: Mutex::default(),
        }
    }

    /// Adds a session for as long as the result lives. `None` if the system has no random bytes for its key.
    pub(super) fn register(self: &Arc<Self>) -> Option<Backend> {
        let mut key = [0; 4];
        self.random.fill(&mut key).ok()?;
        let cancel = Arc::new(Notify::new());
        let mut table = self.table.lock();
        let pid = table.free_pid();
        let entry = Entry {
            key,
            cancel: Arc::clone(&cancel),
        };
        table.sessions.insert(pid, entry);
        Some(Backend {
            pid,
            key,
            cancel,
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

    /// The session that streams from a slot here.
    pub(super) fn streaming(&self, slot: &str) -> Option<u32> {
        self.table.lock().active.get(slot).copied()
    }
}

impl Table {
    fn free_pid(&mut self) -> u32 {
        loop {
            // Clients keep it in a signed integer.
            self.last_pid = self.last_pid % i32::MAX.unsigned_abs() + 1;
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
        let first = backends.register().unwrap();
        let second = backends.register().unwrap();
        assert_eq!((first.pid(), second.pid()), (1, 2));
        drop(first);
        assert_eq!(backends.register().unwrap().pid(), 3);
        backends.table.lock().last_pid = i32::MAX.unsigned_abs();
        assert_eq!(backends.register().unwrap().pid(), 1);
    }

    #[test]
    fn a_slot_is_streamed_from_as_long_as_the_note_lives() {
        let backends = Arc::new(Backends::new());
        let backend = backends.register().unwrap();
        let streams = backend.streams("s");
        assert_eq!(backends.streaming("s"), Some(backend.pid()));
        drop(streams);
        assert_eq!(backends.streaming("s"), None);
    }

    #[tokio::test]
    async fn only_the_key_cancels() {
        let backends = Arc::new(Backends::new());
        let backend = backends.register().unwrap();
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
