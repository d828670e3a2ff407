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
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use pg_proto::pgoutput::{Begin, Commit, Message, encode};
//! use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
//! use storage_format::block::BlockBuilder;
//! use storage_format::fs::RealFs;
//! use storage_format::log::{Log, ReadOptions};
//! use storage_format::record::RecordKind;
//! use storage_format::{Identity, LogWriter, WriterOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let directory = folder.path();
//! let identity = Identity {
//!     system_identifier: 7_300_000_000_000_000_001,
//!     timeline: 1,
//!     database: "shop".to_owned(),
//!     slot: "decant".to_owned(),
//!     writer_epoch: 0,
//! };
//! let options = WriterOptions {
//!     segment_bytes: WriterOptions::DEFAULT_SEGMENT_BYTES,
//!     start_lsn: Lsn(0x1000),
//! };
//! let (mut writer, recovery) = LogWriter::open(directory, options, identity, Arc::new(RealFs))?;
//! assert_eq!(recovery.end_lsn, Lsn(0x1000));
//!
//! let time = PgTimestamp(800_000_000_000_000);
//! let begin = Begin { final_lsn: Lsn(0x2000), commit_time: time, xid: Xid(741) };
//! let commit = Commit { commit_lsn: Lsn(0x2000), end_lsn: Lsn(0x2030), commit_time: time };
//! let mut payload = Vec::new();
//! encode(&Message::Begin(begin), &mut payload);
//! let mut builder = BlockBuilder::new();
//! builder.push_begin(&begin, Lsn(0x1F00), time, &payload)?;
//! builder.push_change(RecordKind::Insert, Oid(16384), Lsn(0x1F00), b"I...")?;
//! payload.clear();
//! encode(&Message::Commit(commit), &mut payload);
//! builder.push_commit(&commit, Lsn(0x2030), &payload)?;
//! writer.append(&mut builder)?;
//! assert_eq!(writer.sync()?, Lsn(0x2030));
//!
//! let log = Log::open(directory, ReadOptions::default())?;
//! let mut cursor = log.cursor_at(Lsn(0x1000))?;
//! let block = cursor.next()?.ok_or("nothing there")?;
//! assert_eq!(block.header().event_count, 1);
//! # Ok(())
//! # }
//! ```

#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

pub mod block;
mod cache;
pub mod catalog;
mod checksum;
mod codec;
mod error;
pub mod failpoint;
pub mod faults;
pub mod fs;
mod identity;
pub mod index;
pub mod log;
mod mmap;
pub mod record;
pub mod seal;
pub mod segment;
pub mod staging;
pub mod verify;
mod version;
pub mod watermark;
pub mod write;

pub use error::{Damage, FormatError};
pub use identity::{Identity, NAME_LEN_MAX};
pub use seal::{SealOptions, SealedSegment, seal_segment};
pub use segment::{SegmentInfo, SegmentName, SegmentState, delete_segment, list_segments};
pub use staging::{PreparedStore, PreparedTransaction, StagedTransaction, Staging};
pub use version::FORMAT_VERSION;
pub use write::{LogWriter, Recovery, WriterOptions};
