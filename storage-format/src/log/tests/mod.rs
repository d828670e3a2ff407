//! The reader against logs made by the writer.

mod catalog;
mod damage;
mod follow;
mod large;
mod lost_tail;
mod names;
mod replay;
mod sealed;
mod support;
