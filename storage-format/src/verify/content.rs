//! Whether a block's records are what its header says.

use std::sync::Arc;

use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode};

use crate::block::{Block, BlockFlags, BlockKind, CommitAt};
use crate::catalog::Catalog;
use crate::error::Damage;
use crate::record::RecordKind;

/// Checks the records of a sound block: known kinds, the number of events, transactions in commit order, none behind
/// the block's end. `position` is the log's position before the block.
pub(super) fn check_records(block: &Block, position: Lsn) -> Result<(), Damage> {
    let mut order = Order {
        position,
        events: 0,
    };
    let header = block.header();
    if header.kind != BlockKind::Data {
        return Ok(());
    }
    for (place, entry) in block.entries().enumerate() {
        let Some(kind) = entry.kind() else {
            let problem = format!("entry {place} has the unknown kind {}", entry.kind_id);
            return Err(Damage::Content(problem));
        };
        order.take(kind, block.payload(&entry))?;
    }
    if order.events != u64::from(header.event_count) {
        return Err(Damage::mismatch(
            "event count",
            header.event_count,
            order.events,
        ));
    }
    let inside = header.flags.contains(BlockFlags::OPEN_END);
    if !inside && order.position > header.end_lsn {
        return Err(Damage::mismatch(
            "end LSN",
            format_args!("at least {}", order.position),
            header.end_lsn,
        ));
    }
    Ok(())
}

/// Applies the catalog records of a sound block, and checks that its header says so if changes are older than the
/// publications in force.
pub(super) fn check_catalog(block: &Block, catalog: &mut Arc<Catalog>) -> Result<(), Damage> {
    let flags = block.header().flags;
    let mut commit = CommitAt::start(block.header());
    for (place, entry) in block.entries().enumerate() {
        let Some(kind) = entry.kind() else { continue };
        let payload = block.payload(&entry);
        let commit_lsn = commit.of(kind, payload);
        if flags.apply(kind) {
            Catalog::apply(catalog, kind, payload, commit_lsn)
                .map_err(|error| Damage::Content(format!("{error}: {}", error.source)))?;
        }
        let (start, since) = (
            block.start_lsn(&entry),
            catalog.definitions().current().since,
        );
        let is_change = kind.is_event() && kind != RecordKind::Message;
        if is_change && start.is_valid() && start < since && !flags.contains(BlockFlags::OLDER) {
            let problem = format!(
                "entry {place} is a change at {start}, before the publications of {since}, and the header does not say so"
            );
            return Err(Damage::Content(problem));
        }
    }
    Ok(())
}

struct Order {
    position: Lsn,
    events: u64,
}

impl Order {
    fn take(&mut self, kind: RecordKind, payload: &[u8]) -> Result<(), Damage> {
        self.events += u64::from(kind.is_event());
        match kind {
            RecordKind::Begin => match decode(payload, Framing::Plain) {
                Ok(Message::Begin(begin)) => self.not_before("commit LSN", begin.final_lsn),
                _ => Err(unreadable("BEGIN")),
            },
            RecordKind::Commit => match decode(payload, Framing::Plain) {
                Ok(Message::Commit(commit)) => {
                    self.not_before("commit LSN", commit.commit_lsn)?;
                    self.not_before("end LSN", commit.end_lsn)?;
                    self.position = commit.end_lsn;
                    Ok(())
                }
                _ => Err(unreadable("COMMIT")),
            },
            _ => Ok(()),
        }
    }

    fn not_before(&self, what: &'static str, found: Lsn) -> Result<(), Damage> {
        if found >= self.position {
            return Ok(());
        }
        let expected = format!("at least {}", self.position);
        Err(Damage::mismatch(what, expected, found))
    }
}

fn unreadable(what: &str) -> Damage {
    Damage::Content(format!("a record that should be {what} can't be read"))
}
