//! Wire bytes on their way to one socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

/// Wire bytes on their way to one socket: slices of the log, and frames of the sink's own between them.
///
/// As a [`Buf`] it is written with `AsyncWriteExt::write_buf`, which takes many slices in one system call.
/// A sink adds no block before the last one is written, so no more than one block waits here.
#[derive(Debug, Default)]
pub struct Frames {
    slices: VecDeque<Bytes>,
    bytes: usize,
    /// Neighbouring records of the block at hand that have not become a slice yet.
    pub(super) run: Range<usize>,
    /// Rewritten rows of the block at hand that have not become a slice yet. Its memory is used again when what was
    /// split off it has been written.
    pub(super) rewritten: BytesMut,
}

impl Frames {
    /// Appends one or more whole frames.
    pub fn push(&mut self, frames: Bytes) {
        if frames.is_empty() {
            return;
        }
        self.bytes += frames.len();
        self.slices.push_back(frames);
    }

    /// Whether all was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How many slices wait.
    pub(super) fn slices(&self) -> usize {
        self.slices.len()
    }

    /// Those from a place on, of which nothing was written yet.
    pub(super) fn slices_from(&self, place: usize) -> Vec<Bytes> {
        self.slices.iter().skip(place).cloned().collect()
    }

    /// Drops what was not written.
    pub fn clear(&mut self) {
        self.slices.clear();
        self.bytes = 0;
    }
}

impl Buf for Frames {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.slices.front().map_or(&[], |slice| slice)
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (place, slice) in out.iter_mut().zip(&self.slices) {
            *place = IoSlice::new(slice);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "advanced past the end");
        self.bytes -= count;
        while let Some(front) = self.slices.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.slices.pop_front();
        }
    }
}
