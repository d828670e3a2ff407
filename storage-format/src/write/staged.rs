//! Appending a transaction that was staged in a file.

use std::sync::Arc;

use bytes::Bytes;
use pg_proto::Lsn;
use pg_proto::pgoutput::{Begin, Commit, Message, encode};

use super::log_writer::LogWriter;
use super::state::{LogState, apply_catalog};
use crate::block::{
    BLOCK_HEADER_LEN, BlockBuilder, BlockFlags, BlockHeader, BuildError, CommitAt, FRAME_HEAD_LEN,
    Sections, raw_body,
};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::fs::FsFile;
use crate::record::{PreparedRecord, RecordKind};
use crate::segment::{FileWindow, FoundBlock};
use crate::staging::{MARK_LEN, Mark, PreparedTransaction, StagedTransaction};

/// Headers are read from the staged file in pieces of this size; bodies are not read at all.
const HEADER_WINDOW_LEN: usize = 4 << 10;
/// Room for the blocks of BEGIN and COMMIT.
const ENDS_LEN: u64 = 2 * (BLOCK_HEADER_LEN + FRAME_HEAD_LEN + 64) as u64;

/// What will be written.
#[derive(Debug, Default)]
struct Plan {
    bytes: u64,
    has_catalog: bool,
}

/// What stands before and behind the records of a staged transaction.
#[derive(Clone, Copy, Debug)]
enum Ends<'a> {
    /// BEGIN and COMMIT.
    Committed(&'a Commit),
    /// BEGIN PREPARE and PREPARE.
    Prepared(&'a PreparedRecord),
    /// BEGIN, how it was prepared, and COMMIT.
    CommitPrepared(&'a PreparedRecord, &'a Commit),
}

impl LogWriter {
    /// Appends a staged transaction that commits as `commit` says. Also if nothing of it is left, since all of it was rolled
    /// back: who was sent it before its end is to be sent that end. After [`FormatError::NoSpace`] the log is as it was, and the
    /// call may be repeated.
    pub fn append_staged(
        &mut self,
        staged: &StagedTransaction,
        commit: &Commit,
    ) -> Result<(), FormatError> {
        self.append_between(staged, Ends::Committed(commit))
    }

    /// Appends a transaction that is prepared, at its PREPARE, also if it is empty. It stays as it is, since it is
    /// appended once more when it commits. [`FormatError::NoSpace`] as for [`Self::append_staged`].
    pub fn append_prepared(&mut self, prepared: &PreparedTransaction) -> Result<(), FormatError> {
        let ends = Ends::Prepared(prepared.record());
        self.append_between(prepared.staged(), ends)
    }

    /// Appends a prepared transaction as one that commits as `commit` says, also if it is empty.
    /// [`FormatError::NoSpace`] as for [`Self::append_staged`].
    pub fn append_commit_prepared(
        &mut self,
        prepared: &PreparedTransaction,
        commit: &Commit,
    ) -> Result<(), FormatError> {
        let ends = Ends::CommitPrepared(prepared.record(), commit);
        self.append_between(prepared.staged(), ends)
    }

    fn append_between(
        &mut self,
        staged: &StagedTransaction,
        ends: Ends<'_>,
    ) -> Result<(), FormatError> {
        self.usable()?;
        if self.open.is_some() {
            return Err(FormatError::State {
                call: "append_staged",
                problem: "a transaction is open",
            });
        }
        let plan = plan(staged)?;
        let catalog = self.staged_catalog(staged, &plan, ends)?;
        let ends_len = ENDS_LEN + ends.variable_len();
        self.roll_over_if_full(ends_len)?;
        let reserved = self.active.reserve(plan.bytes + ends_len);
        self.checked(reserved)?;
        let mut builder = std::mem::take(&mut self.rest);
        let result = self.append_staged_parts(&mut builder, staged, ends, catalog);
        self.rest = builder;
        if result.is_err() {
            self.rewind();
        }
        result
    }

    fn append_staged_parts(
        &mut self,
        builder: &mut BlockBuilder,
        staged: &StagedTransaction,
        ends: Ends<'_>,
        catalog: Arc<Catalog>,
    ) -> Result<(), FormatError> {
        let mut payload = Vec::new();
        builder.start(None);
        if staged.is_streamed() {
            builder.streamed_by(staged.xid());
        }
        ends.push_begin(staged, builder, &mut payload)?;
        self.append_block(builder)?;
        if let Some(open) = &mut self.state.open {
            open.catalog = catalog;
        }
        self.copy_blocks(staged, ends.flags())?;
        builder.start(self.open);
        if staged.is_streamed() {
            builder.streamed_by(staged.xid());
        }
        payload.clear();
        ends.push_end(builder, &mut payload)?;
        self.append_block(builder)
    }

    /// What the catalog is after the transaction. Found out before anything is written.
    fn staged_catalog(
        &self,
        staged: &StagedTransaction,
        plan: &Plan,
        ends: Ends<'_>,
    ) -> Result<Arc<Catalog>, FormatError> {
        let mut catalog = self.state.working_catalog();
        if !plan.has_catalog {
            return Ok(catalog);
        }
        let mut buffer = Bytes::new();
        for_each_kept(staged, |_, window, block| {
            if !block.header.flags.contains(BlockFlags::HAS_CATALOG) {
                return Ok(());
            }
            let path = window.path().to_owned();
            let flags = block.header.flags | ends.flags();
            let commit = CommitAt::inside(ends.commit_lsn());
            let body = raw_body(&block.header, window.stored_body(block)?, &mut buffer);
            body.and_then(|body| Sections::split(&block.header, body))
                .and_then(|sections| apply_catalog(&mut catalog, flags, commit, sections))
                .map_err(|damage| damage.at(&path, block.offset))
        })?;
        Ok(catalog)
    }

    fn copy_blocks(
        &mut self,
        staged: &StagedTransaction,
        flags: BlockFlags,
    ) -> Result<(), FormatError> {
        for_each_kept(staged, |file, window, block| {
            let header = self.final_header(&block.header, flags);
            self.state.check(&header)?;
            let relations = window.relations(block)?;
            let copied = self.copy_block(&header, relations, file, block);
            self.checked(copied)?;
            let catalog = self.state.working_catalog();
            self.state.advance(&header, catalog);
            if let Some(open) = &mut self.open {
                open.next_ordinal += u64::from(header.event_count);
            }
            Ok(())
        })
    }

    /// The staged header with what the commit tells.
    fn final_header(&self, staged: &BlockHeader, flags: BlockFlags) -> BlockHeader {
        let (commit_lsn, commit_time, next_ordinal) = self.open.map_or_else(
            || (Lsn::INVALID, staged.first_commit_time, 0),
            |open| (open.commit_lsn, open.commit_time, open.next_ordinal),
        );
        let placement = self.placement();
        let older = self.open.map_or(BlockFlags::NONE, |open| {
            LogState::older(&self.state.working_catalog(), open.start)
        });
        BlockHeader {
            flags: staged.flags | flags | older,
            first_commit_lsn: commit_lsn,
            last_commit_lsn: commit_lsn,
            first_commit_time: commit_time,
            last_commit_time: commit_time,
            end_lsn: placement.end_lsn,
            first_ordinal: next_ordinal,
            synced_offset: placement.synced_offset,
            chain: placement.chain,
            ..*staged
        }
    }

    /// Writes the new header and has the body copied behind it.
    fn copy_block(
        &mut self,
        header: &BlockHeader,
        relations: &[u8],
        from: &dyn FsFile,
        block: &FoundBlock,
    ) -> Result<(), FormatError> {
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        let crc = header.encode_with(relations, &mut prefix);
        let body_at = block.offset + block.prefix_len as u64;
        let written =
            self.active
                .write_block_from(&prefix, crc, from, body_at, u64::from(header.stored_len));
        self.prefix = prefix;
        written
    }
}

impl Ends<'_> {
    /// What holds for all blocks of the transaction.
    const fn flags(&self) -> BlockFlags {
        match self {
            Self::Prepared(_) => BlockFlags::PREPARED,
            Self::Committed(_) | Self::CommitPrepared(..) => BlockFlags::NONE,
        }
    }

    /// Where it counts as committed.
    const fn commit_lsn(&self) -> Lsn {
        match self {
            Self::Prepared(record) => record.prepare_lsn,
            Self::Committed(commit) | Self::CommitPrepared(_, commit) => commit.commit_lsn,
        }
    }

    /// Bytes of what has no fixed length.
    const fn variable_len(&self) -> u64 {
        match self {
            Self::Committed(_) => 0,
            Self::Prepared(record) | Self::CommitPrepared(record, _) => {
                2 * (record.gid.len() + 64) as u64
            }
        }
    }

    fn push_begin(
        &self,
        staged: &StagedTransaction,
        builder: &mut BlockBuilder,
        payload: &mut Vec<u8>,
    ) -> Result<(), BuildError> {
        let (start, send_time) = (staged.start(), staged.send_time());
        let commit = match self {
            Self::Committed(commit) | Self::CommitPrepared(_, commit) => commit,
            Self::Prepared(record) => {
                let begin = record.begin_prepare();
                encode(&Message::BeginPrepare(begin), payload);
                return builder.push_begin_prepare(&begin, start, send_time, payload);
            }
        };
        let begin = Begin {
            final_lsn: commit.commit_lsn,
            commit_time: commit.commit_time,
            xid: staged.xid(),
        };
        encode(&Message::Begin(begin), payload);
        builder.push_begin(&begin, start, send_time, payload)?;
        if let Self::CommitPrepared(record, _) = self {
            payload.clear();
            record.encode(payload);
            builder.push_aux(RecordKind::Prepared, payload)?;
        }
        Ok(())
    }

    fn push_end(
        &self,
        builder: &mut BlockBuilder,
        payload: &mut Vec<u8>,
    ) -> Result<(), BuildError> {
        match self {
            Self::Committed(commit) | Self::CommitPrepared(_, commit) => {
                encode(&Message::Commit(**commit), payload);
                builder.push_commit(commit, commit.end_lsn, payload)
            }
            Self::Prepared(record) => {
                let prepare = record.prepare();
                encode(&Message::Prepare(prepare), payload);
                builder.push_prepare(&prepare, prepare.end_lsn, payload)
            }
        }
    }
}

fn plan(staged: &StagedTransaction) -> Result<Plan, FormatError> {
    let mut plan = Plan::default();
    for_each_kept(staged, |_, _, block| {
        plan.bytes += block.end - block.offset;
        plan.has_catalog |= block.header.flags.contains(BlockFlags::HAS_CATALOG);
        Ok(())
    })?;
    Ok(plan)
}

/// Calls `each` for every block that is not rolled back.
fn for_each_kept<'a>(
    staged: &'a StagedTransaction,
    mut each: impl FnMut(&'a dyn FsFile, &mut FileWindow<'a>, &FoundBlock) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let path = &staged.file().path;
    // Without a file nothing was written.
    let Some(file) = staged.file().file.as_deref() else {
        return Ok(());
    };
    let mut window = FileWindow::with_window(file, path, HEADER_WINDOW_LEN)?;
    let mut offset = 0;
    while offset < staged.stored_bytes() {
        // Those are for who reads the file while it grows.
        if Mark::begins(window.bytes(offset, MARK_LEN)?) {
            offset += MARK_LEN as u64;
            continue;
        }
        let block = window
            .header(offset)?
            .map_err(|damage: Damage| damage.at(path, offset))?;
        if !staged.is_dropped(&block.header) {
            each(file, &mut window, &block)?;
        }
        offset = block.end;
    }
    Ok(())
}
