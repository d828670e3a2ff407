//! The log's head, and a subscriber's way through the log.
//!
//! # How a sink drives a [`Stream`]
//!
//! ```text
//! let mut stream = replay.open(StreamOptions { .. })?;
//! let mut frames = Frames::default();
//! loop {
//!     while frames.is_empty() {
//!         match stream.advance(&mut frames)? {          // at most one block, never waits
//!             Advance::Moved(step) => count(step),      // perhaps nothing passed: look again
//!             Advance::AtHead => stream.head_moved().await?,
//!             Advance::End => return,                   // EmitOptions::end is reached
//!         }
//!     }
//!     socket.write_all_buf(&mut frames).await?;         // a slow socket reads no further block
//!     // only now: everything below `stream.position()` has been sent
//! }
//! ```
//!
//! [`Stream::head_moved`] may be dropped at any time, so it can stand in a `select!` beside the socket's reads and
//! the timers. [`Stream::position`] is what a keepalive may carry once `frames` is empty: every transaction whose
//! commit is below it has been handed over whole, and inside a transaction it is at or below that
//! transaction's commit. At shutdown a sink goes on until `AtHead` and then ends.

mod stream;

pub use stream::{Advance, Ahead, Replay, Step, Stream, StreamOptions, Warning};
