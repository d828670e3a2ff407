//! The commits of a part of the log.

use std::sync::Arc;

use pg_proto::pgoutput::{self, Framing, Message};
use pg_proto::{Lsn, Xid};
use storage_format::block::{Block, BlockFlags, BlockHeader, Entry};
use storage_format::log::{Log, Step};
use storage_format::record::RecordKind;

use super::CutSearch;
use crate::error::StreamError;

/// Bytes of WAL that are looked through at most for one snapshot. From there on the source makes one faster.
pub(crate) const SCAN_BYTES_MAX: u64 = 256 << 20;
/// Blocks passed over in one go.
const RUN: usize = 256;

/// Shows `search` all commits from `from` on that matter to it. The log must have come to the search's end.
pub(crate) async fn scan(
    log: &Arc<Log>,
    from: Lsn,
    search: &mut CutSearch<'_>,
) -> Result<(), StreamError> {
    let end = search.end();
    let mut cursor = log.cursor_at(from)?;
    let wanted = |header: &BlockHeader, _: &[_]| header.last_commit_lsn >= from && commits(header);
    loop {
        match cursor.step_with(&wanted, RUN)? {
            Step::Block(block) if block.header().first_commit_lsn >= end => return Ok(()),
            Step::Block(block) => show(&block, from, cursor.position(), search)?,
            Step::Skipped if cursor.position() >= end => return Ok(()),
            Step::Skipped => {}
            Step::Head => return Ok(()),
        }
        tokio::task::consume_budget().await;
    }
}

/// Whether a transaction may begin in the block: not if it is all from the middle of one.
const fn commits(header: &BlockHeader) -> bool {
    header.transaction_count > 0 || !header.flags.contains(BlockFlags::CONTINUES)
}

fn show(
    block: &Block,
    from: Lsn,
    position: Lsn,
    search: &mut CutSearch<'_>,
) -> Result<(), StreamError> {
    for entry in block.entries() {
        let commit = commit_of(block, &entry)
            .map_err(|source| StreamError::Unreadable { position, source })?;
        if let Some((xid, commit_lsn)) = commit
            && commit_lsn >= from
        {
            search.commit(xid, commit_lsn);
        }
    }
    Ok(())
}

/// The transaction that a record commits: BEGIN names its commit, COMMIT PREPARED is one.
fn commit_of(block: &Block, entry: &Entry) -> Result<Option<(Xid, Lsn)>, pg_proto::ReadError> {
    if !matches!(
        entry.kind(),
        Some(RecordKind::Begin | RecordKind::CommitPrepared)
    ) {
        return Ok(None);
    }
    Ok(
        match pgoutput::decode(block.payload(entry), Framing::Plain)? {
            Message::Begin(begin) => Some((begin.xid, begin.final_lsn)),
            Message::CommitPrepared(prepared) => Some((prepared.xid, prepared.commit.commit_lsn)),
            _ => None,
        },
    )
}
