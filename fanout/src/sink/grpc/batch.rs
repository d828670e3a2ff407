//! Gathers changes into batches.

use std::collections::VecDeque;

use pg_proto::Lsn;
use pg_proto::pgoutput::{self, Framing};
use pg_proto::read::ReadError;
use proto::v1;
use proto::v1::event::Kind;
use storage_format::block::{Block, Entry, FRAME_HEAD_LEN};
use storage_format::record::RecordKind;

use super::convert::{self, Converted};
use super::encode::{Change, Rows};
use super::message::{BatchWriter, Message};
use crate::emit::{Form, Made, Output, Piece};

/// Size of a batch unless the subscriber asks for another, in bytes of the log.
pub(super) const DEFAULT_BATCH_BYTES: u32 = 64 << 10;
/// Largest size of a batch that a subscriber may ask for. A client takes messages of 4 MiB unless it is told otherwise,
/// and a row of nothing but nulls is four times as long as in the log.
pub(super) const BATCH_BYTES_MAX: u32 = 512 << 10;

/// What is shared of a block is in batches of its own, so a block is worth it from this part of a batch on.
const SHARED_PART: usize = 4;

/// Turns records into events and gathers them. A batch is closed at its size, also inside a transaction, and when
/// there is nothing more for now.
#[derive(Debug)]
pub(super) struct Batcher {
    limit: usize,
    raw: bool,
    ready: VecDeque<Message>,
    /// A transaction that has begun, and nothing of it was written yet: its origin may follow.
    begun: Option<v1::Begin>,
    batch: BatchWriter,
    /// In the batch at hand, of the log.
    bytes: usize,
    error: Option<ReadError>,
}

impl Batcher {
    /// `batch_bytes` as the subscriber asked, 0 for the default.
    pub(super) fn new(batch_bytes: u32, raw: bool) -> Self {
        let limit = match batch_bytes {
            0 => DEFAULT_BATCH_BYTES,
            asked => asked.min(BATCH_BYTES_MAX),
        };
        Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            raw,
            ready: VecDeque::new(),
            begun: None,
            batch: BatchWriter::default(),
            bytes: 0,
            error: None,
        }
    }

    /// In what form it keeps what it takes.
    pub(super) const fn form(&self) -> Form {
        Form::Batches {
            raw: self.raw,
            bytes: self.limit,
        }
    }

    /// The next closed batch.
    pub(super) fn pop(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    /// Closes the batch at hand, if there is anything in it.
    pub(super) fn flush(&mut self) {
        self.ready.extend(self.batch.finish());
        self.bytes = 0;
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.batch.is_empty()
    }

    /// What could not be understood, if anything could not.
    pub(super) const fn take_error(&mut self) -> Option<ReadError> {
        self.error.take()
    }

    fn take(&mut self, payload: &[u8], lsn: Lsn, ordinal: u64) {
        if let Err(error) = self.add(payload, lsn, ordinal) {
            self.error = Some(error);
        }
        self.bytes += payload.len();
        if self.bytes >= self.limit {
            self.flush();
        }
    }

    fn add(&mut self, payload: &[u8], lsn: Lsn, ordinal: u64) -> Result<(), ReadError> {
        let message = pgoutput::decode(payload, Framing::Plain)?;
        if let pgoutput::Message::Change(change) = &message {
            let (kind, relation, columns) = Rows::of(change);
            let rows = if self.raw {
                Rows::Raw(payload)
            } else {
                columns
            };
            let change = Change {
                kind,
                relation,
                ordinal,
                lsn,
                rows,
            };
            self.open();
            change.put(self.batch.events());
            return Ok(());
        }
        match convert::convert(&message, lsn, ordinal) {
            Converted::Begin(begin) => self.begun = Some(begin),
            Converted::Origin(name, lsn) => {
                if let Some(begin) = &mut self.begun {
                    begin.origin = name;
                    begin.origin_lsn = lsn.0;
                }
            }
            Converted::Event(kind) => {
                self.open();
                self.batch.event(&event(kind));
            }
            Converted::Lone(kind) => {
                self.batch.end_part();
                self.batch.event(&event(kind));
                self.batch.end_part();
            }
            Converted::Commit(commit) => {
                self.open();
                self.batch.commit(&commit);
            }
            Converted::Nothing => {}
        }
        Ok(())
    }

    /// Writes the begin that waits, if there is one.
    fn open(&mut self) {
        if let Some(begin) = self.begun.take() {
            self.batch.begin(&begin);
        }
    }
}

const fn event(kind: Kind) -> v1::Event {
    v1::Event { kind: Some(kind) }
}

impl Output for Batcher {
    fn whole(&mut self, block: &Block) {
        let mut ordinal = block.header().first_ordinal;
        for entry in block.entries() {
            let Some(kind) = entry.kind() else { continue };
            self.entry(block, &entry, ordinal);
            if kind.is_event() {
                ordinal += 1;
            } else if kind == RecordKind::Begin {
                ordinal = 0;
            }
        }
    }

    fn entry(&mut self, block: &Block, entry: &Entry, ordinal: u64) {
        self.take(block.payload(entry), block.start_lsn(entry), ordinal);
    }

    fn made(&mut self, block: &Block, made: Made) {
        self.rewritten(block, made.kind, made.ordinal, &made.frame);
    }

    fn rewritten(&mut self, _block: &Block, _kind: RecordKind, ordinal: u64, frame: &[u8]) {
        let payload = frame.get(FRAME_HEAD_LEN..).unwrap_or_default();
        self.take(payload, start_lsn(frame), ordinal);
    }

    fn end_block(&mut self, _block: &Block) {}

    fn makes_its_own(&self) -> bool {
        true
    }

    fn mark(&mut self, block: &Block) -> Option<usize> {
        let small = block.header().raw_len() < self.limit / SHARED_PART;
        if small || self.begun.is_some() || self.error.is_some() {
            return None;
        }
        self.flush();
        Some(self.ready.len())
    }

    fn taken_since(&mut self, mark: usize) -> Option<Vec<Piece>> {
        if self.begun.is_some() || self.error.is_some() {
            return None;
        }
        self.flush();
        let taken = self.ready.iter().skip(mark).map(|message| Piece {
            bytes: message.bytes.clone(),
            end: message.end,
        });
        Some(taken.collect())
    }

    fn give(&mut self, pieces: &[Piece]) {
        self.ready.extend(pieces.iter().map(|piece| Message {
            bytes: piece.bytes.clone(),
            end: piece.end,
        }));
    }
}

/// The position in a frame's head.
fn start_lsn(frame: &[u8]) -> Lsn {
    const START: usize = FRAME_HEAD_LEN - 24;
    let field = frame.get(START..).and_then(<[u8]>::first_chunk);
    field.map_or(Lsn::INVALID, |bytes| Lsn(u64::from_be_bytes(*bytes)))
}
