//! Which of the prepared transactions that a former process kept are still undecided: it may have ended between writing
//! how one ended and removing its file.

use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;
use pg_proto::pgoutput::{self, Framing, Message};
use storage_format::block::{Block, BlockFlags};
use storage_format::fs::Fs;
use storage_format::log::{Log, ReadOptions, SeekError, Serve};
use storage_format::record::{PreparedRecord, RecordKind};
use storage_format::staging::PreparedTransaction;

/// Only blocks with such an end are looked into, each once.
const CACHE_BYTES: usize = 1 << 20;

/// Those whose end is not in the log; the files of the others go.
pub(super) fn undecided(
    log: &Path,
    mut prepared: Vec<PreparedTransaction>,
    fs: Arc<dyn Fs>,
) -> Result<Vec<PreparedTransaction>, SeekError> {
    let Some(first) = prepared.iter().map(|one| one.record().prepare_lsn).min() else {
        return Ok(prepared);
    };
    let options = ReadOptions {
        serve: Serve::Durable,
        cache_bytes: CACHE_BYTES,
    };
    let log = Log::open_on(fs, log, options)?;
    // What ended in a segment that is gone had its file removed by a process before this one.
    let start = first.max(log.kept()?.oldest);
    let mut cursor = log.cursor_at(start)?;
    let ends = |flags: BlockFlags| flags.contains(BlockFlags::ENDS_PREPARED);
    while let Some(block) = cursor.next_with(&|header, _| ends(header.flags))? {
        for end in ends_in(&block) {
            for one in prepared.iter().filter(|one| end.is_of(one.record())) {
                one.resolved();
            }
            prepared.retain(|one| !end.is_of(one.record()));
        }
    }
    Ok(prepared)
}

/// The end of a prepared transaction.
#[derive(Debug, PartialEq, Eq)]
struct End {
    prepare_end_lsn: Lsn,
    gid: Vec<u8>,
}

impl End {
    fn is_of(&self, record: &PreparedRecord) -> bool {
        self.prepare_end_lsn == record.prepare_end_lsn && self.gid == record.gid
    }
}

fn ends_in(block: &Block) -> Vec<End> {
    let ends = block.entries().filter_map(|entry| match entry.kind()? {
        RecordKind::Prepared => {
            let record = PreparedRecord::decode(block.payload(&entry)).ok()?;
            Some(End {
                prepare_end_lsn: record.prepare_end_lsn,
                gid: record.gid,
            })
        }
        RecordKind::RollbackPrepared => {
            let message = pgoutput::decode(block.payload(&entry), Framing::Plain).ok()?;
            let Message::RollbackPrepared(end) = message else {
                return None;
            };
            Some(End {
                prepare_end_lsn: end.prepare_end_lsn,
                gid: end.gid.to_vec(),
            })
        }
        _ => None,
    });
    ends.collect()
}
