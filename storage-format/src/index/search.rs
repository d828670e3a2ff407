//! Searching a list of index entries, wherever it is.

use pg_proto::{Lsn, PgTimestamp};

use super::IndexEntry;

/// Index entries in the order of their offsets.
pub(crate) trait Entries {
    /// How many there are.
    fn count(&self) -> usize;

    /// One of them.
    fn get(&self, place: usize) -> Option<IndexEntry>;

    /// The last entry at which reading may begin so that nothing behind `lsn` is missed: all that is before it
    /// ends at or before `lsn`. `None` if even the first one is behind.
    fn find_lsn(&self, lsn: Lsn) -> Option<IndexEntry> {
        let place = partition(self, |entry| entry.lsn < lsn);
        // Of several at exactly this position the first one is right, else the last before it.
        self.get(place)
            .filter(|entry| entry.lsn == lsn && entry.is_start())
            .or_else(|| self.last_start(place))
    }

    /// The entry to begin at for the first transaction that committed at `time` or later; `None` if there is none.
    fn find_time(&self, time: PgTimestamp) -> Option<IndexEntry> {
        let place = partition(self, |entry| entry.time_max < time);
        self.get(place).and_then(|entry| {
            if entry.is_start() {
                Some(entry)
            } else {
                self.last_start(place)
            }
        })
    }

    /// The last entry.
    fn last(&self) -> Option<IndexEntry> {
        self.count()
            .checked_sub(1)
            .and_then(|place| self.get(place))
    }

    /// The last entry before `place` at which reading may begin.
    fn last_start(&self, place: usize) -> Option<IndexEntry> {
        (0..place)
            .rev()
            .filter_map(|place| self.get(place))
            .find(IndexEntry::is_start)
    }
}

impl Entries for Vec<IndexEntry> {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, place: usize) -> Option<IndexEntry> {
        self.as_slice().get(place).copied()
    }
}

/// The number of entries at the start for which `before` is true.
fn partition<E: Entries + ?Sized>(entries: &E, before: impl Fn(&IndexEntry) -> bool) -> usize {
    let (mut low, mut high) = (0, entries.count());
    while low < high {
        let middle = low + (high - low) / 2;
        if entries.get(middle).is_some_and(|entry| before(&entry)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
