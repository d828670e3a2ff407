//! What two-phase commit did, as the log tells it.

use std::sync::Arc;

use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode};

use crate::block::{Block, BlockFlags};
use crate::log::{Log, ReadError, SeekError};
use crate::record::{PreparedRecord, RecordKind};

/// Which prepared transaction is meant: identifiers are used again, ends of prepare records are not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreparedId {
    /// End of its prepare record.
    pub prepare_end_lsn: Lsn,
    /// The identifier that its user gave it.
    pub gid: Vec<u8>,
}

/// One step of a prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TwoPhaseEvent {
    /// It is prepared.
    Prepared(PreparedRecord),
    /// It was committed or rolled back.
    Decided(PreparedId),
}

/// Calls `each` for all that two-phase commit did from a position on, in order. Only blocks that have something of it are
/// read. Gaps are passed over: what is missing there can't be told by anybody.
pub fn two_phase_events(
    log: &Arc<Log>,
    from: Lsn,
    mut each: impl FnMut(TwoPhaseEvent),
) -> Result<(), SeekError> {
    let wanted = BlockFlags::PREPARED | BlockFlags::ENDS_PREPARED;
    for_each_block(log, from, wanted, |block| {
        for event in block.entries().filter_map(|entry| {
            let payload = block.payload(&entry);
            event_of(entry.kind()?, payload)
        }) {
            each(event);
        }
        Ok(true)
    })
}

/// Calls `each` for the blocks that have one of `flags`, until it says false.
pub(super) fn for_each_block(
    log: &Arc<Log>,
    from: Lsn,
    flags: BlockFlags,
    mut each: impl FnMut(&Block) -> Result<bool, ReadError>,
) -> Result<(), SeekError> {
    let mut cursor = log.cursor_at(from)?;
    loop {
        match cursor.next_with(&|header, _| header.flags.intersects(flags)) {
            Ok(Some(block)) => {
                if !each(&block)? {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(ReadError::Gap { to, .. }) => cursor = log.cursor_at(to)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a record says of it.
pub(crate) fn event_of(kind: RecordKind, payload: &[u8]) -> Option<TwoPhaseEvent> {
    let decoded = || decode(payload, Framing::Plain).ok();
    let id = |prepare_end_lsn, gid: &[u8]| PreparedId {
        prepare_end_lsn,
        gid: gid.to_vec(),
    };
    match kind {
        RecordKind::Prepare => match decoded()? {
            Message::Prepare(prepare) => {
                Some(TwoPhaseEvent::Prepared(PreparedRecord::new(&prepare, true)))
            }
            _ => None,
        },
        RecordKind::Prepared => {
            let record = PreparedRecord::decode(payload).ok()?;
            Some(TwoPhaseEvent::Decided(record.id()))
        }
        RecordKind::RollbackPrepared => match decoded()? {
            Message::RollbackPrepared(end) => {
                Some(TwoPhaseEvent::Decided(id(end.prepare_end_lsn, end.gid)))
            }
            _ => None,
        },
        _ => None,
    }
}
