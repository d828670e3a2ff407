//! The reasons, and their words.

use std::fmt;
use std::time::Duration;

use pg_proto::Lsn;

/// Why a segment may go or stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The last one.
    Active,
    /// Finished, and not sealed yet.
    Unsealed,
    /// Slots may be unknown.
    RegistryLost,
    /// A slot needs it.
    Needed {
        /// The slot that is farthest behind.
        slot: String,
        /// Where it is.
        restart_lsn: Lsn,
        /// Where the segment ends.
        end_lsn: Lsn,
        /// How many other slots need the segment.
        others: usize,
    },
    /// There is nothing that says when it may go.
    NoSlots,
    /// `keep_bytes` is not reached without it.
    KeepBytes {
        /// Bytes of the sealed segments behind it.
        newer: u64,
        /// The setting.
        keep: u64,
    },
    /// It is younger than `keep_seconds`.
    KeepAge {
        /// How old it is.
        age: Duration,
        /// The setting.
        keep: Duration,
    },
    /// One before it stays.
    EarlierStays {
        /// That one's sequence.
        sequence: u64,
    },
    /// Slots need it, and are too far behind for the limits.
    GivenUp {
        /// The slot that is farthest behind.
        slot: String,
        /// Where it is.
        restart_lsn: Lsn,
        /// How many other slots need the segment.
        others: usize,
    },
    /// Nothing holds it.
    Unneeded {
        /// How many slots are past it.
        slots: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active => f.write_str("it is being written"),
            Self::Unsealed => f.write_str("it is finished and waits to be sealed"),
            Self::RegistryLost => f.write_str(
                "the registry of slots is new although the log is not, so slots that need it may be unknown; decctl gc \
                 without --dry-run goes on without them",
            ),
            Self::Needed { slot, restart_lsn, end_lsn, others } => {
                write!(f, "slot \"{slot}\" needs it: it is at {restart_lsn}, the segment ends at {end_lsn}")?;
                more_slots(f, *others)
            }
            Self::NoSlots => f.write_str(
                "there are no slots, and neither retention.keep_bytes nor retention.keep_seconds is set",
            ),
            Self::KeepBytes { newer, keep } => {
                write!(f, "the sealed segments behind it have {newer} bytes, retention.keep_bytes is {keep}")
            }
            Self::KeepAge { age, keep } => {
                let (age, keep) = (age.as_secs(), keep.as_secs());
                write!(f, "it is {age} s old, retention.keep_seconds is {keep}")
            }
            Self::EarlierStays { sequence } => {
                write!(f, "segment {sequence} before it stays, and the log has no holes")
            }
            Self::GivenUp { slot, restart_lsn, others } => {
                write!(
                    f,
                    "retention.slot_keep_bytes_max or slot_keep_seconds_max is exceeded: this invalidates slot \"{slot}\", \
                     which is at {restart_lsn}"
                )?;
                more_slots(f, *others)
            }
            Self::Unneeded { slots: 0 } => f.write_str("there are no slots, and the limits are exceeded"),
            Self::Unneeded { slots: 1 } => f.write_str("the one slot is past it"),
            Self::Unneeded { slots } => write!(f, "all {slots} slots are past it"),
        }
    }
}

fn more_slots(f: &mut fmt::Formatter<'_>, others: usize) -> fmt::Result {
    match others {
        0 => Ok(()),
        1 => f.write_str("; 1 more slot needs it"),
        _ => write!(f, "; {others} more slots need it"),
    }
}
