//! From a position that a client gave to the end of a whole transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pg_proto::Lsn;
use pg_proto::pgoutput::{self, Framing, Message};
use storage_format::block::{Block, BlockHeader};
use storage_format::log::{Log, Step};
use storage_format::record::RecordKind;

use super::lease::Held;
use crate::error::StreamError;

/// Blocks skipped in one step.
const RUN: usize = 1024;

/// Rounds what the clients of all these slots have confirmed. What can't be rounded stays as it was.
pub(super) async fn round_all(log: &Arc<Log>, held: &[Arc<Held>]) {
    for held in held {
        let claim = held.claim();
        if claim.lsn <= claim.whole {
            continue;
        }
        match whole_transaction(log, claim.whole, claim.lsn).await {
            Ok(whole) => held.round(whole),
            Err(error) => {
                let error = service::cli::causes(&error);
                tracing::warn!(
                    slot = held.slot.name,
                    error,
                    "can't round a confirmed position"
                );
            }
        }
    }
}

/// The highest end of a whole transaction, or of a message that stands alone, at or below `lsn`; `floor` is one that
/// is known. Looks at the headers of the blocks between, and into the block that `lsn` lies in.
pub(crate) async fn whole_transaction(
    log: &Arc<Log>,
    floor: Lsn,
    lsn: Lsn,
) -> Result<Lsn, StreamError> {
    let mut cursor = log.cursor_at(floor)?;
    // Atomic only because the closure lives across an await.
    let skipped_to = AtomicU64::new(floor.0);
    let reaches = |header: &BlockHeader, _: &[_]| {
        let behind = header.end_lsn > lsn;
        if !behind {
            skipped_to.fetch_max(header.end_lsn.0, Ordering::Relaxed);
        }
        behind
    };
    loop {
        let step = cursor.step_with(&reaches, RUN)?;
        let skipped_to = Lsn(skipped_to.load(Ordering::Relaxed));
        match step {
            Step::Skipped => tokio::task::yield_now().await,
            Step::Head => return Ok(skipped_to.max(cursor.position().min(lsn))),
            Step::Block(block) => {
                let in_block = ends(&block).filter(|end| *end <= lsn).max();
                return Ok(skipped_to.max(in_block.unwrap_or(floor)));
            }
        }
    }
}

fn ends(block: &Block) -> impl Iterator<Item = Lsn> + '_ {
    block.entries().filter_map(|entry| {
        let kind = entry.kind()?;
        let ends = matches!(
            kind,
            RecordKind::Commit
                | RecordKind::Message
                | RecordKind::Prepare
                | RecordKind::RollbackPrepared
        );
        if !ends {
            return None;
        }
        match pgoutput::decode(block.payload(&entry), Framing::Plain).ok()? {
            Message::Commit(commit) => Some(commit.end_lsn),
            Message::Prepare(prepare) => Some(prepare.end_lsn),
            Message::RollbackPrepared(end) => Some(end.rollback_end_lsn),
            Message::LogicalMessage(message) if !message.transactional => Some(message.lsn),
            _ => None,
        }
    })
}
