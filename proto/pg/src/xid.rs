//! Transaction identifiers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A 32-bit transaction identifier of the source. It wraps around, so it names a transaction only together
/// with a position.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Xid(pub u32);

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
