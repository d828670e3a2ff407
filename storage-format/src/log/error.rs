//! Why a log can't be read.

use std::path::PathBuf;

use pg_proto::Lsn;

use crate::error::FormatError;
use crate::watermark::WatermarkError;

/// Reading failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file can't be read, or is damaged.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The watermark can't be read.
    #[error(transparent)]
    Watermark(#[from] WatermarkError),
    /// There is no segment yet.
    #[error("{} holds no segment: start the decoder first, or correct log.directory", path.display())]
    Empty {
        /// The folder of the segments.
        path: PathBuf,
    },
    /// Retention has deleted what comes next.
    #[error("position {asked} is no longer kept: the log has {oldest} to {newest}")]
    NotKept {
        /// The position that should be read from.
        asked: Lsn,
        /// The lowest position that is left.
        oldest: Lsn,
        /// The head.
        newest: Lsn,
    },
    /// The log says itself that something is missing.
    #[error(
        "changes between {from} and {to} are missing in the log: copy the tables anew, then start at {to}"
    )]
    Gap {
        /// Where the gap begins.
        from: Lsn,
        /// Where the log goes on.
        to: Lsn,
    },
    /// The source's history is another one from a position on that was passed already.
    #[error(
        "the source has another history from {fork} on: what was read of this log up to {position} is not all part of \
         it. Copy the tables anew, then start at the log's end"
    )]
    Forked {
        /// Up to where both histories are the same.
        fork: Lsn,
        /// How far was read.
        position: Lsn,
    },
}

impl ReadError {
    /// Whether what is on the disk is wrong, so that another attempt can't help.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Gap { .. }
                | Self::Forked { .. }
                | Self::Format(
                    FormatError::Damaged { .. }
                        | FormatError::MissingSegment { .. }
                        | FormatError::Catalog(_)
                )
        )
    }
}

/// A position can't be read from.
#[derive(Debug, thiserror::Error)]
pub enum SeekError {
    /// It lies before the oldest segment.
    #[error("position {asked} is not kept: the log has {oldest} to {newest}")]
    NotKept {
        /// The position asked for.
        asked: Lsn,
        /// The lowest position that is kept.
        oldest: Lsn,
        /// The head.
        newest: Lsn,
    },
    /// It lies behind the head.
    #[error("position {asked} is ahead of the log, which ends at {newest}")]
    Ahead {
        /// The position asked for.
        asked: Lsn,
        /// The head.
        newest: Lsn,
    },
    /// Looking for it failed.
    #[error(transparent)]
    Read(ReadError),
}

impl<E: Into<ReadError>> From<E> for SeekError {
    fn from(error: E) -> Self {
        match error.into() {
            ReadError::NotKept {
                asked,
                oldest,
                newest,
            } => Self::NotKept {
                asked,
                oldest,
                newest,
            },
            other => Self::Read(other),
        }
    }
}
