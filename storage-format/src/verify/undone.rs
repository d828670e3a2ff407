//! Prepared transactions whose end was taken off the log: they are undecided again.
//!
//! Their files went when they were decided, but the log has them at their PREPARE.

use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;

use super::cut::{find_in_blocks, whole_block};
use super::walk::Checked;
use crate::block::BlockFlags;
use crate::error::FormatError;
use crate::fs::Fs;
use crate::log::{Log, ReadOptions, SeekError};
use crate::staging::{PreparedId, PreparedStore, TwoPhaseEvent, event_of, two_phase_events};

/// What came of [`undo_decisions`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Those that are undecided again, with all that they have.
    pub restored: Vec<PreparedId>,
    /// Those whose PREPARE the log does not have any more.
    pub lost: Vec<PreparedId>,
}

/// Makes the files again of transactions whose end was taken off the log, which is otherwise as it will be and whose
/// writer is open. `candidates` are [`CutOff::undone`](super::CutOff::undone).
pub fn undo_decisions(
    fs: &Arc<dyn Fs>,
    directory: &Path,
    store: &PreparedStore,
    mut candidates: Vec<PreparedId>,
) -> Result<Undone, SeekError> {
    if candidates.is_empty() {
        return Ok(Undone::default());
    }
    let log = Log::open_on(Arc::clone(fs), directory, ReadOptions::default())?;
    let oldest = log.kept()?.oldest;
    two_phase_events(&log, oldest, |event| {
        if let TwoPhaseEvent::Decided(id) = event {
            candidates.retain(|candidate| *candidate != id);
        }
    })?;
    let restored = store.restore(&log, oldest, &mut candidates)?;
    Ok(Undone {
        restored: restored.iter().map(|one| one.record().id()).collect(),
        lost: candidates,
    })
}

/// Transactions prepared at or before `lsn` that end in blocks which reach behind it.
pub(super) fn ended_behind(
    fs: &dyn Fs,
    segments: &[&Checked],
    lsn: Lsn,
) -> Result<Vec<PreparedId>, FormatError> {
    let mut ended = Vec::new();
    find_in_blocks(fs, segments, |window, found| {
        let header = &found.header;
        let ends = header.flags.contains(BlockFlags::ENDS_PREPARED);
        // Inside a transaction that spans blocks the end is that of the one before.
        let open = header.flags.contains(BlockFlags::OPEN_END);
        if ends && (header.end_lsn > lsn || open) {
            let block = whole_block(window, found.offset)?;
            ended.extend(block.entries().filter_map(|entry| {
                match event_of(entry.kind()?, block.payload(&entry))? {
                    TwoPhaseEvent::Decided(id) => (id.prepare_end_lsn <= lsn).then_some(id),
                    TwoPhaseEvent::Prepared(_) => None,
                }
            }));
        }
        Ok(None::<()>)
    })?;
    Ok(ended)
}
