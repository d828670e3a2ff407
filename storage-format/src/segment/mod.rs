//! Segments: the files of the log. See "Segment" in `FORMAT.md`.

mod footer;
mod header;
mod list;
mod name;
mod window;

pub use footer::{FOOTER_TRAILER_LEN, Footer};
pub use header::{SEGMENT_HEADER_LEN, SegmentHeader, SegmentHeaderError};
pub use list::{SegmentInfo, SegmentState, delete_segment, list_segments, read_identity};
pub use name::{SegmentExtension, SegmentName};
pub(crate) use window::{FileWindow, FoundBlock};
