//! What a sink implements to be handed the changes.

use bytes::Bytes;
use pg_proto::pgoutput::StreamAbort;
use pg_proto::{Lsn, PgTimestamp, Xid};
use storage_format::block::{Block, Entry, FRAME_HEAD_LEN};
use storage_format::record::RecordKind;

use super::Frames;

/// A frame that is not in the block at hand as it is sent: a BEGIN or ORIGIN that had to wait over several blocks,
/// a RELATION or TYPE of the catalog, a TRUNCATE of which only some relations are published.
#[derive(Clone, Debug)]
pub struct Made {
    /// What it is.
    pub kind: RecordKind,
    /// The event's number in its transaction, if it is one.
    pub ordinal: u64,
    /// The whole CopyData frame.
    pub frame: Bytes,
}

impl Made {
    /// The message in the frame.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.frame.slice(FRAME_HEAD_LEN.min(self.frame.len())..)
    }
}

/// In what form an output keeps what it takes. Only outputs of one form can be given what another one took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// PostgreSQL's own frames, as [`Frames`] does.
    #[default]
    Frames,
    /// Batches of the gRPC service.
    Batches {
        /// Rows as PostgreSQL's messages.
        raw: bool,
        /// A batch's size.
        bytes: usize,
    },
}

/// What an output has taken, in its form, for others.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Ready to be sent.
    pub bytes: Bytes,
    /// The position behind the last transaction that it completes, if the form needs to know.
    pub end: Option<Lsn>,
}

/// Takes what one subscriber is sent, in order. [`Frames`] is the one that keeps wire bytes.
pub trait Output {
    /// All that the block has in its frames section.
    fn whole(&mut self, block: &Block);
    /// One record of the block; `ordinal` is the event's number in its transaction, if it is one.
    fn entry(&mut self, block: &Block, entry: &Entry, ordinal: u64);
    /// A frame of the emitter's own, between two records of the block.
    fn made(&mut self, block: &Block, made: Made);
    /// A row that was rewritten, as a whole frame; `ordinal` is the event's number in its transaction. The frame's memory
    /// is used again for the next one.
    fn rewritten(&mut self, block: &Block, kind: RecordKind, ordinal: u64, frame: &[u8]);
    /// What comes next was written by the same (sub)transaction as the record at `entry`. Told only where
    /// [`EmitOptions::streaming`](super::EmitOptions::streaming) is set.
    fn belongs(&mut self, _entry: &Entry) {}
    /// Nothing more comes of this block.
    fn end_block(&mut self, block: &Block);
    /// Whether a block that passes whole is made into something else, too, which is worth sharing.
    fn makes_its_own(&self) -> bool {
        false
    }
    /// Where the output stands, between two blocks, if others may be given what it takes of this one.
    fn mark(&mut self, _block: &Block) -> Option<usize> {
        None
    }
    /// What came since a mark, for [`Self::give`]; nothing if it is not all there.
    fn taken_since(&mut self, _mark: usize) -> Option<Vec<Piece>> {
        None
    }
    /// What another output has taken of the block.
    fn give(&mut self, _pieces: &[Piece]) {}
    /// What comes next, up to [`Self::leave_piece`], is a piece of a transaction that has not ended; `begun`: not the first
    /// one.
    fn enter_piece(&mut self, _top: Xid, _begun: bool) {}
    /// That was all of the piece.
    fn leave_piece(&mut self) {}
    /// A transaction of which pieces were sent is rolled back, or a subtransaction of it.
    fn stream_abort(&mut self, _abort: &StreamAbort, _send_time: PgTimestamp) {}
}

impl Output for Frames {
    fn whole(&mut self, block: &Block) {
        self.push(block.frames().clone());
    }

    fn entry(&mut self, block: &Block, entry: &Entry, _ordinal: u64) {
        let range = block.frame_range(entry);
        if self.run.end != range.start {
            self.end_block(block);
            self.run.start = range.start;
        }
        self.run.end = range.end;
    }

    fn made(&mut self, block: &Block, made: Made) {
        self.end_block(block);
        self.push(made.frame);
    }

    fn rewritten(&mut self, block: &Block, _kind: RecordKind, _ordinal: u64, frame: &[u8]) {
        if !self.run.is_empty() {
            self.end_block(block);
        }
        self.rewritten.extend_from_slice(frame);
    }

    fn end_block(&mut self, block: &Block) {
        if !self.rewritten.is_empty() {
            let rewritten = self.rewritten.split().freeze();
            self.push(rewritten);
        }
        let run = std::mem::take(&mut self.run);
        if !run.is_empty() {
            self.push(block.frames().slice(run));
        }
    }

    fn mark(&mut self, _block: &Block) -> Option<usize> {
        (self.run.is_empty() && self.rewritten.is_empty()).then(|| self.slices())
    }

    fn taken_since(&mut self, mark: usize) -> Option<Vec<Piece>> {
        let piece = |bytes| Piece { bytes, end: None };
        Some(self.slices_from(mark).into_iter().map(piece).collect())
    }

    fn give(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            self.push(piece.bytes.clone());
        }
    }
}
