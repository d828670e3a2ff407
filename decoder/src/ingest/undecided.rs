//! Which of the prepared transactions are undecided when a process begins: it may find a file of one that has ended, or
//! none, or half a one, where the machine went down.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;
use storage_format::FormatError;
use storage_format::fs::Fs;
use storage_format::log::{Log, ReadOptions, SeekError, Serve};
use storage_format::record::PreparedRecord;
use storage_format::segment::{SegmentState, list_segments};
use storage_format::staging::{
    PreparedId, PreparedStore, PreparedTransaction, TwoPhaseEvent, two_phase_events,
};

use super::IngestError;

/// Only blocks with such records are looked into, each once or twice.
const CACHE_BYTES: usize = 1 << 20;

/// Those that are prepared in the log, which ends at `log_end`, and whose end is not there; durable. The files of the
/// others go.
pub(super) fn undecided(
    directory: &Path,
    store: &PreparedStore,
    log_end: Lsn,
    fs: &Arc<dyn Fs>,
) -> Result<Vec<PreparedTransaction>, IngestError> {
    let mut loaded = store.load(log_end)?;
    let options = ReadOptions {
        serve: Serve::Durable,
        cache_bytes: CACHE_BYTES,
    };
    let log = Log::open_on(Arc::clone(fs), directory, options).map_err(SeekError::from)?;
    let known = loaded.first_prepare_lsn().into_iter();
    let from = known.chain(first_unsealed(&**fs, directory)?).min();
    let Some(from) = from else {
        return Ok(loaded.whole);
    };
    // What ended in a segment that is gone had its file removed by a process before this one.
    let from = from.max(log.kept().map_err(SeekError::from)?.oldest);
    let mut prepared: BTreeMap<PreparedId, PreparedRecord> = BTreeMap::new();
    let mut given_up = Vec::new();
    two_phase_events(&log, from, |event| match event {
        TwoPhaseEvent::Prepared(record) => {
            prepared.insert(record.id(), record);
        }
        TwoPhaseEvent::Decided(id) => {
            if let Some(record) = prepared.remove(&id).filter(|_| !loaded.damaged.is_empty()) {
                given_up.push(record);
            }
            for one in loaded.whole.iter().filter(|one| one.record().id() == id) {
                one.resolved();
            }
            loaded.whole.retain(|one| one.record().id() != id);
        }
    })?;
    for record in given_up.iter().chain(prepared.values()) {
        store.remove_damaged(&mut loaded, record.xid, record.prepare_lsn)?;
    }
    if let Some((_, error)) = loaded.damaged.into_iter().next() {
        return Err(error.into());
    }
    for one in &loaded.whole {
        prepared.remove(&one.record().id());
    }
    let first_missing = prepared.values().map(|record| record.prepare_lsn).min();
    let mut missing: Vec<PreparedId> = prepared.into_keys().collect();
    if let Some(from) = first_missing {
        tracing::info!(
            count = missing.len(),
            "files of prepared transactions are made again from the log"
        );
        loaded
            .whole
            .extend(store.restore(&log, from, &mut missing)?);
    }
    Ok(loaded.whole)
}

/// Where the part of the log begins of whose prepared transactions the files may not be durable.
fn first_unsealed(fs: &dyn Fs, directory: &Path) -> Result<Option<Lsn>, FormatError> {
    let segments = list_segments(fs, directory)?;
    let unsealed = segments
        .iter()
        .filter(|segment| segment.state == SegmentState::Active);
    Ok(unsealed.map(|segment| segment.name.first_lsn).min())
}
