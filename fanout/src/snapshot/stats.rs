//! Counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a snapshot was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A snapshot was taken, and the log has a cut that fits it.
    Cut,
    /// By a temporary slot at the source, which was dropped in the same transaction.
    Slot,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Cut, Self::Slot];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Slot => "slot",
        }
    }
}

/// Since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Snapshots for which a cut was found in the log.
    pub by_cut: u64,
    /// Snapshots that the source made with a temporary slot.
    pub by_slot: u64,
    /// Snapshots for which a cut was looked for, found or not.
    pub looks: u64,
    /// Slots that a client did not get because there was no snapshot for it.
    pub failed: u64,
}

impl Counts {
    /// Snapshots made in this way.
    #[must_use]
    pub const fn made(&self, method: Method) -> u64 {
        match method {
            Method::Cut => self.by_cut,
            Method::Slot => self.by_slot,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Stats {
    by_cut: AtomicU64,
    by_slot: AtomicU64,
    looks: AtomicU64,
    failed: AtomicU64,
}

impl Stats {
    pub(super) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            by_cut: read(&self.by_cut),
            by_slot: read(&self.by_slot),
            looks: read(&self.looks),
            failed: read(&self.failed),
        }
    }

    pub(super) fn count_made(&self, method: Method) {
        let counter = match method {
            Method::Cut => &self.by_cut,
            Method::Slot => &self.by_slot,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}
