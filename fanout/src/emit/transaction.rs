//! How far the transaction at hand has been sent.

use bytes::Bytes;
use pg_proto::Lsn;
use storage_format::block::{Block, Entry};
use storage_format::record::RecordKind;

use super::{Made, Output};

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
}

/// What is sent before the first change of a transaction that passes.
#[derive(Debug)]
pub(super) struct Opening {
    commit_lsn: Lsn,
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
            begin: Waiting::Here(entry),
            origin: None,
        }
    }

    /// The ORIGIN at `entry` waits too.
    pub(super) fn set_origin(&mut self, entry: Entry) {
        self.origin = Some(Waiting::Here(entry));
    }

    /// Sends what waited.
    pub(super) fn send(self, block: &Block, out: &mut impl Output) -> Transaction {
        self.begin.send(RecordKind::Begin, block, out);
        if let Some(origin) = self.origin {
            origin.send(RecordKind::Origin, block, out);
        }
        Transaction::Sent {
            commit_lsn: self.commit_lsn,
        }
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
    fn send(self, kind: RecordKind, block: &Block, out: &mut impl Output) {
        match self {
            Self::Here(entry) => out.entry(block, &entry, 0),
            Self::Kept(frame) => {
                let made = Made {
                    kind,
                    ordinal: 0,
                    frame,
                };
                out.made(block, made);
            }
        }
    }

    fn keep(&mut self, block: &Block) {
        if let Self::Here(entry) = self {
            let frame = block.frame(entry);
            *self = Self::Kept(Bytes::copy_from_slice(frame));
        }
    }
}
