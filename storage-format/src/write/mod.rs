//! The writer of a log: one per log directory, one thread.
//!
//! # Files
//!
//! Blocks go to the end of the active segment, a file that was preallocated, so that readers may map it and a full
//! disk is noticed before anything is written. When it is full it ends with a segment-end block and the next one
//! begins; that happens between two transactions only, so a large transaction makes its segment longer.
//!
//! # States
//!
//! `complete` is the end of the last whole transaction: what readers are told, and where
//! [`LogWriter::abandon_open_transaction`] goes back to. What lies behind it is overwritten; readers have never
//! seen it. Blocks are chained by their headers' checksums, so remains of it are never taken for a continuation.
//!
//! # Failures
//!
//! A full disk leaves the log as it was. Any other failed write or fsync poisons the writer: what is in the files
//! is unknown then, and only a new writer's recovery finds it out. The names of the segments are derived and never needed: what
//! fails there is nobody's failure.

mod active;
mod create;
mod history;
mod leftovers;
mod log_writer;
mod open;
mod options;
mod recover;
mod rollover;
mod snapshot;
mod staged;
mod state;

pub(crate) use active::Tip;
pub(crate) use leftovers::{leftovers, remove_leftovers};
pub use log_writer::LogWriter;
pub(crate) use open::lock_existing;
pub use options::{Cut, CutReason, Recovery, WriterOptions};
pub(crate) use recover::{durable_behind, is_blank};
pub(crate) use snapshot::encode_snapshot;
pub(crate) use state::LogState;
