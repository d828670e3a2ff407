//! What of the log may go.
//!
//! # Rules
//!
//! A segment is deleted only if all of this holds; the first that does not is the reason it stays.
//!
//! 1. It is sealed. What is being written, or waits to be sealed, stays.
//! 2. The registry of slots is the one that belongs to the log: if it was lost, slots that are not known may need
//!    the segment, and an operator has to say that they do not.
//! 3. Every slot's restart LSN is at or past its end. Where there are no slots at all, a limit must be set.
//! 4. `retention.keep_bytes` and `retention.keep_seconds` are exceeded.
//! 5. All segments before it go too: the log has no holes.
//!
//! The decision ([`decide`]) knows no files and no clock; [`Retention`] finds out the facts, deletes, and is asked
//! by the control service. Deleting is unlinking: who reads a segment keeps it.

mod clock;
mod collector;
mod decide;
mod facts;
mod reason;

pub use collector::{Collected, Retention, RetentionError, Usage};
pub use decide::{Needs, Policy, SegmentFacts, Verdict, decide};
pub use reason::Reason;
