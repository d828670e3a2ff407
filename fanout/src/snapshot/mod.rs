//! MVCC snapshots of the source that fit a position of the log.
//!
//! # What is needed
//!
//! A client that copies tables and then streams needs a snapshot and a position C such that the snapshot sees exactly
//! the transactions that commit before C. PostgreSQL makes both by waiting for running transactions while it decodes.
//! Here the log is decoded already, so a snapshot can be taken first and its position looked for afterwards.
//!
//! # Why looking at positions alone is wrong
//!
//! A transaction's commit record is in the WAL, and may be decoded and delivered, before other sessions see the
//! transaction: it waits for its flush, for a synchronous standby, or just for the processor. So neither the WAL's
//! position at the snapshot nor the newest commit that it sees tells what it lacks, and under load about half of all
//! snapshots fit no position at all: they see a transaction and lack one that committed before it.
//!
//! # The rule
//!
//! `CutSearch` goes through the commits of the log. C is the commit LSN of the first one that the snapshot does not see,
//! or, if it sees them all, the WAL's insert position as it was read just after the snapshot was taken (what the
//! snapshot sees was inserted before it). The cut is exact if no commit at or behind C is seen. If it is not, another
//! snapshot is taken.
//!
//! # Where the search begins
//!
//! A transaction may commit, wait for its synchronous standby for an hour, and be lacking all the time. Going back
//! "far enough" is therefore no rule. `Horizon` keeps a position below which everything is *known* to be seen by every
//! snapshot taken from then on, and says why. A search begins there; it ends with a higher one.

mod cut;
mod horizon;
mod scan;
mod stats;
#[cfg(test)]
mod tests;
mod visibility;

use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(test)]
pub(crate) use cut::Cut;
pub(crate) use cut::CutSearch;
pub(crate) use horizon::{Horizon, Probe};
pub(crate) use scan::{SCAN_BYTES_MAX, scan};
pub use stats::{Counts, Method};
pub(crate) use visibility::Visibility;

use stats::Stats;

/// What all snapshots of a fanout share. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    horizon: Mutex<Horizon>,
    stats: Stats,
}

impl Snapshots {
    /// How many were made, and how.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner.stats.counts()
    }

    pub(crate) fn horizon(&self) -> parking_lot::MutexGuard<'_, Horizon> {
        self.inner.horizon.lock()
    }

    pub(crate) fn count_look(&self) {
        self.inner.stats.count_look();
    }

    pub(crate) fn count_made(&self, method: Method) {
        self.inner.stats.count_made(method);
    }

    pub(crate) fn count_failed(&self) {
        self.inner.stats.count_failed();
    }
}
