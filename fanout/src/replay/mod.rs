//! The log's head, and a subscriber's way through the log.
//!
//! # How a sink drives a [`Stream`]
//!
//! ```text
//! let mut stream = replay.open(StreamOptions { .. })?;
//! let mut frames = Frames::default();
//! loop {
//!     // Until there is enough for a write, or nothing more for now.
//!     while frames.remaining() < WRITE_BYTES {
//!         match stream.advance(&mut frames)? {          // at most one block, never waits
//!             Advance::Moved(step) => count(step),      // perhaps nothing passed: look again
//!             Advance::AtHead if frames.is_empty() => stream.head_moved().await?,
//!             Advance::AtHead | Advance::Asking => break,
//!             Advance::End => return,                   // EmitOptions::end is reached
//!         }
//!         tokio::task::consume_budget().await;          // let others have their turn
//!     }
//!     socket.write_all_buf(&mut frames).await?;         // a slow socket reads no further block
//!     // only now: everything below `stream.position()` has been sent
//! }
//! ```
//!
//! [`Stream::head_moved`] returns at once for what concerns the subscriber, and now and then so that its position moves on.
//! It may be dropped at any time, so it can stand in a `select!` beside the socket's reads and
//! the timers. [`Stream::position`] is what a keepalive may carry once `frames` is empty: every transaction whose
//! commit is below it has been handed over whole, and inside a transaction it is at or below that
//! transaction's commit. At shutdown a sink goes on until `AtHead` and then ends.
//!
//! # What a stream promises
//!
//! Every transaction that commits at or behind the start, and of which something passes the selection, is handed
//! over once, whole and in commit order, whatever block boundaries it crosses, and whatever is sealed, compressed or
//! deleted behind the reader meanwhile. What can't be handed over is an error, never a gap.

mod catalog;
mod doorbell;
mod early;
#[cfg(test)]
mod early_tests;
mod head;
mod keyed;
mod log;
mod staged;
mod stream;
#[cfg(test)]
mod tests;
mod waiters;

pub(crate) use head::HeadWatcher;
pub use log::{Ahead, Replay, StreamOptions};
pub use staged::EarlyCounts;
pub(crate) use staged::StagedFiles;
pub use stream::{Advance, Stream};

pub use waiters::{HeadTeller, HeadTold};
