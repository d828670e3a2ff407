//! A subscriber's way through the log.

use pg_proto::Lsn;

use crate::emit::{EmitOptions, Output};
use crate::error::StreamError;
use crate::selection::SelectionSpec;

/// A position that the log has not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ahead {
    /// Is an error.
    #[default]
    Refuse,
    /// Is waited for, as a walsender does.
    Wait,
}

/// What a subscriber asked for.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// Which changes.
    pub selection: SelectionSpec,
    /// From where on, and what beside rows.
    pub emit: EmitOptions,
    /// Whether the start may lie ahead of the log's end.
    pub ahead: Ahead,
}

/// Opens streams over one log. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Replay {}

impl Replay {
    /// A stream from `options.emit.start` on.
    ///
    /// Fails if that position is not kept, or if a publication is, as of the log's head, one that can't be
    /// served exactly. Names that the head's catalog does not have are no error here:
    /// see [`Self::unknown_publications`].
    pub fn open(&self, options: StreamOptions) -> Result<Stream, StreamError> {
        let StreamOptions { emit, .. } = options;
        Err(StreamError::NotReached {
            asked: emit.start,
            oldest: self.oldest(),
            newest: self.head(),
        })
    }

    /// Those of the names that are no publication as of the log's head. When there are any, let the decoder look
    /// ([`crate::positions::Positions::refresh_catalog`]), wait until [`Self::reached`] that position, and ask again.
    pub fn unknown_publications(&self, names: &[String]) -> Result<Vec<String>, StreamError> {
        Ok(names.to_vec())
    }

    /// Returns when the log's head is at or behind `lsn`.
    pub async fn reached(&self, lsn: Lsn) -> Result<(), StreamError> {
        let _ = lsn;
        Ok(())
    }

    /// End of what is served: durable or written, as the configuration says.
    #[must_use]
    pub fn head(&self) -> Lsn {
        Lsn::INVALID
    }

    /// The first position that a stream can start from.
    #[must_use]
    pub fn oldest(&self) -> Lsn {
        Lsn::INVALID
    }
}

/// What [`Stream::advance`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It went one block further, or over a run of blocks in which nothing concerns this subscriber.
    Moved(Step),
    /// There is nothing further yet: wait with [`Stream::head_moved`].
    AtHead,
    /// The end that was asked for is reached; nothing more will come.
    End,
}

/// What was handed over in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Rows, truncates and messages.
    pub changes: u64,
    /// COMMITs.
    pub commits: u64,
    /// To be told to the subscriber; empty as a rule.
    pub warnings: Vec<Warning>,
}

/// Something that a subscriber should know and that does not end its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The publication does not exist here; PostgreSQL 18 says `skipped loading publication "x"`, SQLSTATE 55000.
    PublicationSkipped(String),
}

/// One subscriber's way through the log. See the [module](super) for how it is driven.
#[derive(Debug)]
pub struct Stream {
    position: Lsn,
}

impl Stream {
    /// Hands the next block's changes to `out`, if there is one. Never waits; works on one block at most.
    pub fn advance(&mut self, out: &mut impl Output) -> Result<Advance, StreamError> {
        let _ = out;
        Ok(Advance::AtHead)
    }

    /// Returns when there may be more than there was at the last [`Self::advance`]. Cancel safe.
    pub async fn head_moved(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    /// Every transaction whose commit is below this was handed over whole, as far as it concerns this
    /// subscriber. Never goes back.
    #[must_use]
    pub const fn position(&self) -> Lsn {
        self.position
    }

    /// The commit position of the transaction whose BEGIN was handed over and whose COMMIT was not.
    #[must_use]
    pub const fn open_transaction(&self) -> Option<Lsn> {
        None
    }
}
