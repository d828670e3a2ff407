//! From a block of the log to what one subscriber is sent: the core that all sinks share.
//!
//! What holds for every sink:
//! - transactions come in commit order, each once, and only those whose commit record starts at or after the
//!   subscriber's start;
//! - a transaction of which nothing passes the selection is not sent at all: its BEGIN waits until the first
//!   change that passes, also over many blocks;
//! - RELATION, with the TYPEs of its columns before it, is sent before the first change that needs it on this
//!   connection, and again when its content has changed; it is the version in force at that change;
//! - a block that passes whole is handed on as one slice of the log, with the same bytes as if each of its
//!   changes had been looked at.

mod announced;
mod binary;
mod definition;
mod early;
mod emitter;
mod family;
mod frames;
mod interest;
mod output;
mod plan;
mod prepared;
mod rewrite;
mod sharing;
mod suspend;
#[cfg(test)]
mod tests;
mod transaction;
mod truncate;
mod versions;
mod walk;
mod whole;
mod wire;
mod wire_form;

pub(crate) use emitter::{Emitter, Outcome};
pub use emitter::{Step, Warning};
pub(crate) use family::Families;
pub use frames::Frames;
pub(crate) use interest::Interest;
pub use output::{Form, Made, Output, Piece};
pub use wire_form::{Onto, WireForm};

use pg_proto::Lsn;

/// What a subscriber asked for, beside the selection of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmitOptions {
    /// Transactions whose commit record starts below this are not sent. It must be kept: 0/0 never is.
    pub start: Lsn,
    /// Nothing is sent of transactions whose commit record starts at or after this.
    pub end: Option<Lsn>,
    /// Whether logical messages are sent.
    pub messages: bool,
    /// Whether transactions that came from another origin are left out (`origin 'none'`).
    pub local_origin_only: bool,
    /// What a publication means that does not exist at a change's place in the log.
    pub missing_publication: MissingPublication,
    /// Whether BEGIN is sent with the position of the first change that is sent, as servers from version 15 on do;
    /// older ones give the position of the transaction's first record.
    pub begin_with_first_change: bool,
    /// Whether transactions that the source streamed are handed over as such: at once, also if nothing of them
    /// passes, and with the relations described anew in each.
    pub streaming: bool,
    /// Transactions that are prepared at or after this are handed over at their PREPARE; the others with their
    /// COMMIT PREPARED. Without it all come as ordinary ones when they commit.
    pub two_phase_at: Option<Lsn>,
    /// Whether a RELATION that the source repeated without a change is repeated here.
    pub repeat_relations: bool,
}

impl Default for EmitOptions {
    fn default() -> Self {
        Self {
            start: Lsn::INVALID,
            end: None,
            messages: false,
            local_origin_only: false,
            missing_publication: MissingPublication::Skip,
            begin_with_first_change: false,
            streaming: false,
            two_phase_at: None,
            repeat_relations: false,
        }
    }
}

/// What a publication means that does not exist at a change's place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPublication {
    /// The stream ends with an error at that change, as servers up to version 17 do.
    Fail,
    /// It publishes nothing, and the subscriber is warned once, as version 18 does.
    Skip,
}
