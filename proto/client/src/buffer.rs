//! The bytes that arrived and have not been used: frames are borrowed from here.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use pg_proto::wire::{FRAME_HEAD_LEN, Frame, FrameError, MAX_FRAME_BODY, Split, split_frame};
use tokio::io::{AsyncRead, AsyncReadExt};

/// A buffer that grew for a large message is let go once it is empty.
const KEEP_CAPACITY: usize = 4 << 20;

/// Reads are made no smaller than this part of the usual size, even if that means moving what is left over.
const LEAST_PART: usize = 8;

/// A buffer of frames.
///
/// In steady state nothing is allocated: a frame is a slice of the buffer, and what is left over of one read
/// is moved to the front before the next. A frame longer than the buffer makes it grow as its bytes arrive, at
/// most twofold at a time, whatever length it claims.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    bytes: BytesMut,
    /// Where the first unused byte is.
    start: usize,
    /// The usual size of a read.
    chunk: usize,
}

impl FrameBuffer {
    pub(crate) fn new(chunk: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            start: 0,
            chunk,
        }
    }

    /// Makes reads of another size from now on.
    pub(crate) fn set_chunk(&mut self, chunk: usize) {
        self.chunk = chunk;
    }

    /// What has not been used.
    pub(crate) fn unused(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Whether a whole frame is there, or an error to be reported.
    pub(crate) fn has_frame(&self) -> bool {
        !matches!(
            split_frame(self.unused(), MAX_FRAME_BODY),
            Ok(Split::Partial { .. })
        )
    }

    /// The length of the first frame if it is whole, or else the number of bytes that must be there first.
    pub(crate) fn first(&self) -> Result<Result<usize, usize>, FrameError> {
        Ok(match split_frame(self.unused(), MAX_FRAME_BODY)? {
            Split::Whole { len, .. } => Ok(len),
            Split::Partial { need } => Err(need),
        })
    }

    /// The length of the whole frames of type `tag` that are first in the buffer, one behind the other.
    pub(crate) fn run_of(&self, tag: u8) -> Result<usize, FrameError> {
        let mut rest = self.unused();
        while rest.first() == Some(&tag)
            && let Split::Whole { len, .. } = split_frame(rest, MAX_FRAME_BODY)?
        {
            rest = rest.get(len..).unwrap_or_default();
        }
        Ok(self.unused().len() - rest.len())
    }

    /// Uses the first `len` bytes, which [`Self::first`] said to be a frame.
    pub(crate) fn take(&mut self, len: usize) -> Frame<'_> {
        let begin = self.start;
        self.start = (begin + len).min(self.bytes.len());
        let whole = self.bytes.get(begin..self.start).unwrap_or_default();
        let (head, body) = whole.split_at_checked(FRAME_HEAD_LEN).unwrap_or_default();
        Frame {
            tag: head.first().copied().unwrap_or_default(),
            body,
        }
    }

    /// The same as owned bytes, with the frame's head.
    pub(crate) fn take_owned(&mut self, len: usize) -> Bytes {
        self.forget_used();
        self.bytes.split_to(len.min(self.bytes.len())).freeze()
    }

    fn forget_used(&mut self) {
        self.bytes.advance(self.start);
        self.start = 0;
    }

    /// Reads once, at least a byte unless the stream has ended; `need` is what must be there in the end.
    /// Cancel safe.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        need: usize,
    ) -> io::Result<usize> {
        self.forget_used();
        if self.bytes.is_empty() && self.bytes.capacity() > KEEP_CAPACITY.max(self.chunk) {
            self.bytes = BytesMut::new();
        }
        let have = self.bytes.len();
        let missing = need.saturating_sub(have).min(self.chunk.max(have));
        let spare = self.bytes.capacity() - have;
        if spare < missing.max(self.chunk / LEAST_PART) {
            self.bytes.reserve(missing.max(self.chunk));
        }
        reader.read_buf(&mut self.bytes).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_proto::wire::put_frame;

    async fn next(buffer: &mut FrameBuffer, mut from: &[u8]) -> Option<(u8, usize)> {
        loop {
            match buffer.first().unwrap() {
                Ok(len) => {
                    let frame = buffer.take(len);
                    return Some((frame.tag, frame.body.len()));
                }
                Err(need) => {
                    if buffer.fill(&mut from, need).await.unwrap() == 0 {
                        return None;
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn a_claimed_length_costs_nothing() {
        let mut buffer = FrameBuffer::new(1024);
        let head = b"d\x3F\xFF\xFF\xFFab";
        assert_eq!(next(&mut buffer, head).await, None);
        assert!(
            buffer.bytes.capacity() < 8192,
            "{}",
            buffer.bytes.capacity()
        );
    }

    #[tokio::test]
    async fn frames_larger_than_the_buffer_come_whole() {
        let mut stream = Vec::new();
        let sizes = [0, 10, 5000, 3, 100_000, 1, 1023, 1024, 1025];
        for size in sizes {
            put_frame(b'd', &mut stream, |out| out.resize(out.len() + size, 7));
        }
        let mut buffer = FrameBuffer::new(1024);
        let mut from = &stream[..];
        for size in sizes {
            let frame = loop {
                match buffer.first().unwrap() {
                    Ok(len) => break buffer.take(len),
                    Err(need) => assert!(buffer.fill(&mut from, need).await.unwrap() > 0),
                }
            };
            assert_eq!((frame.tag, frame.body.len()), (b'd', size));
        }
        assert!(buffer.unused().is_empty());
    }

    #[tokio::test]
    async fn a_run_ends_at_another_type_and_at_a_part() {
        let mut stream = Vec::new();
        for (tag, size) in [(b'd', 3), (b'd', 0), (b'N', 2), (b'd', 1)] {
            put_frame(tag, &mut stream, |out| out.resize(out.len() + size, 7));
        }
        stream.pop();
        let mut buffer = FrameBuffer::new(1024);
        assert_eq!(buffer.run_of(b'd').unwrap(), 0);
        buffer.fill(&mut &stream[..], 1).await.unwrap();
        assert_eq!(buffer.run_of(b'd').unwrap(), 13);
        buffer.take_owned(13);
        assert_eq!(buffer.run_of(b'd').unwrap(), 0);
        buffer.take_owned(7);
        assert_eq!(buffer.run_of(b'd').unwrap(), 0);
    }

    #[tokio::test]
    async fn memory_stays_the_same_in_steady_state() {
        let mut stream = Vec::new();
        for _ in 0..10_000 {
            put_frame(b'd', &mut stream, |out| out.resize(out.len() + 97, 7));
        }
        let mut buffer = FrameBuffer::new(4096);
        let mut from = &stream[..];
        let mut capacity = 0;
        for count in 0..10_000 {
            loop {
                match buffer.first().unwrap() {
                    Ok(len) => {
                        buffer.take(len);
                        break;
                    }
                    Err(need) => assert!(buffer.fill(&mut from, need).await.unwrap() > 0),
                }
            }
            if count == 100 {
                capacity = buffer.bytes.capacity() + buffer.start;
            }
        }
        assert!(buffer.bytes.capacity() <= capacity.max(2 * 4096));
    }
}
