//! One staged transaction: being written, and finished.

use std::io::IoSlice;

use pg_proto::{Lsn, PgTimestamp, Xid};

use super::Aborted;
use super::file::StagedFile;
use super::mark::{Mark, MarkKind};
use crate::block::{BlockBuilder, BlockFlags, BlockHeader, BlockKind, OpenTransaction, Placement};
use crate::error::FormatError;
use crate::record::RecordKind;

/// A block of this size goes to the file.
const BLOCK_LEN: usize = 256 << 10;

/// Collects the records of a transaction.
#[derive(Debug)]
pub(super) struct StagedWriter {
    transaction: StagedTransaction,
    builder: BlockBuilder,
    /// To whom the records in the builder belong.
    subxid: Xid,
    /// The builder's size as the owner last counted it.
    accounted: usize,
    prefix: Vec<u8>,
}

/// How a staged transaction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StagedHead {
    pub(super) xid: Xid,
    pub(super) start: Lsn,
    pub(super) send_time: PgTimestamp,
    pub(super) streamed: bool,
}

/// A staged transaction that is complete. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct StagedTransaction {
    xid: Xid,
    start: Lsn,
    send_time: PgTimestamp,
    /// Whether it came in pieces before its end.
    streamed: bool,
    /// Whether there is an ORIGIN in the file.
    has_origin: bool,
    file: StagedFile,
    aborted: Aborted,
}

impl StagedTransaction {
    /// One whose file is there.
    pub(super) const fn existing(
        head: StagedHead,
        has_origin: bool,
        file: StagedFile,
        aborted: Aborted,
    ) -> Self {
        Self {
            has_origin,
            xid: head.xid,
            start: head.start,
            send_time: head.send_time,
            streamed: head.streamed,
            file,
            aborted,
        }
    }

    /// Whether the source sent it in pieces before its end.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// Whether the source named a replication origin of it.
    #[must_use]
    pub const fn has_origin(&self) -> bool {
        self.has_origin
    }

    /// Subtransactions of which nothing counts.
    pub(super) const fn aborted(&self) -> &Aborted {
        &self.aborted
    }

    pub(super) const fn file_mut(&mut self) -> &mut StagedFile {
        &mut self.file
    }

    /// The top-level transaction.
    #[must_use]
    pub const fn xid(&self) -> Xid {
        self.xid
    }

    /// Position of its first change, which its BEGIN names.
    #[must_use]
    pub const fn start(&self) -> Lsn {
        self.start
    }

    /// The time in the heads of all its frames.
    #[must_use]
    pub const fn send_time(&self) -> PgTimestamp {
        self.send_time
    }

    /// Bytes in its file, rolled back subtransactions included.
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        self.file.length
    }

    pub(crate) const fn file(&self) -> &StagedFile {
        &self.file
    }

    /// Whether the block belongs to a subtransaction that was rolled back.
    pub(crate) fn is_dropped(&self, header: &BlockHeader) -> bool {
        u32::try_from(header.first_ordinal).is_ok_and(|subxid| self.aborted.contains(&Xid(subxid)))
    }
}

impl StagedWriter {
    pub(super) fn new(head: StagedHead, file: StagedFile) -> Self {
        let mut builder = BlockBuilder::new();
        let transaction = StagedTransaction::existing(head, false, file, Aborted::new());
        builder.start(Some(placeholder(&transaction)));
        Self {
            subxid: head.xid,
            transaction,
            builder,
            accounted: 0,
            prefix: Vec::new(),
        }
    }

    pub(super) const fn xid(&self) -> Xid {
        self.transaction.xid
    }

    pub(super) const fn accounted(&self) -> usize {
        self.accounted
    }

    pub(super) const fn account(&mut self) -> usize {
        self.accounted = self.builder.raw_len();
        self.accounted
    }

    pub(super) const fn builder(&mut self) -> &mut BlockBuilder {
        &mut self.builder
    }

    /// Makes the builder ready for a record of `subxid`. `position`: where the log is, for what is written before.
    pub(super) fn prepare(
        &mut self,
        subxid: Xid,
        kind: RecordKind,
        position: Lsn,
    ) -> Result<(), FormatError> {
        let owner = match kind {
            RecordKind::Relation | RecordKind::Type => self.transaction.xid,
            _ => subxid,
        };
        if self.subxid != owner || self.builder.raw_len() >= BLOCK_LEN {
            self.flush(position)?;
        }
        self.subxid = owner;
        if self.transaction.streamed {
            self.builder.streamed_by(subxid);
        }
        self.account();
        Ok(())
    }

    /// A subtransaction is rolled back, as `mark` says. After an error it may be repeated.
    pub(super) fn abort(&mut self, mark: &Mark) -> Result<(), FormatError> {
        self.transaction.aborted.insert(mark.xid);
        if self.subxid == mark.xid {
            self.restart();
        }
        self.mark(mark)
    }

    /// Writes a mark behind all that came before it. What has no file yet needs none: nobody has seen it.
    pub(super) fn mark(&mut self, mark: &Mark) -> Result<(), FormatError> {
        self.flush(mark.position)?;
        if !self.is_readable() {
            return Ok(());
        }
        let bytes = mark.encode();
        self.transaction.file.append(&mut [IoSlice::new(&bytes)])
    }

    /// Whether there is something that others may be reading.
    pub(super) const fn is_readable(&self) -> bool {
        self.transaction.streamed && self.transaction.file.length > 0
    }

    /// Writes what is in memory to the file. `position`: everything that commits below it came before.
    pub(super) fn flush(&mut self, position: Lsn) -> Result<(), FormatError> {
        if self.builder.is_empty() {
            return Ok(());
        }
        let placement = Placement {
            end_lsn: position,
            chain: 0,
            synced_offset: 0,
        };
        // The commit puts the ordinal into this field; until then it says whose records these are.
        let header = BlockHeader {
            first_ordinal: self.subxid.0.into(),
            ..self.builder.header(BlockKind::Data, &placement)
        };
        let begin = Mark {
            kind: MarkKind::Begin,
            xid: self.transaction.xid,
            lsn: self.transaction.start,
            time: self.transaction.send_time,
            position,
        }
        .encode();
        let first = self.transaction.streamed && self.transaction.file.length == 0;
        let begin = if first { begin.as_slice() } else { &[] };
        let ([prefix, entries, frames, aux], _) = self.builder.pieces(&header, &mut self.prefix);
        let mut pieces = [IoSlice::new(begin), prefix, entries, frames, aux];
        self.transaction.file.append(&mut pieces)?;
        self.transaction.has_origin |= header.flags.contains(BlockFlags::HAS_ORIGIN);
        self.restart();
        Ok(())
    }

    fn restart(&mut self) {
        self.builder.start(Some(placeholder(&self.transaction)));
        self.accounted = 0;
    }

    pub(super) fn into_transaction(self) -> StagedTransaction {
        self.transaction
    }
}

/// What is known of the transaction before it commits.
const fn placeholder(transaction: &StagedTransaction) -> OpenTransaction {
    OpenTransaction {
        commit_lsn: Lsn::INVALID,
        start: transaction.start,
        commit_time: PgTimestamp(0),
        send_time: transaction.send_time,
        next_ordinal: 0,
    }
}
