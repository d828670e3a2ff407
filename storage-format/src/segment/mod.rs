//! Segments: the files of the log. See "Segment" in `FORMAT.md`.

mod footer;
mod header;
mod list;
mod name;
mod names;
mod window;

pub use footer::{FOOTER_TRAILER_LEN, Footer};
pub use header::{SEGMENT_HEADER_LEN, SegmentHeader, SegmentHeaderError};
pub use list::{SegmentInfo, SegmentState, delete_segment, list_segments, read_identity};
pub use name::{SegmentExtension, SegmentName};
pub use names::NAMES_FILE;
pub(crate) use names::{SegmentNames, add_name, write_names};
pub(crate) use window::{FileWindow, FoundBlock};
