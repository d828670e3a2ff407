//! Files of prepared transactions, made again from what the log has of them at their PREPARE.

use std::sync::Arc;

use pg_proto::pgoutput::{BeginPrepare, Framing, Message, Prepare, decode};
use pg_proto::{Lsn, Xid};

use super::file::StagedFile;
use super::prepared::{PreparedStore, PreparedTransaction};
use super::transaction::{StagedHead, StagedWriter};
use super::two_phase::{PreparedId, for_each_block};
use crate::block::{Block, BlockFlags, BuildError, Entry};
use crate::error::FormatError;
use crate::log::{Log, ReadError, SeekError};
use crate::record::{PreparedRecord, RecordKind};

impl PreparedStore {
    /// Makes the files again of those of `missing` whose PREPARE the log has at or behind `from`, and takes them out of
    /// `missing`. One record is in memory at a time.
    pub fn restore(
        &self,
        log: &Arc<Log>,
        from: Lsn,
        missing: &mut Vec<PreparedId>,
    ) -> Result<Vec<PreparedTransaction>, SeekError> {
        let mut restored = Vec::new();
        let mut open: Option<StagedWriter> = None;
        for_each_block(log, from, BlockFlags::PREPARED, |block| {
            for entry in block.entries() {
                match (entry.kind(), message(block, &entry)) {
                    (Some(RecordKind::BeginPrepare), Some(Message::BeginPrepare(begin))) => {
                        let wanted = missing.iter().any(|id| is_of(id, &begin));
                        open = wanted.then(|| self.begin(block, &entry, &begin));
                    }
                    (Some(RecordKind::Prepare), Some(Message::Prepare(prepare))) => {
                        if let Some(writer) = open.take() {
                            let prepared = self.end(writer, &prepare)?;
                            missing.retain(|id| *id != prepared.record().id());
                            restored.push(prepared);
                        }
                    }
                    (Some(kind), message) => {
                        if let Some(writer) = &mut open {
                            copy(writer, kind, block, &entry, message)?;
                        }
                    }
                    (None, _) => {}
                }
            }
            Ok(open.is_some() || !missing.is_empty())
        })?;
        Ok(restored)
    }

    fn begin(&self, block: &Block, entry: &Entry, begin: &BeginPrepare<'_>) -> StagedWriter {
        let head = StagedHead {
            xid: begin.xid,
            start: block.start_lsn(entry),
            send_time: block.send_time(entry),
            streamed: entry.xid != 0,
        };
        let path = self.path_of(begin.xid, begin.prepare_lsn);
        let file = StagedFile::new(self.fs(), path.with_extension(super::prepared::UNFINISHED));
        StagedWriter::new(head, file)
    }

    fn end(
        &self,
        mut writer: StagedWriter,
        prepare: &Prepare<'_>,
    ) -> Result<PreparedTransaction, FormatError> {
        writer.flush(prepare.prepare_lsn)?;
        let record = PreparedRecord::new(prepare, true);
        let mut staged = writer.into_transaction();
        self.keep(&mut staged, &record)?;
        Ok(PreparedTransaction::new(staged, record))
    }
}

fn is_of(id: &PreparedId, begin: &BeginPrepare<'_>) -> bool {
    id.prepare_end_lsn == begin.end_lsn && id.gid == begin.gid
}

/// What is needed of a record beside its bytes.
fn message<'a>(block: &'a Block, entry: &Entry) -> Option<Message<'a>> {
    let kind = entry.kind()?;
    let needed = matches!(
        kind,
        RecordKind::BeginPrepare | RecordKind::Prepare | RecordKind::Truncate
    );
    let payload = block.payload(entry);
    needed
        .then(|| decode(payload, Framing::Plain).ok())
        .flatten()
}

fn copy(
    writer: &mut StagedWriter,
    kind: RecordKind,
    block: &Block,
    entry: &Entry,
    message: Option<Message<'_>>,
) -> Result<(), ReadError> {
    let xid = writer.xid();
    let (start, payload) = (block.start_lsn(entry), block.payload(entry));
    // What was rolled back is not in the log, so that it does not matter whose the others were.
    writer.prepare(xid, kind, Lsn::INVALID)?;
    let builder = writer.builder();
    builder.streamed_by(Xid(entry.xid));
    let pushed = match (kind, message) {
        (RecordKind::Truncate, Some(Message::Truncate(truncate))) => {
            builder.push_truncate(truncate.relations(), start, payload)
        }
        (kind, _) if kind.is_aux() => builder.push_aux(kind, payload),
        (kind, _) => match block.relation(entry) {
            Some(relation) => builder.push_change(kind, relation, start, payload),
            None => builder.push_other(kind, start, payload),
        },
    };
    pushed.map_err(|error: BuildError| ReadError::from(FormatError::from(error)))
}
