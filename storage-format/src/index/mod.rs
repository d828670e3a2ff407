//! The index of a sealed segment: where to begin reading for a position or a time. See "Index" in `FORMAT.md`.
//!
//! It has one entry per block and lies beside the segment as `.idx`. It is derived: whatever is wrong with it, it
//! is made again from the segment's block headers ([`rebuild`]), which takes no decompression. The same search
//! serves the active segment, of which a reader keeps a sparse index in memory.

mod builder;
mod entry;
mod file;
mod search;
#[cfg(test)]
mod tests;

pub use builder::IndexBuilder;
pub(crate) use entry::time_max_of;
pub use entry::{INDEX_ENTRY_LEN, IndexEntry};
pub(crate) use file::build;
pub use file::{INDEX_HEADER_LEN, Index, IndexError, rebuild};
pub(crate) use search::Entries;
