//! Changes as protobuf, written from the log's memory straight into the message that goes to the socket: nothing is built in
//! between, and each byte of a row is copied once. Lengths come before contents, so a row is measured first.
//!
//! Field numbers are those of `subscribe.proto`.

use bytes::{BufMut, BytesMut};
use pg_proto::pgoutput::{self, ColumnValue, OldTuple, Tuple};
use pg_proto::{Lsn, Oid};
use prost::encoding::{encode_varint, encoded_len_varint};
use proto::v1::ChangeKind;

/// Key of a field that holds a number.
const fn number_key(field: u8) -> u8 {
    field << 3
}

/// Key of a field that holds bytes, text or a message.
pub(super) const fn content_key(field: u8) -> u8 {
    (field << 3) | 2
}

/// `TransactionPart.events`.
pub(super) const EVENTS: u8 = content_key(2);

/// A change, and what belongs to it.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) kind: ChangeKind,
    pub(super) relation: Oid,
    /// Its number in its transaction.
    pub(super) ordinal: u64,
    /// Position of its own WAL record.
    pub(super) lsn: Lsn,
    pub(super) rows: Rows<'a>,
}

/// What a change tells of rows.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    /// The message, as PostgreSQL made it.
    Raw(&'a [u8]),
    /// Taken apart.
    Columns {
        new: Option<Tuple<'a>>,
        old: Option<OldTuple<'a>>,
    },
}

impl<'a> Rows<'a> {
    /// Kind, relation and rows of a change.
    pub(super) fn of(change: &pgoutput::Change<'a>) -> (ChangeKind, Oid, Self) {
        let (kind, relation, new, old) = match *change {
            pgoutput::Change::Insert { relation, new, .. } => {
                (ChangeKind::Insert, relation, Some(new), None)
            }
            pgoutput::Change::Update {
                relation, old, new, ..
            } => (ChangeKind::Update, relation, Some(new), old),
            pgoutput::Change::Delete { relation, old, .. } => {
                (ChangeKind::Delete, relation, None, Some(old))
            }
        };
        (kind, relation, Self::Columns { new, old })
    }
}

impl Change<'_> {
    /// Appends the change as one of a part's events.
    pub(super) fn put(&self, out: &mut BytesMut) {
        let measured = self.measure();
        let event = content_len(measured.change);
        out.reserve(content_len(event));
        put_head(EVENTS, event, out);
        put_head(content_key(2), measured.change, out);
        put_number(1, self.kind as u64, out);
        put_number(2, self.relation.0.into(), out);
        put_number(3, self.ordinal, out);
        put_number(4, self.lsn.0, out);
        match self.rows {
            Rows::Raw(message) => {
                put_head(content_key(8), message.len(), out);
                out.put_slice(message);
            }
            Rows::Columns { new, old } => {
                if let Some(new) = new {
                    put_row(5, &new, measured.new, out);
                }
                if let Some(OldTuple::Key(old) | OldTuple::Full(old)) = old {
                    put_row(6, &old, measured.old, out);
                }
                put_number(7, is_key(old).into(), out);
            }
        }
    }

    fn measure(&self) -> Measured {
        let mut measured = Measured {
            change: number_len(self.kind as u64)
                + number_len(self.relation.0.into())
                + number_len(self.ordinal)
                + number_len(self.lsn.0),
            ..Measured::default()
        };
        match self.rows {
            Rows::Raw(message) => measured.change += content_len(message.len()),
            Rows::Columns { new, old } => {
                if let Some(new) = new {
                    measured.new = row_len(&new);
                    measured.change += content_len(measured.new);
                }
                if let Some(OldTuple::Key(row) | OldTuple::Full(row)) = old {
                    measured.old = row_len(&row);
                    measured.change += content_len(measured.old);
                }
                measured.change += number_len(is_key(old).into());
            }
        }
        measured
    }
}

/// Lengths of contents.
#[derive(Clone, Copy, Default)]
struct Measured {
    change: usize,
    new: usize,
    old: usize,
}

const fn is_key(old: Option<OldTuple<'_>>) -> bool {
    matches!(old, Some(OldTuple::Key(_)))
}

/// Appends key and length of what follows.
pub(super) fn put_head(key: u8, len: usize, out: &mut BytesMut) {
    out.put_u8(key);
    encode_varint(len as u64, out);
}

/// Length of a field with so much content.
pub(super) fn content_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

/// As always in proto3, what is 0 is not sent.
fn put_number(field: u8, value: u64, out: &mut BytesMut) {
    if value != 0 {
        out.put_u8(number_key(field));
        encode_varint(value, out);
    }
}

fn number_len(value: u64) -> usize {
    if value == 0 {
        0
    } else {
        1 + encoded_len_varint(value)
    }
}

fn put_row(field: u8, row: &Tuple<'_>, len: usize, out: &mut BytesMut) {
    put_head(content_key(field), len, out);
    for value in row.columns() {
        put_head(content_key(1), value_len(value), out);
        match value {
            ColumnValue::Text(bytes) => put_bytes(1, bytes, out),
            ColumnValue::Binary(bytes) => put_bytes(2, bytes, out),
            ColumnValue::Null => put_head(content_key(3), 0, out),
            ColumnValue::UnchangedToast => put_head(content_key(4), 0, out),
        }
    }
}

fn put_bytes(field: u8, bytes: &[u8], out: &mut BytesMut) {
    put_head(content_key(field), bytes.len(), out);
    out.put_slice(bytes);
}

fn row_len(row: &Tuple<'_>) -> usize {
    row.columns()
        .map(|value| content_len(value_len(value)))
        .sum()
}

fn value_len(value: ColumnValue<'_>) -> usize {
    match value {
        ColumnValue::Text(bytes) | ColumnValue::Binary(bytes) => content_len(bytes.len()),
        ColumnValue::Null | ColumnValue::UnchangedToast => content_len(0),
    }
}
