//! When to let messages gather before they are read.
//!
//! A decoding walsender flushes its socket after every message (`WalSndWriteData` in walsender.c), so that whoever reads
//! as soon as there is something is woken for every row: waking two threads and asking the kernel costs twenty times
//! what the row itself does. While messages come thick and fast, reads therefore wait for the next tick of the clock,
//! and one read takes what came meanwhile. A stream with room between its messages is read at once.
//!
//! Inside a transaction fewer messages are enough: nobody learns of them before it ends, so that nothing is late.

use std::time::{Duration, Instant};

/// How long messages gather.
const TICK: Duration = Duration::from_millis(1);
/// So many reads within a tick are a dense stream: some thousand small transactions a second, or a large one.
const DENSE_READS: u32 = 24;
/// So many reads of nothing but one transaction's changes, within so long, are one, too.
const INSIDE_READS: u32 = 6;
const INSIDE_TIME: Duration = Duration::from_millis(2);
/// A tick that brings fewer bytes than this was no dense one.
const SPARSE_BYTES: usize = 2 << 10;
/// A read of so much was not all that there is.
const MORE_BYTES: usize = 64 << 10;

/// Watches how reads follow each other.
#[derive(Debug)]
pub(super) struct Gather {
    since: Instant,
    reads: u32,
    /// The same inside a transaction.
    inside_since: Instant,
    inside_reads: u32,
    dense: bool,
}

impl Gather {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            reads: 0,
            inside_since: now,
            inside_reads: 0,
            dense: false,
        }
    }

    /// Notes a read of `len` bytes, and whether they are nothing but one transaction's changes; how long to wait before
    /// the next one.
    pub(super) fn after_read(
        &mut self,
        len: usize,
        inside: bool,
        now: Instant,
    ) -> Option<Duration> {
        if self.dense {
            self.dense = len >= SPARSE_BYTES;
        } else {
            self.count(now);
            self.count_inside(inside, now);
        }
        (self.dense && len < MORE_BYTES).then_some(TICK)
    }

    fn count(&mut self, now: Instant) {
        if now.duration_since(self.since) >= TICK {
            self.since = now;
            self.reads = 0;
        }
        self.reads += 1;
        self.dense = self.reads >= DENSE_READS;
    }

    fn count_inside(&mut self, inside: bool, now: Instant) {
        if !inside || now.duration_since(self.inside_since) >= INSIDE_TIME {
            self.inside_since = now;
            self.inside_reads = 0;
        }
        self.inside_reads += u32::from(inside);
        self.dense |= self.inside_reads >= INSIDE_READS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_only_while_the_stream_is_dense() {
        let start = Instant::now();
        let mut gather = Gather::new(start);
        // A commit each millisecond, four messages each.
        let mut now = start;
        for message in 0..100 {
            now += Duration::from_micros(if message % 4 == 0 { 1000 } else { 20 });
            assert_eq!(gather.after_read(60, false, now), None);
        }
        // A message each ten microseconds.
        let mut waited = None;
        for _ in 0..DENSE_READS {
            now += Duration::from_micros(10);
            waited = gather.after_read(200, false, now);
        }
        assert_eq!(waited, Some(TICK));
        // It goes on.
        now += TICK;
        assert_eq!(gather.after_read(20_000, false, now), Some(TICK));
        // More than a read takes is there.
        assert_eq!(gather.after_read(256 << 10, false, now), None);
        now += TICK;
        assert_eq!(gather.after_read(20_000, false, now), Some(TICK));
        // It has ended, and the next message is read at once.
        now += TICK;
        assert_eq!(gather.after_read(60, false, now), None);
        assert_eq!(gather.after_read(60, false, now), None);
    }

    #[test]
    fn waits_sooner_inside_a_transaction() {
        let mut now = Instant::now();
        let mut gather = Gather::new(now);
        let mut read = |inside, micros| {
            now += Duration::from_micros(micros);
            gather.after_read(200, inside, now)
        };
        // Small transactions, and rows with room between them.
        for _ in 0..100 {
            assert_eq!(
                [read(true, 100), read(true, 100), read(false, 100)],
                [None; 3]
            );
        }
        for _ in 0..100 {
            assert_eq!(read(true, 1_000), None);
        }
        let waits = (0..2 * INSIDE_READS)
            .filter_map(|_| read(true, 100))
            .count();
        assert!(waits > 0);
    }
}
