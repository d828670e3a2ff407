//! The source: its WAL, its slot, and the stream of a connection.

mod history;
mod stream;

use pg_proto::Lsn;

pub use history::{Digest, Expected, ExpectedKind, History, START};
pub use stream::Stream;

/// A source with one slot.
#[derive(Debug)]
pub struct Source {
    /// Its WAL.
    pub history: History,
    /// What the slot was told to be safe: nothing before it will ever be sent again.
    pub confirmed: Lsn,
    /// Its timeline.
    pub timeline: u32,
}

impl Source {
    /// `START_REPLICATION` at `from`: as with a real slot, never before what is confirmed.
    #[must_use]
    pub fn connect(&self, from: Lsn) -> Stream {
        Stream::new(from.max(self.confirmed))
    }
}
