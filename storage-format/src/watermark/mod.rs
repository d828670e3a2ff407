//! How far readers may read: a small file, written by the decoder by calls, mapped by readers.
//!
//! # Format
//!
//! 512 little-endian words of 8 bytes. Words 0 and 1 are magic and version; word 2 is the heartbeat; word 3 counts
//! publications; two slots follow, each on a sector of its own. `FORMAT.md` has the table.
//!
//! # Protocol
//!
//! Publication *n* writes slot *n mod 2*, then stores *n* into the count. A reader loads the count, the slot that it
//! names, and the count again: if it is still the same, the slot was not being written, since the writer fills the
//! other one first. So a writer that dies at any point leaves a complete slot behind, and never blocks a reader.
//! Each slot carries a checksum and its own count, which also tells a page that a machine crash left half written:
//! then the older slot is the answer.

mod layout;
mod publisher;
mod reader;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use pg_proto::Lsn;

pub use publisher::WatermarkPublisher;
pub use reader::WatermarkReader;

use layout::{MAGIC, VERSION};

/// Name of the file in the log directory.
pub const WATERMARK_FILE: &str = "watermark";

/// A place in the log: behind a whole transaction or a progress block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPoint {
    /// The segment's sequence number.
    pub sequence: u64,
    /// Offset in the segment's active file.
    pub offset: u64,
    /// The log position there.
    pub lsn: Lsn,
}

/// What the decoder publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatermarkState {
    /// Counts the decoder's starts: grows by one with each writer.
    pub epoch: u64,
    /// End of what is in the files.
    pub written: LogPoint,
    /// End of what is fsynced, at or before [`Self::written`].
    pub durable: LogPoint,
}

/// Where a log was cut off, since the source has another history from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Up to where both histories are the same.
    pub lsn: Lsn,
    /// The writer epoch from which on that holds; grows with each cut.
    pub epoch: u64,
    /// Commit LSN of the first transaction that was taken off; `None` if there was none. Who has not come beyond it has
    /// nothing that the source never had.
    pub first_commit_lsn: Option<Lsn>,
}

impl Cut {
    /// Whether a subscriber that has all below `position` has something that was taken off.
    #[must_use]
    pub fn concerns(&self, position: Lsn) -> bool {
        self.first_commit_lsn.is_some_and(|first| position > first)
    }
}

/// The watermark file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum WatermarkError {
    /// It can't be opened, created or mapped.
    #[error("can't open {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It can't be written.
    #[error("can't {operation} {}", path.display())]
    Write {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its first words are not those of this format.
    #[error(
        "{} starts with magic {magic:#018x} and version {version}, expected {MAGIC:#018x} and {VERSION}: \
         it is no watermark, or one of a newer release",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The magic found.
        magic: u64,
        /// The version found.
        version: u64,
    },
    /// No decoder has published anything in it.
    #[error("{} holds no position yet: start the decoder first", path.display())]
    Unpublished {
        /// The file.
        path: PathBuf,
    },
}
