//! The list of subscribers.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pg_proto::{Lsn, PgTimestamp};
use proto::v1::SubscriberStatus;

use crate::filter::Paths;
use crate::selection::{Publications, SelectionSpec};

/// How a subscriber is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// PostgreSQL's replication protocol.
    Postgresql,
    /// gRPC.
    Grpc,
}

impl Protocol {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Postgresql, Self::Grpc];

    /// The name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgresql => "postgresql",
            Self::Grpc => "grpc",
        }
    }
}

/// Who a subscriber is and what it asked for.
#[derive(Clone, Debug)]
pub struct SubscriberInfo {
    /// How it is connected.
    pub protocol: Protocol,
    /// What it calls itself.
    pub application_name: String,
    /// The role it logged in as, if any.
    pub user: String,
    /// Its address.
    pub peer: String,
    /// The slot that it uses, if any.
    pub slot: Option<String>,
    /// Which changes it gets.
    pub selection: SelectionSpec,
}

/// One subscriber: who it is, and counters that its own task writes and anybody reads.
#[derive(Debug)]
pub struct Subscriber {
    id: u64,
    info: SubscriberInfo,
    connected_at: PgTimestamp,
    sent: AtomicU64,
    write: AtomicU64,
    flush: AtomicU64,
    apply: AtomicU64,
    changes: AtomicU64,
    bytes: AtomicU64,
    filter_paths: Mutex<Arc<Paths>>,
}

impl Subscriber {
    /// Its number, unique in this process.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Who it is.
    #[must_use]
    pub const fn info(&self) -> &SubscriberInfo {
        &self.info
    }

    /// Everything below `position` has been written to its socket; `changes` and `bytes` since the last call.
    pub fn sent(&self, position: Lsn, changes: u64, bytes: u64) {
        self.set_sent(position);
        self.count(changes, bytes);
    }

    /// Everything below `position` has been written to its socket.
    pub fn set_sent(&self, position: Lsn) {
        self.sent.store(position.0, Ordering::Relaxed);
    }

    /// Changes and bytes that were written to its socket.
    pub fn count(&self, changes: u64, bytes: u64) {
        self.changes.fetch_add(changes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Its stream counts here which way the rows go that its row filters judge.
    pub fn set_filter_paths(&self, paths: &Arc<Paths>) {
        *self.filter_paths.lock() = Arc::clone(paths);
    }

    /// What it reported.
    pub fn reported(&self, write: Lsn, flush: Lsn, apply: Lsn) {
        self.write.store(write.0, Ordering::Relaxed);
        self.flush.store(flush.0, Ordering::Relaxed);
        self.apply.store(apply.0, Ordering::Relaxed);
    }

    /// All of it, for status; `head` is the log's head.
    #[must_use]
    pub fn status(&self, head: Lsn) -> SubscriberStatus {
        let sent = Lsn(self.sent.load(Ordering::Relaxed));
        let info = &self.info;
        let publications = match &info.selection.publications {
            Publications::Everything => Vec::new(),
            Publications::Named(names) => names.clone(),
        };
        let tables = info.selection.tables.iter().map(Into::into).collect();
        let paths = Arc::clone(&self.filter_paths.lock());
        SubscriberStatus {
            id: self.id,
            protocol: info.protocol.name().to_owned(),
            application_name: info.application_name.clone(),
            user: info.user.clone(),
            peer: info.peer.clone(),
            slot: info.slot.clone().unwrap_or_default(),
            publications,
            tables,
            sent_lsn: sent.0,
            write_lsn: self.write.load(Ordering::Relaxed),
            flush_lsn: self.flush.load(Ordering::Relaxed),
            apply_lsn: self.apply.load(Ordering::Relaxed),
            rows_sent: self.changes.load(Ordering::Relaxed),
            bytes_sent: self.bytes.load(Ordering::Relaxed),
            lag_bytes: head.bytes_since(sent),
            connected_at: self.connected_at.unix_micros(),
            filtered_native: paths.native(),
            filtered_index: paths.index(),
            filtered_source: paths.source(),
            source_filters: paths.reasons(),
        }
    }
}

/// There is no room for another subscriber. SQLSTATE 53300.
#[derive(Debug, thiserror::Error)]
#[error("sorry, too many subscribers already: the limit is {limit} (fanout.max_connections)")]
pub struct TooMany {
    limit: usize,
}

/// All subscribers of this process. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Subscribers {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    last_id: AtomicU64,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    connected: BTreeMap<u64, Arc<Subscriber>>,
    /// Sums over those who left.
    left: BTreeMap<Protocol, Totals>,
}

/// Sums over all subscribers of one protocol that there ever were in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows, truncates and messages.
    pub changes: u64,
    /// Bytes.
    pub bytes: u64,
    /// Streams.
    pub streams: u64,
}

impl Totals {
    fn add(&mut self, subscriber: &Subscriber) {
        self.changes += subscriber.changes.load(Ordering::Relaxed);
        self.bytes += subscriber.bytes.load(Ordering::Relaxed);
        self.streams += 1;
    }
}

impl Subscribers {
    /// An empty list for at most `limit` subscribers.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                limit,
                last_id: AtomicU64::new(0),
                list: Mutex::default(),
            }),
        }
    }

    /// Adds a subscriber for as long as the registration lives.
    pub fn register(&self, info: SubscriberInfo) -> Result<Registration, TooMany> {
        let mut list = self.inner.list.lock();
        let limit = self.inner.limit;
        if list.connected.len() >= limit {
            return Err(TooMany { limit });
        }
        let id = self.inner.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let subscriber = Arc::new(Subscriber {
            id,
            info,
            connected_at: PgTimestamp::now(),
            sent: AtomicU64::new(0),
            write: AtomicU64::new(0),
            flush: AtomicU64::new(0),
            apply: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            filter_paths: Mutex::default(),
        });
        list.connected.insert(id, Arc::clone(&subscriber));
        Ok(Registration {
            subscriber,
            subscribers: self.clone(),
        })
    }

    /// Everybody who is connected now.
    #[must_use]
    pub fn connected(&self) -> Vec<Arc<Subscriber>> {
        self.inner.list.lock().connected.values().cloned().collect()
    }

    /// How many are connected now.
    #[must_use]
    pub fn count(&self, protocol: Protocol) -> usize {
        let list = self.inner.list.lock();
        let connected = list.connected.values();
        connected
            .filter(|one| one.info.protocol == protocol)
            .count()
    }

    /// Sums over all who are or were connected.
    #[must_use]
    pub fn totals(&self, protocol: Protocol) -> Totals {
        let list = self.inner.list.lock();
        let mut totals = list.left.get(&protocol).copied().unwrap_or_default();
        for subscriber in list.connected.values() {
            if subscriber.info.protocol == protocol {
                totals.add(subscriber);
            }
        }
        totals
    }

    /// Bytes of WAL between `head` and what the slowest of those who are connected was sent.
    #[must_use]
    pub fn lag_bytes_max(&self, head: Lsn) -> u64 {
        let list = self.inner.list.lock();
        let lags = list.connected.values().map(|one| {
            let sent = Lsn(one.sent.load(Ordering::Relaxed));
            head.bytes_since(sent)
        });
        lags.max().unwrap_or(0)
    }
}

/// A subscriber's place in the list, freed when this is dropped.
#[derive(Debug)]
pub struct Registration {
    subscriber: Arc<Subscriber>,
    subscribers: Subscribers,
}

impl Deref for Registration {
    type Target = Subscriber;

    fn deref(&self) -> &Subscriber {
        &self.subscriber
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut list = self.subscribers.inner.list.lock();
        if let Some(subscriber) = list.connected.remove(&self.subscriber.id) {
            let protocol = subscriber.info.protocol;
            list.left.entry(protocol).or_default().add(&subscriber);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> SubscriberInfo {
        SubscriberInfo {
            protocol: Protocol::Grpc,
            application_name: "test".to_owned(),
            user: String::new(),
            peer: String::new(),
            slot: None,
            selection: SelectionSpec::default(),
        }
    }

    #[test]
    fn holds_no_more_than_its_limit_and_forgets_who_left() {
        let subscribers = Subscribers::new(1);
        let first = subscribers.register(info()).unwrap();
        first.sent(Lsn(10), 2, 100);
        first.sent(Lsn(20), 1, 50);
        let status = subscribers.connected()[0].status(Lsn(25));
        assert_eq!(
            (status.sent_lsn, status.rows_sent, status.bytes_sent),
            (20, 3, 150)
        );
        assert_eq!(status.lag_bytes, 5);
        assert!(subscribers.register(info()).is_err());
        drop(first);
        assert!(subscribers.connected().is_empty());
        let second = subscribers.register(info()).unwrap();
        assert_eq!(second.id(), 2);
        second.sent(Lsn(30), 1, 10);
        let totals = subscribers.totals(Protocol::Grpc);
        assert_eq!((totals.changes, totals.bytes, totals.streams), (4, 160, 2));
        assert_eq!(subscribers.totals(Protocol::Postgresql), Totals::default());
    }
}
