//! Making and moving slots: where they may stand.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pg_proto::pgoutput::{self, Commit, Framing, Message};
use pg_proto::{Lsn, PgTimestamp};
use storage_format::block::Block;
use storage_format::log::{Log, ReadError, ReadOptions, SeekError, Serve};
use storage_format::record::RecordKind;
use tonic::Status;

use super::convert::{internal, registry_error};
use crate::registry::{Holder, NewSlot, Registry, RegistryError, Slot, SlotChange};
use crate::retention::Retention;

/// Memory for looking at one place of the log.
pub(super) const CACHE_BYTES: usize = 4 << 20;

/// Where a slot is to stand, or a definition to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// At a position.
    Lsn(Lsn),
    /// Before the first transaction that was committed then or later.
    Time(PgTimestamp),
}

impl Position {
    /// From the fields of a request, of which at most one may be given.
    pub(super) fn of_request(lsn: Option<u64>, time: Option<i64>) -> Result<Option<Self>, Status> {
        match (lsn, time) {
            (Some(_), Some(_)) => Err(Status::invalid_argument(
                "a position and a time are given: one of them is enough",
            )),
            (Some(lsn), None) => Ok(Some(Self::Lsn(Lsn(lsn)))),
            (None, Some(time)) => Ok(Some(Self::Time(PgTimestamp::from_unix_micros(time)))),
            (None, None) => Ok(None),
        }
    }
}

/// Makes a slot at a position that must be kept. While this looks, nothing is deleted, and afterwards the slot holds
/// what it needs. Blocks on the disk.
pub(super) fn create_at(
    log: &Path,
    registry: &Registry,
    retention: &Retention,
    mut new: NewSlot,
    position: Position,
) -> Result<Slot, Status> {
    let _paused = retention.pause();
    new.start_lsn = find(log, position)?;
    registry.create(new, Instant::now()).map_err(registry_error)
}

/// Makes a slot that stands where another one does and is of its kind.
pub(super) fn create_copy(
    registry: &Registry,
    retention: &Retention,
    mut new: NewSlot,
    source: &str,
) -> Result<Slot, Status> {
    // What the other one holds is kept until the new one holds it too.
    let _paused = retention.pause();
    let source = registry.get(source).map_err(registry_error)?;
    if let Some(reason) = source.invalidation {
        let name = source.name;
        return Err(registry_error(RegistryError::Invalidated { name, reason }));
    }
    new.start_lsn = source.confirmed_lsn;
    new.two_phase = source.two_phase;
    new.failover = source.failover;
    new.plugin = source.plugin;
    if new.creator.is_empty() {
        new.creator = source.creator;
    }
    registry.create(new, Instant::now()).map_err(registry_error)
}

/// Changes a slot; it may be moved to any position that is kept. Blocks on the disk.
pub(super) fn alter(
    log: &Path,
    registry: &Registry,
    retention: &Retention,
    (name, holder): (&str, Option<&Holder>),
    (mut change, position): (SlotChange, Option<Position>),
) -> Result<Slot, Status> {
    let _paused = retention.pause();
    if let Some(position) = position {
        registry.get(name).map_err(registry_error)?;
        change.position = Some(find(log, position)?);
    }
    let altered = registry.alter(name, holder, change, Instant::now());
    altered.map_err(registry_error)
}

fn find(log: &Path, position: Position) -> Result<Lsn, Status> {
    let options = ReadOptions {
        serve: Serve::Durable,
        cache_bytes: CACHE_BYTES,
    };
    let log = Log::open(log, options).map_err(|error| read_error(&error))?;
    match position {
        Position::Lsn(lsn) => round_down(&log, lsn),
        Position::Time(_) => find_exactly(&log, position),
    }
}

/// The position itself, if it is kept.
pub(super) fn find_exactly(log: &Arc<Log>, position: Position) -> Result<Lsn, Status> {
    let cursor = match position {
        Position::Lsn(lsn) => log.cursor_at(lsn),
        Position::Time(time) => log.cursor_at_time(time),
    };
    Ok(cursor.map_err(|error| seek_error(&error))?.start())
}

/// The position itself, unless it lies inside the record that commits a transaction: a subscriber that starts there
/// would miss the transaction, so it starts at the record.
fn round_down(log: &Arc<Log>, lsn: Lsn) -> Result<Lsn, Status> {
    let mut cursor = log.cursor_at(lsn).map_err(|error| seek_error(&error))?;
    while let Some(block) = cursor.next().map_err(|error| read_error(&error))? {
        if block.header().first_commit_lsn >= lsn {
            break;
        }
        if let Some(commit) = commits(&block).find(|commit| commit.end_lsn > lsn) {
            return Ok(lsn.min(commit.commit_lsn));
        }
    }
    Ok(lsn)
}

/// The commits in a block.
fn commits(block: &Block) -> impl Iterator<Item = Commit> {
    let commits = block
        .entries()
        .filter(|entry| entry.kind() == Some(RecordKind::Commit));
    commits.filter_map(
        |entry| match pgoutput::decode(block.payload(&entry), Framing::Plain) {
            Ok(Message::Commit(commit)) => Some(commit),
            _ => None,
        },
    )
}

pub(super) fn seek_error(error: &SeekError) -> Status {
    match error {
        SeekError::NotKept { .. } | SeekError::Ahead { .. } => {
            Status::out_of_range(error.to_string())
        }
        SeekError::Read(error) => read_error(error),
    }
}

pub(super) fn read_error(error: &ReadError) -> Status {
    match error {
        ReadError::Empty { .. } => Status::failed_precondition(error.to_string()),
        ReadError::NotKept { .. } => Status::out_of_range(error.to_string()),
        _ => internal(error),
    }
}
