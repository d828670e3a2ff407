//! From bytes to messages.

use super::message::{
    Begin, BeginPrepare, Change, Commit, CommitPrepared, LogicalMessage, Message, OldTuple, Origin,
    Prepare, Relation, RelationColumn, ReplicaIdentity, RollbackPrepared, StreamAbort,
    StreamCommit, StreamStart, Truncate, Type,
};
use super::tag;
use super::tuple::Tuple;
use crate::read::{ReadError, Reader};
use crate::{Lsn, Oid, PgTimestamp, Xid};

/// Whether a message stands between STREAM START and STREAM STOP, and so carries a transaction id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Outside, and always with protocol 1.
    Plain,
    /// Inside.
    Streamed,
}

impl Framing {
    pub(super) fn take_xid(self, reader: &mut Reader<'_>) -> Result<Option<Xid>, ReadError> {
        match self {
            Self::Plain => Ok(None),
            Self::Streamed => take_xid(reader).map(Some),
        }
    }
}

/// Decodes one message, which must fill `payload` exactly.
///
/// What PostgreSQL's own receiver refuses is refused here: flags that must be zero, unknown flag bits, a
/// position that must not be `0/0`. So [`encode`](super::encode()) gives the same bytes back.
pub fn decode(payload: &[u8], framing: Framing) -> Result<Message<'_>, ReadError> {
    let mut reader = Reader::new(payload);
    let message = match reader.u8("message tag")? {
        tag::INSERT => Message::Change(insert(&mut reader, framing)?),
        tag::UPDATE => Message::Change(update(&mut reader, framing)?),
        tag::DELETE => Message::Change(delete(&mut reader, framing)?),
        tag::BEGIN => Message::Begin(begin(&mut reader)?),
        tag::COMMIT => Message::Commit(commit(&mut reader)?),
        tag::ORIGIN => Message::Origin(origin(&mut reader)?),
        tag::RELATION => Message::Relation(relation(&mut reader, framing)?),
        tag::TYPE => Message::Type(type_name(&mut reader, framing)?),
        tag::TRUNCATE => Message::Truncate(truncate(&mut reader, framing)?),
        tag::MESSAGE => Message::LogicalMessage(logical_message(&mut reader, framing)?),
        tag::STREAM_START => Message::StreamStart(stream_start(&mut reader)?),
        tag::STREAM_STOP => Message::StreamStop,
        tag::STREAM_COMMIT => Message::StreamCommit(stream_commit(&mut reader)?),
        tag::STREAM_ABORT => Message::StreamAbort(stream_abort(&mut reader)?),
        tag::BEGIN_PREPARE => Message::BeginPrepare(begin_prepare(&mut reader)?),
        tag::PREPARE => Message::Prepare(prepare(&mut reader)?),
        tag::COMMIT_PREPARED => Message::CommitPrepared(commit_prepared(&mut reader)?),
        tag::ROLLBACK_PREPARED => Message::RollbackPrepared(rollback_prepared(&mut reader)?),
        tag::STREAM_PREPARE => Message::StreamPrepare(prepare(&mut reader)?),
        other => return Err(reader.invalid("message tag", other)),
    };
    reader.finish("the message")?;
    Ok(message)
}

fn take_xid(reader: &mut Reader<'_>) -> Result<Xid, ReadError> {
    reader.u32("xid").map(Xid)
}

fn take_lsn(reader: &mut Reader<'_>, field: &'static str) -> Result<Lsn, ReadError> {
    reader.u64(field).map(Lsn)
}

/// A position that the receiver refuses if it is `0/0` (`proto.c`: "final_lsn not set in begin message").
fn take_set_lsn(reader: &mut Reader<'_>, field: &'static str) -> Result<Lsn, ReadError> {
    let lsn = take_lsn(reader, field)?;
    if lsn.is_valid() {
        Ok(lsn)
    } else {
        Err(reader.invalid(field, 0))
    }
}

fn take_time(reader: &mut Reader<'_>, field: &'static str) -> Result<PgTimestamp, ReadError> {
    reader.i64(field).map(PgTimestamp)
}

/// A byte of flags of which only the bits in `known` may be set.
fn take_flags(reader: &mut Reader<'_>, field: &'static str, known: u8) -> Result<u8, ReadError> {
    let flags = reader.u8(field)?;
    if flags & !known == 0 {
        Ok(flags)
    } else {
        Err(reader.invalid(field, flags))
    }
}

fn begin(reader: &mut Reader<'_>) -> Result<Begin, ReadError> {
    Ok(Begin {
        final_lsn: take_set_lsn(reader, "final_lsn")?,
        commit_time: take_time(reader, "commit_time")?,
        xid: take_xid(reader)?,
    })
}

fn commit(reader: &mut Reader<'_>) -> Result<Commit, ReadError> {
    take_flags(reader, "commit flags", 0)?;
    Ok(Commit {
        commit_lsn: take_lsn(reader, "commit_lsn")?,
        end_lsn: take_lsn(reader, "end_lsn")?,
        commit_time: take_time(reader, "commit_time")?,
    })
}

fn origin<'a>(reader: &mut Reader<'a>) -> Result<Origin<'a>, ReadError> {
    Ok(Origin {
        origin_lsn: take_lsn(reader, "origin_lsn")?,
        name: reader.cstr("origin name")?,
    })
}

fn relation<'a>(reader: &mut Reader<'a>, framing: Framing) -> Result<Relation<'a>, ReadError> {
    let (mut relation, count) = relation_head(reader, framing)?;
    // A column takes at least 10 bytes: a count that can't be true reserves no memory.
    relation
        .columns
        .reserve_exact(usize::from(count).min(reader.rest().len() / 10));
    for _ in 0..count {
        relation.columns.push(relation_column(reader)?);
    }
    Ok(relation)
}

/// A relation without its columns, and how many follow.
pub(super) fn relation_head<'a>(
    reader: &mut Reader<'a>,
    framing: Framing,
) -> Result<(Relation<'a>, u16), ReadError> {
    let relation = Relation {
        xid: framing.take_xid(reader)?,
        oid: Oid(reader.u32("relation oid")?),
        namespace: reader.cstr("relation namespace")?,
        name: reader.cstr("relation name")?,
        replica_identity: replica_identity(reader)?,
        columns: Vec::new(),
    };
    Ok((relation, reader.u16("relation column count")?))
}

fn replica_identity(reader: &mut Reader<'_>) -> Result<ReplicaIdentity, ReadError> {
    match reader.u8("replica identity")? {
        b'd' => Ok(ReplicaIdentity::Default),
        b'n' => Ok(ReplicaIdentity::Nothing),
        b'f' => Ok(ReplicaIdentity::Full),
        b'i' => Ok(ReplicaIdentity::Index),
        other => Err(reader.invalid("replica identity", other)),
    }
}

pub(super) fn relation_column<'a>(
    reader: &mut Reader<'a>,
) -> Result<RelationColumn<'a>, ReadError> {
    Ok(RelationColumn {
        is_key: take_flags(reader, "column flags", 1)? != 0,
        name: reader.cstr("column name")?,
        type_oid: Oid(reader.u32("column type oid")?),
        type_modifier: reader.i32("column type modifier")?,
    })
}

fn type_name<'a>(reader: &mut Reader<'a>, framing: Framing) -> Result<Type<'a>, ReadError> {
    Ok(Type {
        xid: framing.take_xid(reader)?,
        oid: Oid(reader.u32("type oid")?),
        namespace: reader.cstr("type namespace")?,
        name: reader.cstr("type name")?,
    })
}

fn insert<'a>(reader: &mut Reader<'a>, framing: Framing) -> Result<Change<'a>, ReadError> {
    let xid = framing.take_xid(reader)?;
    let relation = Oid(reader.u32("relation oid")?);
    match reader.u8("tuple kind")? {
        b'N' => Ok(Change::Insert {
            xid,
            relation,
            new: Tuple::take(reader)?,
        }),
        other => Err(reader.invalid("tuple kind", other)),
    }
}

fn update<'a>(reader: &mut Reader<'a>, framing: Framing) -> Result<Change<'a>, ReadError> {
    let xid = framing.take_xid(reader)?;
    let relation = Oid(reader.u32("relation oid")?);
    let mut kind = reader.u8("tuple kind")?;
    let mut old = None;
    if kind != b'N' {
        old = Some(old_tuple(reader, kind)?);
        kind = reader.u8("new tuple kind")?;
    }
    if kind != b'N' {
        return Err(reader.invalid("new tuple kind", kind));
    }
    Ok(Change::Update {
        xid,
        relation,
        old,
        new: Tuple::take(reader)?,
    })
}

fn delete<'a>(reader: &mut Reader<'a>, framing: Framing) -> Result<Change<'a>, ReadError> {
    let xid = framing.take_xid(reader)?;
    let relation = Oid(reader.u32("relation oid")?);
    let kind = reader.u8("tuple kind")?;
    Ok(Change::Delete {
        xid,
        relation,
        old: old_tuple(reader, kind)?,
    })
}

fn old_tuple<'a>(reader: &mut Reader<'a>, kind: u8) -> Result<OldTuple<'a>, ReadError> {
    match kind {
        b'K' => Tuple::take(reader).map(OldTuple::Key),
        b'O' => Tuple::take(reader).map(OldTuple::Full),
        other => Err(reader.invalid("tuple kind", other)),
    }
}

fn truncate<'a>(reader: &mut Reader<'a>, framing: Framing) -> Result<Truncate<'a>, ReadError> {
    let xid = framing.take_xid(reader)?;
    let count = reader.u32("relation count")?;
    let flags = take_flags(reader, "truncate flags", 3)?;
    let need = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(4));
    let need = need.ok_or_else(|| reader.invalid("relation count", count))?;
    let (relations, _) = reader.bytes(need, "truncated relations")?.as_chunks();
    Ok(Truncate::new(
        xid,
        flags & 1 != 0,
        flags & 2 != 0,
        relations,
    ))
}

fn logical_message<'a>(
    reader: &mut Reader<'a>,
    framing: Framing,
) -> Result<LogicalMessage<'a>, ReadError> {
    let xid = framing.take_xid(reader)?;
    let transactional = take_flags(reader, "message flags", 1)? != 0;
    let lsn = take_lsn(reader, "message lsn")?;
    let prefix = reader.cstr("message prefix")?;
    let length = reader.u32("message length")?;
    let need = usize::try_from(length).map_err(|_| reader.invalid("message length", length))?;
    Ok(LogicalMessage {
        xid,
        transactional,
        lsn,
        prefix,
        content: reader.bytes(need, "message content")?,
    })
}

fn stream_start(reader: &mut Reader<'_>) -> Result<StreamStart, ReadError> {
    Ok(StreamStart {
        xid: take_xid(reader)?,
        first_segment: take_flags(reader, "first_segment", 1)? != 0,
    })
}

fn stream_commit(reader: &mut Reader<'_>) -> Result<StreamCommit, ReadError> {
    Ok(StreamCommit {
        xid: take_xid(reader)?,
        commit: commit(reader)?,
    })
}

fn stream_abort(reader: &mut Reader<'_>) -> Result<StreamAbort, ReadError> {
    let xid = take_xid(reader)?;
    let subxid = take_xid(reader)?;
    // The two fields depend on an option of START_REPLICATION, not on the version, so on the length here.
    let abort = if reader.is_empty() {
        None
    } else {
        Some((
            take_lsn(reader, "abort_lsn")?,
            take_time(reader, "abort_time")?,
        ))
    };
    Ok(StreamAbort { xid, subxid, abort })
}

fn begin_prepare<'a>(reader: &mut Reader<'a>) -> Result<BeginPrepare<'a>, ReadError> {
    Ok(BeginPrepare {
        prepare_lsn: take_set_lsn(reader, "prepare_lsn")?,
        end_lsn: take_set_lsn(reader, "end_lsn")?,
        prepare_time: take_time(reader, "prepare_time")?,
        xid: take_xid(reader)?,
        gid: reader.cstr("gid")?,
    })
}

fn prepare<'a>(reader: &mut Reader<'a>) -> Result<Prepare<'a>, ReadError> {
    take_flags(reader, "prepare flags", 0)?;
    Ok(Prepare {
        prepare_lsn: take_set_lsn(reader, "prepare_lsn")?,
        end_lsn: take_set_lsn(reader, "end_lsn")?,
        prepare_time: take_time(reader, "prepare_time")?,
        xid: take_xid(reader)?,
        gid: reader.cstr("gid")?,
    })
}

fn commit_prepared<'a>(reader: &mut Reader<'a>) -> Result<CommitPrepared<'a>, ReadError> {
    Ok(CommitPrepared {
        commit: commit(reader)?,
        xid: take_xid(reader)?,
        gid: reader.cstr("gid")?,
    })
}

fn rollback_prepared<'a>(reader: &mut Reader<'a>) -> Result<RollbackPrepared<'a>, ReadError> {
    take_flags(reader, "rollback flags", 0)?;
    Ok(RollbackPrepared {
        prepare_end_lsn: take_set_lsn(reader, "prepare_end_lsn")?,
        rollback_end_lsn: take_set_lsn(reader, "rollback_end_lsn")?,
        prepare_time: take_time(reader, "prepare_time")?,
        rollback_time: take_time(reader, "rollback_time")?,
        xid: take_xid(reader)?,
        gid: reader.cstr("gid")?,
    })
}
