//! The commits of a part of the log.

use std::sync::Arc;

use pg_proto::pgoutput::{self, Framing, Message};
use pg_proto::{Lsn, Xid};
use storage_format::block::{Block, BlockFlags, BlockHeader, Entry};
use storage_format::log::{Log, Step};
use storage_format::record::RecordKind;

use crate::error::StreamError;

/// Bytes of WAL that are looked through at most for one snapshot. From there on the source makes one faster.
pub(crate) const SCAN_BYTES_MAX: u64 = 256 << 20;
/// Blocks passed over in one go.
const RUN: usize = 256;

/// Shows all commits from `from` up to `end`, and perhaps some behind that. False if the log ends before `end`: it may go
/// back when what is written is served and the decoder was killed.
pub(crate) async fn scan(
    log: &Arc<Log>,
    from: Lsn,
    end: Lsn,
    show: &mut (dyn FnMut(Xid, Lsn) + Send),
) -> Result<bool, StreamError> {
    let mut cursor = log.cursor_at(from)?;
    let wanted = |header: &BlockHeader, _: &[_]| header.last_commit_lsn >= from && commits(header);
    loop {
        match cursor.step_with(&wanted, RUN)? {
            Step::Block(block) if block.header().first_commit_lsn >= end => return Ok(true),
            Step::Block(block) => show_block(&block, from, cursor.position(), show)?,
            Step::Skipped if cursor.position() >= end => return Ok(true),
            Step::Skipped => {}
            Step::Head => return Ok(cursor.position() >= end),
        }
        tokio::task::consume_budget().await;
    }
}

/// Whether a transaction that commits may begin in the block: not if it is all from the middle of one, or from transactions
/// that end with PREPARE here. These are in the log once more, as ordinary ones, at their COMMIT PREPARED.
const fn commits(header: &BlockHeader) -> bool {
    let flags = header.flags;
    let begins = header.transaction_count > 0 || !flags.contains(BlockFlags::CONTINUES);
    begins && !flags.contains(BlockFlags::PREPARED)
}

fn show_block(
    block: &Block,
    from: Lsn,
    position: Lsn,
    show: &mut dyn FnMut(Xid, Lsn),
) -> Result<(), StreamError> {
    for entry in block.entries() {
        let commit = commit_of(block, &entry)
            .map_err(|source| StreamError::Unreadable { position, source })?;
        if let Some((xid, commit_lsn)) = commit
            && commit_lsn >= from
        {
            show(xid, commit_lsn);
        }
    }
    Ok(())
}

/// The transaction that begins with a record, and where it commits.
fn commit_of(block: &Block, entry: &Entry) -> Result<Option<(Xid, Lsn)>, pg_proto::ReadError> {
    if entry.kind() != Some(RecordKind::Begin) {
        return Ok(None);
    }
    let message = pgoutput::decode(block.payload(entry), Framing::Plain)?;
    Ok(match message {
        Message::Begin(begin) => Some((begin.xid, begin.final_lsn)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestLog;

    async fn commits(log: &Arc<Log>, from: Lsn, end: Lsn) -> (Vec<Lsn>, bool) {
        let mut found = Vec::new();
        let mut show = |xid: Xid, lsn: Lsn| {
            assert_eq!(u64::from(xid.0), lsn.0, "the log of the test has such ids");
            found.push(lsn);
        };
        let complete = scan(log, from, end, &mut show).await.unwrap();
        found.retain(|lsn| *lsn < end);
        (found, complete)
    }

    /// Transactions that lie in a block with others, alone, and across several blocks; a message on its own; segments.
    fn write() -> (TestLog, Vec<Lsn>) {
        let mut log = TestLog::new();
        let mut all = Vec::new();
        for number in 0..40_usize {
            let items = if number % 5 == 0 { 6 } else { 1 };
            all.push(log.begin(items));
            for item in 0..items {
                log.row(RecordKind::Insert, 0, 1);
                if number % 5 == 0 && item % 2 == 0 {
                    log.cut();
                }
            }
            log.commit();
            match number % 8 {
                1 => drop(log.lone_message(1)),
                3 => log.cut(),
                5 => log.progress(),
                7 => log.finish_segment(),
                _ => {}
            }
        }
        log.progress();
        log.sync();
        (log, all)
    }

    #[tokio::test]
    async fn every_commit_of_a_part_is_shown_once() {
        let (log, all) = write();
        let opened = log.log();
        let head = opened.head().lsn;
        for from in all.iter().flat_map(|lsn| [lsn.0 - 1, lsn.0, lsn.0 + 1]) {
            let from = Lsn(from);
            for end in all.iter().step_by(7).copied().chain([head]) {
                let inside = |lsn: &&Lsn| (from..end).contains(lsn);
                let expected: Vec<Lsn> = all.iter().filter(inside).copied().collect();
                let found = commits(&opened, from, end).await;
                assert_eq!(found, (expected, true), "{from} to {end}");
            }
        }
    }

    #[tokio::test]
    async fn a_log_that_is_not_there_yet_is_said_to_be_incomplete() {
        let (log, all) = write();
        let opened = log.log();
        let beyond = Lsn(opened.head().lsn.0 + 1);
        let (found, complete) = commits(&opened, all[3], beyond).await;
        assert_eq!((found.as_slice(), complete), (&all[3..], false));
    }
}
