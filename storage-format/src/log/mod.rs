//! Reading a log: from any kept position on, up to what the decoder has published.
//!
//! # Use
//!
//! A process opens a [`Log`] once and makes a [`Cursor`] per reader; cursors share open files, decoded blocks and
//! catalog versions. Nothing here waits: at the head a cursor answers `None`, and is asked again later.
//!
//! ```no_run
//! use storage_format::log::{Log, ReadOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let log = Log::open("decant-log".as_ref(), ReadOptions::default())?;
//! let mut cursor = log.cursor_at("16/B374D848".parse()?)?;
//! while let Some(block) = cursor.next()? {
//!     println!("{} records up to {}", block.entries().len(), cursor.position());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What a cursor returns
//!
//! Blocks of whole transactions, in commit order, each once. The first block may begin with transactions that end at
//! or before the position that was asked for: those with a commit LSN below [`Cursor::start`] are to be
//! skipped. A transaction may span blocks; all of them are there when the first one is returned.
//!
//! # Sealing and deletion
//!
//! A cursor keeps the file that it is reading, also when it was sealed and removed meanwhile. What retention
//! has deleted in front of it is an error that names the range that is left.

mod catalogs;
mod cursor;
mod error;
mod options;
mod places;
mod reader;
mod records;
mod seek;
mod segment;
mod sparse;

#[cfg(test)]
mod tests;

pub use cursor::{Cursor, Spot, Step};
pub use error::{ReadError, SeekError};
pub use options::{Head, Kept, ReadOptions, Serve};
pub use reader::Log;
pub use records::{Record, TransactionIter};
