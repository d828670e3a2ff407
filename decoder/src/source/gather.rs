//! When to let messages gather before they are read.
//!
//! A decoding walsender flushes its socket after every message (`WalSndWriteData` in walsender.c), so that whoever reads
//! as soon as there is something is woken for every row: waking two threads and asking the kernel costs twenty times
//! what the row itself does. While messages come thick and fast, reads therefore wait for the next tick of the clock,
//! and one read takes what came meanwhile. A stream with room between its messages is read at once.
//!
//! Inside a transaction fewer messages are enough: nobody learns of them before it ends, so that nothing is late.
//!
//! What is late already may be a little later: while the source is behind its own commits, messages gather for a part of
//! that lag. They then fill the socket's window, and what the walsender sends behind a full window the kernel
//! gathers in large pieces instead of carrying each message alone: that costs the source half as much, and the reader a
//! fraction. Whatever has gathered is read to its end without a wait, so that the source is not held up.

use std::time::{Duration, Instant};

use crate::ingest::Glance;

/// How long messages gather at least.
const TICK: Duration = Duration::from_millis(1);
/// How long at most.
const PAUSE_MAX: Duration = Duration::from_millis(8);
/// By this part of a lag it may grow.
const PART_OF_LAG: u32 = 16;
/// So many reads within a tick are a dense stream: some thousand small transactions a second, or a large one.
const DENSE_READS: u32 = 24;
/// So many reads of nothing but one transaction's changes, within so long, are one, too.
const INSIDE_READS: u32 = 6;
const INSIDE_TIME: Duration = Duration::from_millis(2);
/// A pause that brings fewer bytes than this was no dense one.
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
    /// There was a pause before the read.
    paused: bool,
    /// Of the transaction that began last.
    lag: Duration,
}

impl Gather {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            reads: 0,
            inside_since: now,
            inside_reads: 0,
            dense: false,
            paused: false,
            lag: Duration::ZERO,
        }
    }

    /// Notes a read of `len` bytes and what was seen in it; how long to wait before the next one.
    pub(super) fn after_read(
        &mut self,
        len: usize,
        seen: &Glance,
        now: Instant,
    ) -> Option<Duration> {
        self.lag = seen.lag.unwrap_or(self.lag);
        if !self.dense {
            self.count(now);
            self.count_inside(seen.inside, now);
        } else if self.paused {
            self.dense = len >= SPARSE_BYTES;
        }
        self.paused = self.dense && len < MORE_BYTES;
        let pause = (self.lag / PART_OF_LAG).clamp(TICK, PAUSE_MAX);
        self.paused.then_some(pause)
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

    const SEEN: Glance = Glance {
        received: pg_proto::Lsn::INVALID,
        reply_requested: false,
        inside: false,
        lag: None,
    };

    #[test]
    fn waits_only_while_the_stream_is_dense() {
        let start = Instant::now();
        let mut gather = Gather::new(start);
        // A commit each millisecond, four messages each.
        let mut now = start;
        for message in 0..100 {
            now += Duration::from_micros(if message % 4 == 0 { 1000 } else { 20 });
            assert_eq!(gather.after_read(60, &SEEN, now), None);
        }
        // A message each ten microseconds.
        let mut waited = None;
        for _ in 0..DENSE_READS {
            now += Duration::from_micros(10);
            waited = gather.after_read(200, &SEEN, now);
        }
        assert_eq!(waited, Some(TICK));
        // It goes on.
        now += TICK;
        assert_eq!(gather.after_read(20_000, &SEEN, now), Some(TICK));
        // More than a read takes is there, and a little is left at its end.
        assert_eq!(gather.after_read(256 << 10, &SEEN, now), None);
        assert_eq!(gather.after_read(60, &SEEN, now), Some(TICK));
        now += TICK;
        assert_eq!(gather.after_read(20_000, &SEEN, now), Some(TICK));
        // It has ended, and the next message is read at once.
        now += TICK;
        assert_eq!(gather.after_read(60, &SEEN, now), None);
        assert_eq!(gather.after_read(60, &SEEN, now), None);
    }

    #[test]
    fn waits_for_a_part_of_the_lag() {
        let now = Instant::now();
        let mut gather = Gather::new(now);
        let mut read = |lag| gather.after_read(20_000, &Glance { lag, ..SEEN }, now);
        while read(None).is_none() {}
        let lag = |millis| Some(Duration::from_millis(millis));
        assert_eq!(read(lag(15)), Some(TICK));
        assert_eq!(read(lag(32)), Some(Duration::from_millis(2)));
        // Inside the same transaction.
        assert_eq!(read(None), Some(Duration::from_millis(2)));
        assert_eq!(read(lag(3_600_000)), Some(PAUSE_MAX));
        assert_eq!(read(lag(0)), Some(TICK));
    }

    #[test]
    fn waits_sooner_inside_a_transaction() {
        let mut now = Instant::now();
        let mut gather = Gather::new(now);
        let mut read = |inside, micros| {
            now += Duration::from_micros(micros);
            gather.after_read(200, &Glance { inside, ..SEEN }, now)
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
