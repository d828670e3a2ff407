//! Small types of the reader.

use std::time::Duration;

use pg_proto::{Lsn, PgTimestamp};

/// Up to where readers see the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serve {
    /// What is fsynced.
    #[default]
    Durable,
    /// What is in the files. After a crash of the machine the last of it may be gone, and come again from the source.
    Written,
}

/// How a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Up to where.
    pub serve: Serve,
    /// Bytes of decoded blocks to keep for other readers.
    pub cache_bytes: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            serve: Serve::Durable,
            cache_bytes: 64 << 20,
        }
    }
}

/// The end of what readers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The log position: end of the last whole transaction, or progress.
    pub lsn: Lsn,
    /// The decoder's start that published it.
    pub epoch: u64,
    /// The segment.
    pub sequence: u64,
    /// The offset in its file.
    pub offset: u64,
    /// When the decoder last said that it lives.
    pub heartbeat: Option<PgTimestamp>,
}

impl Head {
    /// Time since the last heartbeat; `None` if there never was one. Zero if it lies in the future.
    #[must_use]
    pub fn heartbeat_age(&self, now: PgTimestamp) -> Option<Duration> {
        let micros = now.0.saturating_sub(self.heartbeat?.0);
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
    }
}

/// The positions that a cursor can start at, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The lowest: where the oldest segment begins.
    pub oldest: Lsn,
    /// The highest: the head.
    pub newest: Lsn,
}
