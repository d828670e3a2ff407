//! From bytes to messages.

use super::message::Message;
use crate::read::ReadError;

/// Whether a message stands between STREAM START and STREAM STOP, and so carries a transaction id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Outside, and always with protocol 1.
    Plain,
    /// Inside.
    Streamed,
}

/// Decodes one message, which must fill `payload` exactly.
pub fn decode(payload: &[u8], framing: Framing) -> Result<Message<'_>, ReadError> {
    let _ = framing;
    Err(ReadError::Truncated {
        at: 0,
        field: "message",
        need: 1,
        left: payload.len(),
    })
}
