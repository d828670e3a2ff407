//! When to let messages gather before they are read.
//!
//! A decoding walsender flushes its socket after every message (`WalSndWriteData` in walsender.c), so that whoever reads
//! as soon as there is something is woken for every row: waking two threads and asking the kernel costs twenty times
//! what the row itself does. While messages come thick and fast, reads therefore wait for the next tick of the clock,
//! and one read takes what came meanwhile. A stream with room between its messages is read at once.

use std::time::{Duration, Instant};

/// How long messages gather; the timer's resolution, so it is up to twice as long.
const TICK: Duration = Duration::from_millis(1);
/// So many reads within a tick are a dense stream: some thousand small transactions a second, or a large one.
const DENSE_READS: u32 = 24;
/// A tick that brings fewer bytes than this was no dense one.
const SPARSE_BYTES: usize = 2 << 10;
/// A read of so much was not all that there is.
const MORE_BYTES: usize = 64 << 10;

/// Watches how reads follow each other.
#[derive(Debug)]
pub(super) struct Gather {
    since: Instant,
    reads: u32,
    dense: bool,
}

impl Gather {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            reads: 0,
            dense: false,
        }
    }

    /// Notes a read of `len` bytes; how long to wait before the next one.
    pub(super) fn after_read(&mut self, len: usize, now: Instant) -> Option<Duration> {
        if self.dense {
            self.dense = len >= SPARSE_BYTES;
        } else {
            self.count(now);
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
            assert_eq!(gather.after_read(60, now), None);
        }
        // A message each ten microseconds.
        let mut waited = None;
        for _ in 0..DENSE_READS {
            now += Duration::from_micros(10);
            waited = gather.after_read(200, now);
        }
        assert_eq!(waited, Some(TICK));
        // It goes on.
        now += TICK;
        assert_eq!(gather.after_read(20_000, now), Some(TICK));
        // More than a read takes is there.
        assert_eq!(gather.after_read(256 << 10, now), None);
        now += TICK;
        assert_eq!(gather.after_read(20_000, now), Some(TICK));
        // It has ended, and the next message is read at once.
        now += TICK;
        assert_eq!(gather.after_read(60, now), None);
        assert_eq!(gather.after_read(60, now), None);
    }
}
