//! How far the transaction at hand has been sent.

use bytes::Bytes;
use pg_proto::{Lsn, Xid};
use storage_format::block::{Block, Entry};
use storage_format::record::{PreparedRecord, RecordKind};

use super::early::EarlyTransaction;
use super::{Made, Output, wire};

/// How far the transaction at hand has been sent.
#[derive(Debug)]
pub(super) enum Transaction {
    /// None is at hand.
    None,
    /// It lies before the start, or came from another origin: nothing of it is sent.
    Skipped,
    /// Nothing of it has passed yet.
    Waiting(Opening),
    /// Its BEGIN was sent.
    Sent {
        /// Where it commits.
        commit_lsn: Lsn,
    },
    /// It was sent when it was prepared: of its commit only that it happened is sent.
    Decided(Box<PreparedRecord>),
    /// It was sent before it ended: only its end is sent.
    Early(Xid, Box<EarlyTransaction>),
}

impl Transaction {
    /// Whether none of its changes is looked at.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self, Self::Skipped | Self::Decided(_) | Self::Early(..))
    }
}

/// What is sent before the first change of a transaction that passes.
#[derive(Debug)]
pub(super) struct Opening {
    commit_lsn: Lsn,
    /// What waits as `begin`.
    kind: RecordKind,
    /// It is sent even if nothing follows; it waits only for an ORIGIN.
    eager: bool,
    /// It is sent as one that is prepared, so BEGIN as the BEGIN PREPARE of this.
    prepared: Option<Box<PreparedRecord>>,
    begin: Waiting,
    origin: Option<Waiting>,
}

/// A frame that waits to be sent.
#[derive(Debug)]
enum Waiting {
    /// In the block at hand.
    Here(Entry),
    /// Copied from an earlier one, which it should not keep in memory.
    Kept(Bytes),
}

impl Opening {
    /// The BEGIN at `entry` waits.
    pub(super) const fn new(commit_lsn: Lsn, entry: Entry) -> Self {
        Self {
            commit_lsn,
            kind: RecordKind::Begin,
            eager: false,
            prepared: None,
            begin: Waiting::Here(entry),
            origin: None,
        }
    }

    /// The BEGIN PREPARE at `entry` waits for an ORIGIN, if there is one.
    pub(super) const fn of_prepared(prepare_lsn: Lsn, entry: Entry) -> Self {
        let mut opening = Self::new(prepare_lsn, entry);
        opening.kind = RecordKind::BeginPrepare;
        opening.eager = true;
        opening
    }

    /// One whose end is not known waits for an ORIGIN, if there is one. `begin`: the frame of a BEGIN.
    pub(super) const fn of_early(begin: Bytes) -> Self {
        Self {
            commit_lsn: Lsn::INVALID,
            kind: RecordKind::Begin,
            eager: true,
            prepared: None,
            begin: Waiting::Kept(begin),
            origin: None,
        }
    }

    /// It is sent even if nothing follows.
    pub(super) const fn set_eager(&mut self) {
        self.eager = true;
    }

    /// Whether it is sent even if nothing follows.
    pub(super) const fn is_eager(&self) -> bool {
        self.eager
    }

    /// It is sent as the transaction that was prepared as `record` says.
    pub(super) fn prepared_as(&mut self, record: PreparedRecord) {
        self.kind = RecordKind::BeginPrepare;
        self.eager = true;
        self.prepared = Some(Box::new(record));
    }

    /// How it was prepared, if it is sent as such.
    pub(super) fn prepared(&self) -> Option<&PreparedRecord> {
        self.prepared.as_deref()
    }

    /// The ORIGIN at `entry` waits too.
    pub(super) fn set_origin(&mut self, entry: Entry) {
        self.origin = Some(Waiting::Here(entry));
    }

    /// Sends what waited. `start`: the position that the last of it is sent with, if not the one it has.
    pub(super) fn send(
        self,
        start: Option<Lsn>,
        block: &Block,
        out: &mut impl Output,
    ) -> Transaction {
        let Self {
            commit_lsn,
            kind,
            prepared,
            mut begin,
            origin,
            ..
        } = self;
        if let Some(record) = prepared {
            begin = Waiting::Kept(wire::begin_prepare(begin.frame(block), &record));
        }
        // A position is told once: with an ORIGIN behind it, BEGIN has 0/0.
        let begin_start = start.filter(|_| origin.is_none());
        begin.send(kind, begin_start, block, out);
        if let Some(origin) = origin {
            origin.send(RecordKind::Origin, start, block, out);
        }
        Transaction::Sent { commit_lsn }
    }

    /// Copies what waits out of the block, which ends.
    pub(super) fn keep(&mut self, block: &Block) {
        self.begin.keep(block);
        if let Some(origin) = &mut self.origin {
            origin.keep(block);
        }
    }
}

impl Waiting {
    fn send(self, kind: RecordKind, start: Option<Lsn>, block: &Block, out: &mut impl Output) {
        let frame = match self {
            Self::Here(entry) => {
                let same = start.is_none_or(|start| block.start_lsn(&entry) == start);
                if same {
                    return out.entry(block, &entry, 0);
                }
                Bytes::copy_from_slice(block.frame(&entry))
            }
            Self::Kept(frame) => frame,
        };
        let frame = match start {
            Some(start) => wire::starting_at(frame, start),
            None => frame,
        };
        let made = Made {
            kind,
            ordinal: 0,
            frame,
        };
        out.made(block, made);
    }

    fn frame<'a>(&'a self, block: &'a Block) -> &'a [u8] {
        match self {
            Self::Here(entry) => block.frame(entry),
            Self::Kept(frame) => frame,
        }
    }

    fn keep(&mut self, block: &Block) {
        if let Self::Here(entry) = self {
            let frame = block.frame(entry);
            *self = Self::Kept(Bytes::copy_from_slice(frame));
        }
    }
}
