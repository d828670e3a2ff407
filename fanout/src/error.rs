//! What can end a subscriber's stream, and what keeps the process from starting.

use std::sync::Arc;

use pg_proto::{Lsn, ReadError};
use storage_format::catalog::CatalogError;
use storage_format::log::{ReadError as LogError, SeekError};

use crate::selection::Refusal;

/// A stream can't be opened, or can't go on.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The log no longer has the position.
    #[error(
        "position {asked} is no longer kept: the log has {oldest} to {newest}; start at one of these and copy the tables anew"
    )]
    NotKept {
        /// What was asked for.
        asked: Lsn,
        /// The first position that can be started from.
        oldest: Lsn,
        /// The log's end.
        newest: Lsn,
    },
    /// The log has not come as far.
    #[error("position {asked} is not reached yet: the log has {oldest} to {newest}")]
    NotReached {
        /// What was asked for.
        asked: Lsn,
        /// The first position that can be started from.
        oldest: Lsn,
        /// The log's end.
        newest: Lsn,
    },
    /// A publication does not exist at this place of the log.
    #[error("publication \"{name}\" does not exist")]
    UnknownPublication {
        /// Its name.
        name: String,
    },
    /// A relation's changes can't be sent as the publications ask.
    #[error(transparent)]
    Refused(Arc<Refusal>),
    /// A row filter fails for a row: as PostgreSQL says it.
    #[error(transparent)]
    RowFilter(row_filter::FilterError),
    /// A row filter has to be evaluated by the source, and can't be.
    #[error(transparent)]
    Evaluate(#[from] crate::filter::EvaluateError),
    /// The log can't be read.
    #[error("the log can't be read")]
    Log(#[source] LogError),
    /// A record of the catalog can't be understood.
    #[error("the log's catalog can't be read")]
    Catalog(#[from] CatalogError),
    /// A record of the log can't be understood.
    #[error("a record behind {position} can't be understood")]
    Unreadable {
        /// The position before the block that has it.
        position: Lsn,
        /// What is wrong with it.
        source: ReadError,
    },
    /// The log's records contradict each other.
    #[error("the log is inconsistent behind {position}: {what}")]
    Broken {
        /// The position before the block where it was found.
        position: Lsn,
        /// What does not fit.
        what: &'static str,
    },
    /// The process ends.
    #[error("the fanout is shutting down")]
    ShuttingDown,
}

impl From<LogError> for StreamError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::NotKept {
                asked,
                oldest,
                newest,
            } => Self::NotKept {
                asked,
                oldest,
                newest,
            },
            other => Self::Log(other),
        }
    }
}

impl From<SeekError> for StreamError {
    fn from(error: SeekError) -> Self {
        match error {
            SeekError::NotKept {
                asked,
                oldest,
                newest,
            } => Self::NotKept {
                asked,
                oldest,
                newest,
            },
            SeekError::Ahead { asked, newest } => Self::NotReached {
                asked,
                oldest: newest,
                newest,
            },
            SeekError::Read(error) => error.into(),
        }
    }
}

impl StreamError {
    /// Whether what is on the disk is wrong: somebody must look at it, and another attempt can't help.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Log(error) => error.is_damage(),
            Self::Catalog(_) | Self::Unreadable { .. } | Self::Broken { .. } => true,
            Self::NotKept { .. }
            | Self::NotReached { .. }
            | Self::UnknownPublication { .. }
            | Self::Refused(_)
            | Self::RowFilter(_)
            | Self::Evaluate(_)
            | Self::ShuttingDown => false,
        }
    }

    /// The SQLSTATE that PostgreSQL gives in this case.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::NotKept { .. } | Self::NotReached { .. } => "55000",
            Self::UnknownPublication { .. } => "42704",
            Self::Refused(refusal) => refusal.sqlstate(),
            Self::RowFilter(error) => &error.sqlstate,
            Self::Evaluate(error) => error.sqlstate(),
            Self::Log(error) if !error.is_damage() => "58030",
            Self::Log(_) | Self::Catalog(_) | Self::Unreadable { .. } | Self::Broken { .. } => {
                "XX001"
            }
            Self::ShuttingDown => "57P01",
        }
    }
}
