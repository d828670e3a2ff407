//! Making a slot: where it may start.

use std::path::Path;
use std::time::Instant;

use pg_proto::Lsn;
use pg_proto::pgoutput::{self, Commit, Framing, Message};
use storage_format::block::Block;
use storage_format::log::{Log, ReadError, ReadOptions, SeekError, Serve};
use storage_format::record::RecordKind;
use tonic::Status;

use super::convert::{internal, registry_error};
use crate::registry::{NewSlot, Registry, Slot};
use crate::retention::Retention;

/// Memory for looking at one place of the log.
const CACHE_BYTES: usize = 4 << 20;

/// Makes a slot at a position that must be kept. While this looks, nothing is deleted, and afterwards the slot holds
/// what it needs. Blocks on the disk.
pub(super) fn create_at(
    log: &Path,
    registry: &Registry,
    retention: &Retention,
    mut new: NewSlot,
) -> Result<Slot, Status> {
    let _paused = retention.pause();
    new.start_lsn = round_down(log, new.start_lsn)?;
    registry.create(new, Instant::now()).map_err(registry_error)
}

/// The position itself, unless it lies inside the record that commits a transaction: a subscriber that starts there
/// would miss the transaction, so it starts at the record.
fn round_down(log: &Path, lsn: Lsn) -> Result<Lsn, Status> {
    let options = ReadOptions {
        serve: Serve::Durable,
        cache_bytes: CACHE_BYTES,
    };
    let log = Log::open(log, options).map_err(|error| read_error(&error))?;
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

fn seek_error(error: &SeekError) -> Status {
    match error {
        SeekError::NotKept { .. } | SeekError::Ahead { .. } => {
            Status::out_of_range(error.to_string())
        }
        SeekError::Read(error) => read_error(error),
    }
}

fn read_error(error: &ReadError) -> Status {
    match error {
        ReadError::Empty { .. } => Status::failed_precondition(error.to_string()),
        ReadError::NotKept { .. } => Status::out_of_range(error.to_string()),
        _ => internal(error),
    }
}
