//! From messages to bytes: the inverse of [`decode`](super::decode()).

use super::message::{
    Begin, BeginPrepare, Change, Commit, CommitPrepared, LogicalMessage, Message, OldTuple, Origin,
    Prepare, Relation, RollbackPrepared, StreamAbort, StreamCommit, StreamStart, Truncate, Type,
};
use super::tag;
use super::tuple::Tuple;
use crate::{Oid, Xid};

/// Appends the message's bytes to `out`. A message with an `xid` gets the form of a streamed block.
///
/// Strings must not hold a zero byte, since one ends them. Counts and lengths that the format can't express
/// (65,536 columns, content of 4 GiB) are cut at what it can.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    match message {
        Message::Begin(begin) => put_begin(begin, out),
        Message::Commit(commit) => {
            out.push(tag::COMMIT);
            put_commit(commit, out);
        }
        Message::Origin(origin) => put_origin(origin, out),
        Message::Relation(relation) => put_relation(relation, out),
        Message::Type(named) => put_type(named, out),
        Message::Change(change) => put_change(change, out),
        Message::Truncate(truncate) => put_truncate(truncate, out),
        Message::LogicalMessage(logical) => put_logical_message(logical, out),
        Message::StreamStart(start) => put_stream_start(start, out),
        Message::StreamStop => out.push(tag::STREAM_STOP),
        Message::StreamCommit(commit) => put_stream_commit(commit, out),
        Message::StreamAbort(abort) => put_stream_abort(abort, out),
        Message::BeginPrepare(begin) => put_begin_prepare(begin, out),
        Message::Prepare(prepare) => put_prepare(tag::PREPARE, prepare, out),
        Message::StreamPrepare(prepare) => put_prepare(tag::STREAM_PREPARE, prepare, out),
        Message::CommitPrepared(commit) => put_commit_prepared(commit, out),
        Message::RollbackPrepared(rollback) => put_rollback_prepared(rollback, out),
    }
}

fn put_u32(value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u64(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_i64(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_cstr(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(text);
    out.push(0);
}

/// The tag, and the transaction id if there is one.
fn put_head(tag: u8, xid: Option<Xid>, out: &mut Vec<u8>) {
    out.push(tag);
    if let Some(xid) = xid {
        put_u32(xid.0, out);
    }
}

fn put_begin(begin: &Begin, out: &mut Vec<u8>) {
    out.push(tag::BEGIN);
    put_u64(begin.final_lsn.0, out);
    put_i64(begin.commit_time.0, out);
    put_u32(begin.xid.0, out);
}

fn put_commit(commit: &Commit, out: &mut Vec<u8>) {
    out.push(0);
    put_u64(commit.commit_lsn.0, out);
    put_u64(commit.end_lsn.0, out);
    put_i64(commit.commit_time.0, out);
}

fn put_origin(origin: &Origin<'_>, out: &mut Vec<u8>) {
    out.push(tag::ORIGIN);
    put_u64(origin.origin_lsn.0, out);
    put_cstr(origin.name, out);
}

fn put_relation(relation: &Relation<'_>, out: &mut Vec<u8>) {
    put_head(tag::RELATION, relation.xid, out);
    put_u32(relation.oid.0, out);
    put_cstr(relation.namespace, out);
    put_cstr(relation.name, out);
    out.push(relation.replica_identity as u8);
    let count = u16::try_from(relation.columns.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for column in relation.columns.iter().take(usize::from(count)) {
        out.push(u8::from(column.is_key));
        put_cstr(column.name, out);
        put_u32(column.type_oid.0, out);
        out.extend_from_slice(&column.type_modifier.to_be_bytes());
    }
}

fn put_type(named: &Type<'_>, out: &mut Vec<u8>) {
    put_head(tag::TYPE, named.xid, out);
    put_u32(named.oid.0, out);
    put_cstr(named.namespace, out);
    put_cstr(named.name, out);
}

fn put_change(change: &Change<'_>, out: &mut Vec<u8>) {
    match change {
        Change::Insert { xid, relation, new } => {
            put_change_head(tag::INSERT, *xid, *relation, out);
            put_tuple(b'N', new, out);
        }
        Change::Update {
            xid,
            relation,
            old,
            new,
        } => {
            put_change_head(tag::UPDATE, *xid, *relation, out);
            if let Some(old) = old {
                put_old_tuple(old, out);
            }
            put_tuple(b'N', new, out);
        }
        Change::Delete { xid, relation, old } => {
            put_change_head(tag::DELETE, *xid, *relation, out);
            put_old_tuple(old, out);
        }
    }
}

fn put_change_head(tag: u8, xid: Option<Xid>, relation: Oid, out: &mut Vec<u8>) {
    put_head(tag, xid, out);
    put_u32(relation.0, out);
}

fn put_old_tuple(old: &OldTuple<'_>, out: &mut Vec<u8>) {
    match old {
        OldTuple::Key(tuple) => put_tuple(b'K', tuple, out),
        OldTuple::Full(tuple) => put_tuple(b'O', tuple, out),
    }
}

fn put_tuple(kind: u8, tuple: &Tuple<'_>, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&tuple.column_count().to_be_bytes());
    out.extend_from_slice(tuple.as_bytes());
}

fn put_truncate(truncate: &Truncate<'_>, out: &mut Vec<u8>) {
    put_head(tag::TRUNCATE, truncate.xid, out);
    let count = u32::try_from(truncate.relations.len()).unwrap_or(u32::MAX);
    put_u32(count, out);
    out.push(u8::from(truncate.cascade) | u8::from(truncate.restart_identity) << 1);
    out.extend_from_slice(truncate.relations.as_flattened());
}

fn put_logical_message(message: &LogicalMessage<'_>, out: &mut Vec<u8>) {
    put_head(tag::MESSAGE, message.xid, out);
    out.push(u8::from(message.transactional));
    put_u64(message.lsn.0, out);
    put_cstr(message.prefix, out);
    let length = u32::try_from(message.content.len()).unwrap_or(u32::MAX);
    put_u32(length, out);
    let fitting = usize::try_from(length).unwrap_or(usize::MAX);
    out.extend_from_slice(message.content.get(..fitting).unwrap_or(message.content));
}

fn put_stream_start(start: &StreamStart, out: &mut Vec<u8>) {
    out.push(tag::STREAM_START);
    put_u32(start.xid.0, out);
    out.push(u8::from(start.first_segment));
}

fn put_stream_commit(commit: &StreamCommit, out: &mut Vec<u8>) {
    out.push(tag::STREAM_COMMIT);
    put_u32(commit.xid.0, out);
    put_commit(&commit.commit, out);
}

fn put_stream_abort(abort: &StreamAbort, out: &mut Vec<u8>) {
    out.push(tag::STREAM_ABORT);
    put_u32(abort.xid.0, out);
    put_u32(abort.subxid.0, out);
    if let Some((lsn, time)) = abort.abort {
        put_u64(lsn.0, out);
        put_i64(time.0, out);
    }
}

fn put_begin_prepare(begin: &BeginPrepare<'_>, out: &mut Vec<u8>) {
    out.push(tag::BEGIN_PREPARE);
    put_u64(begin.prepare_lsn.0, out);
    put_u64(begin.end_lsn.0, out);
    put_i64(begin.prepare_time.0, out);
    put_u32(begin.xid.0, out);
    put_cstr(begin.gid, out);
}

fn put_prepare(tag: u8, prepare: &Prepare<'_>, out: &mut Vec<u8>) {
    out.push(tag);
    out.push(0);
    put_u64(prepare.prepare_lsn.0, out);
    put_u64(prepare.end_lsn.0, out);
    put_i64(prepare.prepare_time.0, out);
    put_u32(prepare.xid.0, out);
    put_cstr(prepare.gid, out);
}

fn put_commit_prepared(commit: &CommitPrepared<'_>, out: &mut Vec<u8>) {
    out.push(tag::COMMIT_PREPARED);
    put_commit(&commit.commit, out);
    put_u32(commit.xid.0, out);
    put_cstr(commit.gid, out);
}

fn put_rollback_prepared(rollback: &RollbackPrepared<'_>, out: &mut Vec<u8>) {
    out.push(tag::ROLLBACK_PREPARED);
    out.push(0);
    put_u64(rollback.prepare_end_lsn.0, out);
    put_u64(rollback.rollback_end_lsn.0, out);
    put_i64(rollback.prepare_time.0, out);
    put_i64(rollback.rollback_time.0, out);
    put_u32(rollback.xid.0, out);
    put_cstr(rollback.gid, out);
}
