//! pgoutput messages of a few tables.

use pg_proto::pgoutput::{self, Begin, Commit, Message};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::record::RecordKind;

/// A type that is not built in, which the tables' second column has.
pub(crate) const TYPE_OID: u32 = 20_000;

pub(crate) const fn relation_oid(table: u8) -> Oid {
    Oid(16_384 + table as u32)
}

/// Tables 0 and 1 are in schema `s0`, 2 and 3 in `s1`.
pub(crate) fn schema_of(table: u8) -> String {
    format!("s{}", table / 2)
}

pub(crate) fn name_of(table: u8, version: u8) -> String {
    // Version 2 is a rename.
    let renamed = if version == 2 { "_renamed" } else { "" };
    format!("t{table}{renamed}")
}

/// A RELATION message with two columns.
pub(crate) fn relation(table: u8, version: u8) -> Vec<u8> {
    relation_with(
        table,
        version,
        &[("id", 23, 1), (column(version), TYPE_OID, 0)],
    )
}

/// The same under a list of the first column.
pub(crate) fn relation_listed(table: u8, version: u8) -> Vec<u8> {
    relation_with(table, version, &[("id", 23, 1)])
}

fn relation_with(table: u8, version: u8, columns: &[(&str, u32, u8)]) -> Vec<u8> {
    let mut out = vec![b'R'];
    out.extend_from_slice(&relation_oid(table).0.to_be_bytes());
    for text in [schema_of(table), name_of(table, version)] {
        out.extend_from_slice(text.as_bytes());
        out.push(0);
    }
    out.push(b'd');
    out.extend_from_slice(&u16::try_from(columns.len()).unwrap().to_be_bytes());
    for (name, oid, flags) in columns {
        out.push(*flags);
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.extend_from_slice(&oid.to_be_bytes());
        out.extend_from_slice(&(-1_i32).to_be_bytes());
    }
    out
}

pub(crate) fn column(version: u8) -> &'static str {
    if version == 1 { "second" } else { "other" }
}

pub(crate) fn named_type(version: u8) -> Vec<u8> {
    let mut out = vec![b'Y'];
    out.extend_from_slice(&TYPE_OID.to_be_bytes());
    out.extend_from_slice(b"public\0mood");
    out.extend_from_slice(version.to_string().as_bytes());
    out.push(0);
    out
}

/// INSERT, UPDATE or DELETE with `id` in the row.
pub(crate) fn row(kind: RecordKind, table: u8, id: u32) -> Vec<u8> {
    let tag = match kind {
        RecordKind::Insert => b'I',
        RecordKind::Update => b'U',
        _ => b'D',
    };
    let mut out = vec![tag];
    out.extend_from_slice(&relation_oid(table).0.to_be_bytes());
    out.push(if tag == b'D' { b'K' } else { b'N' });
    out.extend_from_slice(&2_u16.to_be_bytes());
    let text = id.to_string();
    out.push(b't');
    out.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(if tag == b'U' { b'u' } else { b'n' });
    out
}

/// A row under a list of the first column.
pub(crate) fn listed(row: &[u8]) -> Vec<u8> {
    let (head, rest) = row.split_at(6);
    [head, &1_u16.to_be_bytes(), &rest[2..rest.len() - 1]].concat()
}

pub(crate) fn truncate(tables: &[u8]) -> Vec<u8> {
    let mut out = vec![b'T'];
    out.extend_from_slice(&u32::try_from(tables.len()).unwrap().to_be_bytes());
    out.push(1);
    for table in tables {
        out.extend_from_slice(&relation_oid(*table).0.to_be_bytes());
    }
    out
}

pub(crate) fn origin(name: &str) -> Vec<u8> {
    let mut out = vec![b'O'];
    out.extend_from_slice(&77_u64.to_be_bytes());
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    out
}

pub(crate) fn message(transactional: bool, lsn: Lsn, content: u32) -> Vec<u8> {
    let mut out = vec![b'M', u8::from(transactional)];
    out.extend_from_slice(&lsn.0.to_be_bytes());
    out.extend_from_slice(b"test\0");
    out.extend_from_slice(&4_u32.to_be_bytes());
    out.extend_from_slice(&content.to_be_bytes());
    out
}

pub(crate) fn begin(commit_lsn: Lsn) -> Begin {
    Begin {
        final_lsn: commit_lsn,
        commit_time: commit_time(commit_lsn),
        xid: Xid(u32::try_from(commit_lsn.0 & 0xFFFF_FFFF).unwrap()),
    }
}

pub(crate) fn commit(commit_lsn: Lsn, end_lsn: Lsn) -> Commit {
    Commit {
        commit_lsn,
        end_lsn,
        commit_time: commit_time(commit_lsn),
    }
}

pub(crate) fn commit_time(commit_lsn: Lsn) -> PgTimestamp {
    PgTimestamp(800_000_000_000_000 + i64::try_from(commit_lsn.0).unwrap())
}

pub(crate) fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    pgoutput::encode(message, &mut out);
    out
}
