//! The files of Decant's log: formats, writer and reader. The bytes are specified in `FORMAT.md`.
//!
//! ```text
//! decoder ──► BlockBuilder ──► LogWriter ──► <log>/segments/*.active ──► Sealer ──► *.seg + *.idx
//!                Staging ──────────┘ └─────► <log>/watermark                          │
//! fanout  ◄── Block ◄── Cursor ◄── Log ◄──────── memory maps ◄────────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - Transactions are in commit order, whole, and once each; a segment begins and ends between two of them.
//! - `durable <= written`; a reader never goes past what the watermark says.
//! - What was written whole and made durable is never written again; a mapped file is never shortened.
//! - A failed write or fsync stops the writer for good: what the page cache holds then is unknown.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

pub mod block;
mod cache;
pub mod catalog;
mod checksum;
mod codec;
mod error;
pub mod fs;
mod identity;
pub mod index;
pub mod log;
mod mmap;
pub mod record;
pub mod seal;
pub mod segment;
pub mod staging;
mod version;
pub mod watermark;
pub mod write;

pub use error::{Damage, FormatError};
pub use identity::{Identity, NAME_LEN_MAX};
pub use seal::{SealOptions, SealedSegment, seal_segment};
pub use segment::{SegmentInfo, SegmentName, SegmentState, delete_segment, list_segments};
pub use staging::{StagedTransaction, Staging};
pub use version::FORMAT_VERSION;
pub use write::{LogWriter, Recovery, WriterOptions};
