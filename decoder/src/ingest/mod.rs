//! From the source's stream to blocks: a thread of its own between the source task, which reads the socket, and the
//! appender, which writes files.
//!
//! It is a thread and not a task because staging large transactions writes files too, and because a busy stream would
//! keep a worker of the runtime from everything else. What is on its way to it is bounded in bytes: when the disk is
//! slow, the source task waits, then the socket's buffers fill, then the source itself waits.

mod assembler;
mod error;
mod frames;
mod log_sink;
mod pipeline;
mod record;
mod sink;
mod staging;
#[cfg(test)]
mod tests;
mod thread;
mod undecided;

pub use error::StreamError;
pub(crate) use frames::{Glance, glance};
pub(crate) use log_sink::AppenderPort;
pub(crate) use pipeline::{Pipeline, Session, Stopped};
pub(crate) use staging::StagingArea;
pub(crate) use thread::{Ingest, IngestSettings, Input};

use storage_format::FormatError;
use storage_format::block::BuildError;
use storage_format::log::SeekError;

use crate::mailbox::Gone;

/// Why the ingest thread ends.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The stream can't be understood.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A batch is not made of whole frames.
    #[error("the source sent something that is no replication message")]
    Frame(#[from] pg_proto::ReadError),
    /// A record does not fit where the stream puts it.
    #[error("a record of the source can't be stored")]
    Build(#[from] BuildError),
    /// Files of staged transactions.
    #[error("cannot stage an in-progress transaction")]
    Staging(#[from] FormatError),
    /// The log could not be searched for the ends of prepared transactions.
    #[error("cannot find out which prepared transactions are undecided")]
    Undecided(#[from] SeekError),
    /// The appender has ended, and says itself why.
    #[error("the log's writer has stopped")]
    Stopped,
}

impl From<Gone> for IngestError {
    fn from(_: Gone) -> Self {
        Self::Stopped
    }
}
