//! The files of Decant's log: formats, writer and reader.

pub mod catalog;
mod mmap;
pub mod record;
pub mod watermark;
