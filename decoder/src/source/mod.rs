//! The connection to the source: the one replication slot, its stream, and the answers to it.

mod backoff;
mod checks;
mod command;
mod connect;
mod error;
mod feedback;
mod gather;
mod options;
mod session;
mod task;
mod witness;

pub(crate) use checks::{LogEnd, check_configuration};
pub use error::{Severity, SourceError};
#[cfg(feature = "simulation")]
pub(crate) use feedback::status;
pub use options::{Addresses, connect_options};
pub(crate) use task::{SourceTask, wait_for_source};
