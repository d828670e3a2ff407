//! Where each segment begins, in one small file: see "Names" in `FORMAT.md`.
//!
//! It is derived from the names of the segments' files, and saves readers listing tens of thousands of them. Nothing
//! depends on it: a reader takes a name from it only if a file of that name is there, and lists the folder if it finds
//! none, or none that it can use. The writer makes it anew when it starts, so that it need not be durable.

mod layout;
mod read;
mod write;

pub(crate) use read::SegmentNames;
pub(crate) use write::{add_name, pass_deleted, write_names};

/// The file's name in the log directory.
pub const NAMES_FILE: &str = "names";
