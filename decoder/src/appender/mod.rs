//! The thread that owns the log's writer, and the one that seals what it has finished.
//!
//! All blocking work on the log is here. Work comes in the order of the log; a sync covers everything that came while
//! the one before it ran. A full disk makes it wait and try again: nothing is confirmed meanwhile, and nothing is lost.
//! Any other failure ends the process, since after a failed write or sync nobody knows what is on the disk.

mod sealer;
mod thread;
mod work;

pub(crate) use sealer::Sealer;
pub(crate) use thread::{Appender, AppenderPorts};
pub(crate) use work::{Returned, StagedWork, Work};
