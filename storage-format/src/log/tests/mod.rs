//! The reader against logs made by the writer.

mod catalog;
mod damage;
mod follow;
mod replay;
mod sealed;
mod support;
