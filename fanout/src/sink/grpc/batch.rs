//! Gathers changes into batches.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use pg_proto::Lsn;
use pg_proto::read::ReadError;
use proto::v1::event::Kind;
use proto::v1::{Batch, Event, TransactionPart};
use storage_format::block::{Block, Entry, FRAME_HEAD_LEN};
use storage_format::record::RecordKind;

use super::convert::{Converted, Source};
use crate::emit::{Made, Output};

/// Size of a batch unless the subscriber asks for another, in bytes of the log.
pub(super) const DEFAULT_BATCH_BYTES: u32 = 64 << 10;
/// Largest size of a batch that a subscriber may ask for. A client takes messages of 4 MiB unless it is told otherwise,
/// and a row of nothing but nulls is four times as long as in the log.
pub(super) const BATCH_BYTES_MAX: u32 = 512 << 10;

/// Memory that is taken at once for rewritten rows, in bytes.
const REWRITTEN_BYTES: usize = 64 << 10;

/// Turns records into events and gathers them. A batch is closed at its size, also inside a transaction, and when
/// there is nothing more for now.
#[derive(Debug)]
pub(super) struct Batcher {
    limit: usize,
    raw: bool,
    ready: VecDeque<Batch>,
    parts: Vec<TransactionPart>,
    /// The part at hand; empty if it goes on with a transaction of which an earlier part is in a closed batch.
    part: Option<TransactionPart>,
    bytes: usize,
    error: Option<ReadError>,
    /// Memory of rewritten rows, which batches hold slices of.
    rewritten: BytesMut,
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
            parts: Vec::new(),
            part: None,
            bytes: 0,
            error: None,
            rewritten: BytesMut::new(),
        }
    }

    /// The next closed batch.
    pub(super) fn pop(&mut self) -> Option<Batch> {
        self.ready.pop_front()
    }

    /// Closes the batch at hand, if there is anything in it.
    pub(super) fn flush(&mut self) {
        if let Some(part) = &mut self.part
            && *part != TransactionPart::default()
        {
            self.parts.push(std::mem::take(part));
        }
        if !self.parts.is_empty() {
            let parts = std::mem::take(&mut self.parts);
            self.ready.push_back(Batch { parts });
        }
        self.bytes = 0;
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        let nothing = |part: &TransactionPart| *part == TransactionPart::default();
        self.ready.is_empty() && self.parts.is_empty() && self.part.as_ref().is_none_or(nothing)
    }

    /// What could not be understood, if anything could not.
    pub(super) const fn take_error(&mut self) -> Option<ReadError> {
        self.error.take()
    }

    fn take(&mut self, source: &Source<'_>) {
        let raw = self.raw;
        match source.convert(raw) {
            Ok(converted) => self.add(converted),
            Err(error) => self.error = Some(error),
        }
        self.bytes += source.payload.len();
        if self.bytes >= self.limit {
            self.flush();
        }
    }

    fn add(&mut self, converted: Converted) {
        match converted {
            Converted::Begin(begin) => {
                self.part = Some(TransactionPart {
                    begin: Some(begin),
                    ..TransactionPart::default()
                });
            }
            Converted::Origin(name, lsn) => {
                let begin = self.part.as_mut().and_then(|part| part.begin.as_mut());
                if let Some(begin) = begin {
                    begin.origin = name;
                    begin.origin_lsn = lsn.0;
                }
            }
            Converted::Event(kind) => self.part.get_or_insert_default().events.push(event(kind)),
            Converted::Lone(kind) => self.parts.push(TransactionPart {
                events: vec![event(kind)],
                ..TransactionPart::default()
            }),
            Converted::Commit(commit) => {
                let mut part = self.part.take().unwrap_or_default();
                part.commit = Some(commit);
                self.parts.push(part);
            }
            Converted::Nothing => {}
        }
    }
}

const fn event(kind: Kind) -> Event {
    Event { kind: Some(kind) }
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
        self.take(&Source {
            payload: block.payload(entry),
            owner: block.frames(),
            lsn: block.start_lsn(entry),
            ordinal,
        });
    }

    fn made(&mut self, _block: &Block, made: Made) {
        let payload: Bytes = made.payload();
        self.take(&Source {
            payload: &payload,
            owner: &payload,
            lsn: start_lsn(&made.frame),
            ordinal: made.ordinal,
        });
    }

    fn rewritten(&mut self, block: &Block, kind: RecordKind, ordinal: u64, frame: &[u8]) {
        if self.rewritten.capacity() < frame.len() {
            self.rewritten.reserve(frame.len().max(REWRITTEN_BYTES));
        }
        self.rewritten.extend_from_slice(frame);
        let frame = self.rewritten.split().freeze();
        self.made(
            block,
            Made {
                kind,
                ordinal,
                frame,
            },
        );
    }

    fn end_block(&mut self, _block: &Block) {}
}

/// The position in a frame's head.
fn start_lsn(frame: &[u8]) -> Lsn {
    const START: usize = FRAME_HEAD_LEN - 24;
    let field = frame.get(START..).and_then(<[u8]>::first_chunk);
    field.map_or(Lsn::INVALID, |bytes| Lsn(u64::from_be_bytes(*bytes)))
}
