//! Appending a transaction that was staged in a file.

use std::sync::Arc;

use bytes::Bytes;
use pg_proto::Lsn;
use pg_proto::pgoutput::{Begin, Commit, Message, encode};

use super::log_writer::LogWriter;
use super::state::apply_catalog;
use crate::block::{
    BLOCK_HEADER_LEN, BlockBuilder, BlockFlags, BlockHeader, FRAME_HEAD_LEN, Sections, raw_body,
};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::fs::FsFile;
use crate::segment::{FileWindow, FoundBlock};
use crate::staging::StagedTransaction;

/// Headers are read from the staged file in pieces of this size; bodies are not read at all.
const HEADER_WINDOW_LEN: usize = 4 << 10;
/// Room for the blocks of BEGIN and COMMIT.
const ENDS_LEN: u64 = 2 * (BLOCK_HEADER_LEN + FRAME_HEAD_LEN + 64) as u64;

/// What will be written.
#[derive(Debug, Default)]
struct Plan {
    bytes: u64,
    events: u64,
    has_catalog: bool,
}

impl LogWriter {
    /// Appends a staged transaction that commits as `commit` says. False if nothing of it is left, so that nothing
    /// was appended: all of it was rolled back, or unpublished. After [`FormatError::NoSpace`] the log is as it was,
    /// and the call may be repeated.
    pub fn append_staged(
        &mut self,
        staged: &StagedTransaction,
        commit: &Commit,
    ) -> Result<bool, FormatError> {
        self.usable()?;
        if self.open.is_some() {
            return Err(FormatError::State {
                call: "append_staged",
                problem: "a transaction is open",
            });
        }
        let Some(file) = staged.file().file.as_deref() else {
            return Ok(false);
        };
        let plan = plan(file, staged)?;
        if plan.events == 0 && !plan.has_catalog {
            return Ok(false);
        }
        let catalog = self.staged_catalog(file, staged, &plan)?;
        self.roll_over_if_full(ENDS_LEN)?;
        let reserved = self.active.reserve(plan.bytes + ENDS_LEN);
        self.checked(reserved)?;
        let mut builder = std::mem::take(&mut self.rest);
        let result = self.append_staged_parts(&mut builder, file, staged, commit, catalog);
        self.rest = builder;
        if result.is_err() {
            self.rewind();
        }
        result.map(|()| true)
    }

    fn append_staged_parts(
        &mut self,
        builder: &mut BlockBuilder,
        file: &dyn FsFile,
        staged: &StagedTransaction,
        commit: &Commit,
        catalog: Arc<Catalog>,
    ) -> Result<(), FormatError> {
        let begin = Begin {
            final_lsn: commit.commit_lsn,
            commit_time: commit.commit_time,
            xid: staged.xid(),
        };
        let mut payload = Vec::new();
        encode(&Message::Begin(begin), &mut payload);
        builder.start(None);
        builder.push_begin(&begin, staged.start(), staged.send_time(), &payload)?;
        self.append_block(builder)?;
        if let Some(open) = &mut self.state.open {
            open.catalog = catalog;
        }
        self.copy_blocks(file, staged)?;
        payload.clear();
        encode(&Message::Commit(*commit), &mut payload);
        builder.start(self.open);
        builder.push_commit(commit, commit.end_lsn, &payload)?;
        self.append_block(builder)
    }

    /// What the catalog is after the transaction. Found out before anything is written.
    fn staged_catalog(
        &self,
        file: &dyn FsFile,
        staged: &StagedTransaction,
        plan: &Plan,
    ) -> Result<Arc<Catalog>, FormatError> {
        let mut catalog = self.state.working_catalog();
        if !plan.has_catalog {
            return Ok(catalog);
        }
        let mut buffer = Bytes::new();
        for_each_kept(file, staged, |window, block| {
            if !block.header.flags.contains(BlockFlags::HAS_CATALOG) {
                return Ok(());
            }
            let path = window.path().to_owned();
            let body = raw_body(&block.header, window.stored_body(block)?, &mut buffer);
            body.and_then(|body| Sections::split(&block.header, body))
                .and_then(|sections| apply_catalog(&mut catalog, sections))
                .map_err(|damage| damage.at(&path, block.offset))
        })?;
        Ok(catalog)
    }

    fn copy_blocks(
        &mut self,
        file: &dyn FsFile,
        staged: &StagedTransaction,
    ) -> Result<(), FormatError> {
        for_each_kept(file, staged, |window, block| {
            let header = self.final_header(&block.header);
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
    fn final_header(&self, staged: &BlockHeader) -> BlockHeader {
        let (commit_lsn, commit_time, next_ordinal) = self.open.map_or_else(
            || (Lsn::INVALID, staged.first_commit_time, 0),
            |open| (open.commit_lsn, open.commit_time, open.next_ordinal),
        );
        let placement = self.placement();
        BlockHeader {
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

fn plan(file: &dyn FsFile, staged: &StagedTransaction) -> Result<Plan, FormatError> {
    let mut plan = Plan::default();
    for_each_kept(file, staged, |_, block| {
        plan.bytes += block.end - block.offset;
        plan.events += u64::from(block.header.event_count);
        plan.has_catalog |= block.header.flags.contains(BlockFlags::HAS_CATALOG);
        Ok(())
    })?;
    Ok(plan)
}

/// Calls `each` for every block that is not rolled back.
fn for_each_kept<'a>(
    file: &'a dyn FsFile,
    staged: &StagedTransaction,
    mut each: impl FnMut(&mut FileWindow<'a>, &FoundBlock) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let path = &staged.file().path;
    let mut window = FileWindow::with_window(file, path, HEADER_WINDOW_LEN)?;
    let mut offset = 0;
    while offset < staged.stored_bytes() {
        let block = window
            .header(offset)?
            .map_err(|damage: Damage| damage.at(path, offset))?;
        if !staged.is_dropped(&block.header) {
            each(&mut window, &block)?;
        }
        offset = block.end;
    }
    Ok(())
}
