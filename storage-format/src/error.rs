//! What can go wrong with the files of a log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_proto::Lsn;
use rustix::io::Errno;

use crate::block::{BuildError, HeaderError};
use crate::catalog::CatalogError;
use crate::segment::SegmentHeaderError;
use crate::watermark::WatermarkError;

/// An error of the log's files. Those that concern a file name it.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system refused.
    #[error("can't {operation} {}", path.display())]
    Io {
        /// What was tried: "read", "write" ...
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The disk is full. The log is as it was before; the call may be repeated when there is room.
    #[error("no space left to {operation} {}: free some, the decoder goes on by itself", path.display())]
    NoSpace {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The process may not open one more file. The log is as it was before; the call may be repeated.
    #[error("no file descriptor left to {operation} {}: raise the limit of open files (LimitNOFILE, ulimit -n), or close connections", path.display())]
    NoDescriptors {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// An earlier write or fsync failed, so nothing that was not durable then can be relied upon.
    #[error(
        "the log writer stopped after a failure: {cause}. Restart it; it recovers from what is on disk"
    )]
    Poisoned {
        /// The first failure.
        cause: Arc<str>,
    },
    /// Another process writes this log.
    #[error(
        "{} is locked: another decoder{} is using this log directory. Stop it or choose another log.directory",
        path.display(),
        holder.map_or_else(String::new, |pid| format!(" (process {pid})"))
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that has it, as far as it has said so.
        holder: Option<u32>,
    },
    /// Bytes that were written whole are no longer what was written.
    #[error("{} is damaged at offset {offset}: {damage}. Restore the file from a copy, or move the log directory away and start again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        damage: Damage,
    },
    /// The file was written by another version of Decant.
    #[error("{} has format version {found}; this build reads version {supported}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u16,
        /// The version of this build.
        supported: u16,
    },
    /// The file belongs to another log.
    #[error("{} belongs to another log: its {field} is {found}, expected {expected}. Choose another log.directory", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// The field that differs.
        field: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A segment is missing.
    #[error("a segment is missing in {}: {found} follows sequence {sequence} that ends at {end_lsn}", path.display())]
    MissingSegment {
        /// The directory of the segments.
        path: PathBuf,
        /// The last segment before the hole.
        sequence: u64,
        /// Where that one ends.
        end_lsn: Lsn,
        /// The file behind the hole.
        found: String,
    },
    /// What should be appended does not continue the log. The log is unchanged.
    #[error("records out of order: {what} is {found}, but the log is at {position}")]
    Order {
        /// The position that does not fit.
        what: &'static str,
        /// Its value.
        found: Lsn,
        /// The log's position that it must not be behind, or the open transaction's.
        position: Lsn,
    },
    /// The call does not fit the state of the log: inside a transaction or outside. The log is unchanged.
    #[error("{call} {problem}")]
    State {
        /// The call.
        call: &'static str,
        /// Why it can't be done now.
        problem: &'static str,
    },
    /// A record was pushed where it can't stand.
    #[error("a record can't be added")]
    Build(#[from] BuildError),
    /// A record of the catalog can't be understood.
    #[error("a catalog record can't be applied")]
    Catalog(#[from] CatalogError),
    /// The watermark can't be opened.
    #[error("the watermark can't be used")]
    Watermark(#[source] WatermarkError),
    /// The log ends before a position that was durable.
    #[error("the log in {} ends at {end_lsn}, but was durable up to {durable_lsn}: segments were lost. Restore them, or move the log directory away and start again", path.display())]
    Lost {
        /// The log directory.
        path: PathBuf,
        /// Where it ends.
        end_lsn: Lsn,
        /// What its watermark says.
        durable_lsn: Lsn,
    },
    /// A name or parameter that can't be stored.
    #[error("{what} can't be stored: {problem}")]
    Unstorable {
        /// What it is.
        what: &'static str,
        /// Why not.
        problem: String,
    },
}

/// What is wrong with bytes that were read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A block's header.
    #[error("block header: {0}")]
    BlockHeader(#[from] HeaderError),
    /// The segment's header.
    #[error("segment header: {0}")]
    SegmentHeader(#[from] SegmentHeaderError),
    /// A field that must agree with another place does not.
    #[error("{field} is {found}, expected {expected}")]
    Mismatch {
        /// The field.
        field: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The file ends too early.
    #[error("{what} needs {need} bytes, the file has {have}")]
    TooShort {
        /// What should be there.
        what: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes there.
        have: u64,
    },
    /// Content that passed its checksum and still makes no sense.
    #[error("{0}")]
    Content(String),
}

impl Damage {
    /// A [`Damage::Mismatch`] of two numbers or names.
    pub fn mismatch(field: &'static str, expected: impl ToString, found: impl ToString) -> Self {
        Self::Mismatch {
            field,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// This damage at its place.
    #[must_use]
    pub fn at(self, path: &Path, offset: u64) -> FormatError {
        FormatError::Damaged {
            path: path.to_owned(),
            offset,
            damage: self,
        }
    }
}

/// A full disk and missing descriptors are the same whatever file it is.
impl From<WatermarkError> for FormatError {
    fn from(error: WatermarkError) -> Self {
        match error {
            WatermarkError::Write {
                operation,
                path,
                source,
            } => Self::io(operation, &path)(source),
            error => Self::Watermark(error),
        }
    }
}

impl FormatError {
    /// For `map_err`: an I/O error with what was tried and where. A full disk becomes [`Self::NoSpace`], a file that could
    /// not be opened for want of descriptors [`Self::NoDescriptors`].
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            let full = matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            );
            if full {
                return Self::NoSpace {
                    operation,
                    path,
                    source,
                };
            }
            let errno = Errno::from_io_error(&source);
            if matches!(errno, Some(Errno::MFILE | Errno::NFILE)) {
                return Self::NoDescriptors {
                    operation,
                    path,
                    source,
                };
            }
            Self::Io {
                operation,
                path,
                source,
            }
        }
    }

    /// For `map_err`: a failed fsync. Also a disk that is full only when it comes to writing is [`Self::Io`] then: what the
    /// page cache holds after a failed fsync may never get to the disk, so another fsync proves nothing.
    pub fn sync(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            operation: "fsync",
            path,
            source,
        }
    }

    /// Whether the same call can succeed later without anything else being done: the disk was full, or there was no file
    /// descriptor.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::NoDescriptors { .. })
    }
}
