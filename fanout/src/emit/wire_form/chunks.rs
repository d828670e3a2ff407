//! Transactions that the source streamed, in pieces: STREAM START, messages with the id of their (sub)transaction, STREAM
//! STOP, and STREAM COMMIT or STREAM PREPARE at the end.
//!
//! A piece is what one block gives. Nothing else comes between the pieces of a transaction that is sent when it has
//! committed; what was rolled back of it is not in the log, so that there is no STREAM ABORT. Pieces of one that is sent
//! before its end come between others, whole transactions and pieces; each is entered and left.

use bytes::BytesMut;
use pg_proto::Xid;
use pg_proto::pgoutput::{Framing, Message, StreamCommit, StreamStart, decode, encode, tag};
use storage_format::record::RecordKind;

use super::frame::{Head, put_frame};

/// Where the stream of one subscriber is.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// The (sub)transaction that wrote what comes next; 0: it was not streamed.
    writer: Xid,
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Outside streamed transactions.
    #[default]
    Outside,
    /// Inside one, between two pieces.
    Between { top: Xid, first: bool },
    /// Inside a piece.
    Inside { top: Xid, head: Head },
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// It is sent as it is.
    Plain,
    /// A streamed transaction begins.
    Begin(Xid),
    /// It is a part of one.
    Part,
    /// It ends.
    End,
}

impl Chunks {
    /// What comes next was written by this (sub)transaction.
    pub(super) const fn belongs(&mut self, writer: Xid) {
        self.writer = writer;
    }

    pub(super) fn place(&self, kind: RecordKind, payload: &[u8]) -> Place {
        match (kind, self.state) {
            (RecordKind::Begin | RecordKind::BeginPrepare, _) if self.writer.0 != 0 => {
                top_of(payload).map_or(Place::Plain, Place::Begin)
            }
            (_, State::Outside) => Place::Plain,
            (RecordKind::Commit | RecordKind::Prepare, _) => Place::End,
            _ => Place::Part,
        }
    }

    /// Appends the frames of a message that is not [`Place::Plain`].
    pub(super) fn put(&mut self, place: Place, head: Head, payload: &[u8], out: &mut BytesMut) {
        match place {
            Place::Plain => put_frame(out, head, &[payload]),
            Place::Begin(top) => {
                self.state = State::Between { top, first: true };
                self.start(head, out);
            }
            Place::Part => {
                self.start(head, out);
                self.part(head, payload, out);
            }
            Place::End => self.end(head, payload, out),
        }
    }

    /// A piece of a transaction that has not ended follows; `begun`: not its first one.
    pub(super) const fn enter(&mut self, top: Xid, begun: bool) {
        self.state = if begun {
            State::Between { top, first: false }
        } else {
            State::Outside
        };
    }

    /// It was all; it is paused already.
    pub(super) const fn leave(&mut self) {
        self.state = State::Outside;
    }

    /// Ends the piece at hand, if there is one.
    pub(super) fn pause(&mut self, out: &mut BytesMut) {
        if let State::Inside { top, head } = self.state {
            put_frame(out, head, &[&[tag::STREAM_STOP]]);
            self.state = State::Between { top, first: false };
        }
    }

    /// Begins a piece, if none is at hand.
    fn start(&mut self, head: Head, out: &mut BytesMut) {
        if let State::Between { top, first } = self.state {
            let mut payload = Vec::new();
            let start = StreamStart {
                xid: top,
                first_segment: first,
            };
            encode(&Message::StreamStart(start), &mut payload);
            put_frame(out, head, &[&payload]);
            self.state = State::Inside { top, head };
        }
    }

    fn part(&mut self, head: Head, payload: &[u8], out: &mut BytesMut) {
        let State::Inside { top, .. } = self.state else {
            return;
        };
        match payload.split_first() {
            // The only one without a transaction id.
            Some((&tag::ORIGIN, _)) | None => put_frame(out, head, &[payload]),
            Some((kind, rest)) => {
                // Of a message the transaction itself, whichever subtransaction wrote it.
                let writer = if *kind == tag::MESSAGE {
                    top
                } else {
                    self.writer
                };
                put_frame(out, head, &[&[*kind], &writer.0.to_be_bytes(), rest]);
            }
        }
        self.state = State::Inside { top, head };
    }

    fn end(&mut self, head: Head, payload: &[u8], out: &mut BytesMut) {
        let (State::Inside { top, .. } | State::Between { top, .. }) = self.state else {
            return;
        };
        self.pause(out);
        self.state = State::Outside;
        let end = match decode(payload, Framing::Plain) {
            Ok(Message::Commit(commit)) => Message::StreamCommit(StreamCommit { xid: top, commit }),
            Ok(Message::Prepare(prepare)) => Message::StreamPrepare(prepare),
            // Not of this kind: it is as it is.
            _ => return put_frame(out, head, &[payload]),
        };
        let mut message = Vec::new();
        encode(&end, &mut message);
        put_frame(out, head, &[&message]);
    }
}

fn top_of(payload: &[u8]) -> Option<Xid> {
    match decode(payload, Framing::Plain).ok()? {
        Message::Begin(begin) => Some(begin.xid),
        Message::BeginPrepare(begin) => Some(begin.xid),
        _ => None,
    }
}
