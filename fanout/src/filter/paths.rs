//! Which way the rows of one subscriber went.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Asks;

/// Most filters of which the reason is kept.
const REASONS_MAX: usize = 8;

/// How many rows of a subscriber were judged, and by whom. Its own task writes and anybody reads.
#[derive(Debug, Default)]
pub struct Paths {
    native: AtomicU64,
    index: AtomicU64,
    source: AtomicU64,
    reasons: Mutex<Vec<String>>,
}

impl Paths {
    /// Rows that were evaluated here. Both rows of an UPDATE count.
    #[must_use]
    pub fn native(&self) -> u64 {
        self.native.load(Ordering::Relaxed)
    }

    /// Rows that an index of a block passed over.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index.load(Ordering::Relaxed)
    }

    /// Rows that the source evaluated.
    #[must_use]
    pub fn source(&self) -> u64 {
        self.source.load(Ordering::Relaxed)
    }

    /// Filters that the source evaluates, each with the reason.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        self.reasons.lock().clone()
    }

    pub(super) fn add(&self, native: u64, index: u64, source: u64) {
        self.native.fetch_add(native, Ordering::Relaxed);
        self.index.fetch_add(index, Ordering::Relaxed);
        self.source.fetch_add(source, Ordering::Relaxed);
    }

    /// The source is asked.
    pub(crate) fn note(&self, asks: &Asks) {
        let mut reasons = self.reasons.lock();
        for filter in asks.filters() {
            let reason = filter.reason().unwrap_or_default();
            let text = format!("{}: {reason}", filter.sql);
            if reasons.len() < REASONS_MAX && !reasons.contains(&text) {
                reasons.push(text);
            }
        }
    }
}
