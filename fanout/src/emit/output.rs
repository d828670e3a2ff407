//! What a sink implements to be handed the changes.

use bytes::Bytes;

use super::Frames;

/// A frame that is not in the block at hand: a BEGIN that had to wait over several blocks, a RELATION or TYPE
/// of the catalog, a TRUNCATE of which only some relations are published.
#[derive(Clone, Debug)]
pub struct Made {
    /// The whole CopyData frame.
    pub frame: Bytes,
}

/// Takes what one subscriber is sent, in order. [`Frames`] is the one that keeps wire bytes.
pub trait Output {
    /// A frame that is not in the block at hand.
    fn made(&mut self, made: Made);
}

impl Output for Frames {
    fn made(&mut self, made: Made) {
        self.push(made.frame);
    }
}
