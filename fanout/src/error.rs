//! What can end a subscriber's stream, and what keeps the process from starting.

use pg_proto::Lsn;

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
}

impl StreamError {
    /// The SQLSTATE that PostgreSQL gives in this case.
    #[must_use]
    pub const fn sqlstate(&self) -> &'static str {
        match self {
            Self::NotKept { .. } | Self::NotReached { .. } => "55000",
            Self::UnknownPublication { .. } => "42704",
        }
    }
}
