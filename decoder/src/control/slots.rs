//! Making a slot: where it may start.

use std::path::Path;
use std::time::Instant;

use pg_proto::Lsn;
use pg_proto::pgoutput::{self, Framing, Message};
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

/// The end of the last whole transaction at or below `lsn`, or where the log was said to be complete.
fn round_down(log: &Path, lsn: Lsn) -> Result<Lsn, Status> {
    let options = ReadOptions {
        serve: Serve::Durable,
        cache_bytes: CACHE_BYTES,
    };
    let log = Log::open(log, options).map_err(|error| read_error(&error))?;
    let mut cursor = log.cursor_at(lsn).map_err(|error| seek_error(&error))?;
    let mut end = cursor.position().min(lsn);
    while let Some(block) = cursor.next().map_err(|error| read_error(&error))? {
        if block.header().first_commit_lsn >= lsn {
            break;
        }
        end = commit_ends(&block)
            .take_while(|end| *end <= lsn)
            .fold(end, Lsn::max);
        if cursor.position() > lsn {
            break;
        }
    }
    Ok(end)
}

/// Where the transactions end that end in a block.
fn commit_ends(block: &Block) -> impl Iterator<Item = Lsn> {
    let commits = block
        .entries()
        .filter(|entry| entry.kind() == Some(RecordKind::Commit));
    commits.filter_map(
        |entry| match pgoutput::decode(block.payload(&entry), Framing::Plain) {
            Ok(Message::Commit(commit)) => Some(commit.end_lsn),
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
