//! The form on the wire of what a subscriber asked for in another form than the log has: streamed transactions in pieces,
//! values in binary.
//!
//! It stands between the emitter, which decides what is sent, and [`Frames`]. Who asked for neither does without it.

mod chunks;
mod frame;

use bytes::{Bytes, BytesMut};
use pg_proto::pgoutput::{Message, StreamAbort, encode};
use pg_proto::{Lsn, PgTimestamp, Xid};
use storage_format::block::{Block, Entry, FRAME_HEAD_LEN};
use storage_format::record::RecordKind;

use self::chunks::{Chunks, Place};
use self::frame::{Head, head_of, put_frame};
use super::binary::Binary;
use super::{Frames, Made, Output};

/// Such a subscriber's state.
#[derive(Debug, Default)]
pub struct WireForm {
    chunks: Option<Chunks>,
    binary: Option<Binary>,
    /// STREAM ABORT tells where and when (`streaming 'parallel'`).
    abort_positions: bool,
    /// Frames that were made and are not among the slices yet.
    made: BytesMut,
    /// A message in another form.
    scratch: Vec<u8>,
}

impl WireForm {
    /// `streaming`: streamed transactions in pieces; `binary`: values in binary. `None` if neither.
    #[must_use]
    pub fn new(streaming: bool, binary: bool) -> Option<Self> {
        (streaming || binary).then(|| Self {
            chunks: streaming.then(Chunks::default),
            binary: binary.then(Binary::default),
            ..Self::default()
        })
    }

    /// STREAM ABORT tells where and when, as with `streaming 'parallel'`.
    #[must_use]
    pub const fn with_abort_positions(mut self, abort_positions: bool) -> Self {
        self.abort_positions = abort_positions;
        self
    }

    /// Puts what comes into `frames`.
    pub fn onto<'a>(&'a mut self, frames: &'a mut Frames) -> Onto<'a> {
        Onto { form: self, frames }
    }
}

/// The form and where its frames go.
#[derive(Debug)]
pub struct Onto<'a> {
    form: &'a mut WireForm,
    frames: &'a mut Frames,
}

/// One message on its way.
#[derive(Clone, Copy)]
struct Passing<'a> {
    kind: RecordKind,
    head: Head,
    payload: &'a [u8],
}

impl Onto<'_> {
    /// Sends a message in its form; false if that is the one that it has.
    fn transform(&mut self, block: &Block, passing: &Passing<'_>) -> bool {
        let Passing {
            kind,
            head,
            payload,
        } = *passing;
        let WireForm {
            chunks,
            binary,
            made,
            scratch,
            ..
        } = &mut *self.form;
        scratch.clear();
        let converted = binary
            .as_mut()
            .is_some_and(|binary| binary.convert(kind, payload, scratch));
        let payload = if converted {
            scratch.as_slice()
        } else {
            payload
        };
        let place = match chunks {
            Some(chunks) => chunks.place(kind, payload),
            None => Place::Plain,
        };
        if matches!(place, Place::Plain) && !converted {
            return false;
        }
        if made.is_empty() {
            // What was to be sent before it.
            self.frames.end_block(block);
        }
        match (place, chunks) {
            (Place::Plain, _) | (_, None) => put_frame(made, head, &[payload]),
            (place, Some(chunks)) => chunks.put(place, head, payload, made),
        }
        true
    }

    fn push_made(&mut self) {
        if !self.form.made.is_empty() {
            let made: Bytes = self.form.made.split().freeze();
            self.frames.push(made);
        }
    }
}

impl Output for Onto<'_> {
    fn whole(&mut self, block: &Block) {
        if self.form.binary.is_none() {
            // No transaction in it was streamed: the emitter would not hand it on whole.
            self.frames.whole(block);
            return;
        }
        for entry in block.entries() {
            self.belongs(&entry);
            self.entry(block, &entry, 0);
        }
        self.end_block(block);
    }

    fn entry(&mut self, block: &Block, entry: &Entry, ordinal: u64) {
        let Some(kind) = entry.kind().filter(|kind| !kind.is_aux()) else {
            return;
        };
        let frame = block.frame(entry);
        let passing = Passing {
            kind,
            head: head_of(frame),
            payload: block.payload(entry),
        };
        if !self.transform(block, &passing) {
            self.push_made();
            self.frames.entry(block, entry, ordinal);
        }
    }

    fn made(&mut self, block: &Block, made: Made) {
        let payload = made.payload();
        let passing = Passing {
            kind: made.kind,
            head: head_of(&made.frame),
            payload: &payload,
        };
        if !self.transform(block, &passing) {
            self.push_made();
            self.frames.made(block, made);
        }
    }

    fn rewritten(&mut self, block: &Block, kind: RecordKind, ordinal: u64, frame: &[u8]) {
        let passing = Passing {
            kind,
            head: head_of(frame),
            payload: frame.get(FRAME_HEAD_LEN..).unwrap_or_default(),
        };
        if !self.transform(block, &passing) {
            self.push_made();
            self.frames.rewritten(block, kind, ordinal, frame);
        }
    }

    fn belongs(&mut self, entry: &Entry) {
        if let Some(chunks) = &mut self.form.chunks {
            chunks.belongs(Xid(entry.xid));
        }
    }

    fn end_block(&mut self, block: &Block) {
        if let Some(chunks) = &mut self.form.chunks {
            chunks.pause(&mut self.form.made);
        }
        self.push_made();
        self.frames.end_block(block);
    }

    fn enter_piece(&mut self, top: Xid, begun: bool) {
        if let Some(chunks) = &mut self.form.chunks {
            chunks.enter(top, begun);
        }
    }

    fn leave_piece(&mut self) {
        if let Some(chunks) = &mut self.form.chunks {
            chunks.leave();
        }
    }

    fn stream_abort(&mut self, abort: &StreamAbort, send_time: PgTimestamp) {
        let lsn = abort.abort.map_or(Lsn::INVALID, |(lsn, _)| lsn);
        let message = Message::StreamAbort(StreamAbort {
            abort: abort.abort.filter(|_| self.form.abort_positions),
            ..*abort
        });
        let mut payload = Vec::new();
        encode(&message, &mut payload);
        let head = Head::new(lsn, send_time);
        put_frame(&mut self.form.made, head, &[&payload]);
        self.push_made();
    }
}
