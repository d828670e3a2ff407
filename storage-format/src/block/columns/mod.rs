//! Bodies as columns, which is how sealed blocks are stored. See "Columns" in `FORMAT.md`.
//!
//! Of the 46 bytes that a record has beside its message in memory (entry and head of the frame), nearly all follow from
//! the record before. What does not is stored by field, so that like comes to lie beside like: less to compress, and it
//! compresses better. Readers get the sections as they were, byte for byte.

mod pack;
mod unpack;
mod varint;

#[cfg(test)]
mod tests;

pub(crate) use pack::Packer;
pub(super) use unpack::{packed_len_max, unpack};

/// Columns behind messages and aux; the lengths of all of them are the end of the body.
const COLUMNS: usize = 7;
/// Bytes of those lengths.
const LENGTHS_LEN: usize = COLUMNS * 4;
