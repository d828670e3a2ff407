//! Whose log it is.

use std::path::Path;

use crate::error::FormatError;

/// Longest database or slot name, in bytes: PostgreSQL's `NAMEDATALEN` less its terminating zero.
pub const NAME_LEN_MAX: usize = 63;

/// What every segment header says about the origin of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The source cluster (`pg_control`'s system identifier).
    pub system_identifier: u64,
    /// Its timeline when the segment was begun.
    pub timeline: u32,
    /// The decoded database.
    pub database: String,
    /// The source slot.
    pub slot: String,
    /// Counts the writers that have opened this log directory; 1 for the first.
    pub writer_epoch: u64,
}

impl Identity {
    /// Fails unless `found`, read from `path`, is the same source, database and slot. Timeline and epoch may
    /// differ: they change during a log's life.
    pub fn check_same_log(&self, found: &Self, path: &Path) -> Result<(), FormatError> {
        let pairs = [
            (
                "system identifier",
                self.system_identifier.to_string(),
                found.system_identifier.to_string(),
            ),
            ("database", self.database.clone(), found.database.clone()),
            ("slot", self.slot.clone(), found.slot.clone()),
        ];
        for (field, expected, found) in pairs {
            if expected != found {
                return Err(FormatError::Identity {
                    path: path.to_owned(),
                    field,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}
