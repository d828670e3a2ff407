//! Rows with values in binary (`binary 'true'`), made of the text that the log has.
//!
//! A value goes in binary if its type's send function can be followed exactly from its text; for all others text stays,
//! which the protocol allows: each column says which of the two it is. A type is known by its OID, which is the same on
//! every server for built-in types, and for a domain by its TYPE message, which names what it is made of.

mod array;
mod codec;
mod interval;
mod numeric;
mod scalar;
#[cfg(test)]
mod tests;
mod time;

use std::collections::HashMap;

use pg_proto::Oid;
use pg_proto::pgoutput::{
    Change, ColumnValue, Framing, Message, OldTuple, Tuple, TupleBuf, decode, encode,
};
use storage_format::record::RecordKind;

use codec::Codec;

/// What a connection's relations look like, and buffers that are kept.
#[derive(Debug, Default)]
pub(super) struct Binary {
    relations: HashMap<Oid, Box<[Codec]>>,
    /// Domains over types that can be converted.
    domains: HashMap<Oid, Codec>,
    value: Vec<u8>,
    old: TupleBuf,
    new: TupleBuf,
}

impl Binary {
    /// Notes what a RELATION or TYPE says. Appends a row's message with binary values to `out`; false if it stays as it
    /// is.
    pub(super) fn convert(&mut self, kind: RecordKind, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let is_row = matches!(
            kind,
            RecordKind::Insert | RecordKind::Update | RecordKind::Delete
        );
        if !is_row && !matches!(kind, RecordKind::Relation | RecordKind::Type) {
            return false;
        }
        match decode(payload, Framing::Plain) {
            Ok(Message::Relation(relation)) => {
                let columns = relation.columns.iter();
                let codecs = columns.map(|column| self.codec(column.type_oid)).collect();
                self.relations.insert(relation.oid, codecs);
                false
            }
            Ok(Message::Type(one)) => {
                self.note_type(one.oid, one.namespace, one.name);
                false
            }
            Ok(Message::Change(change)) => self.row(&change, out),
            _ => false,
        }
    }

    fn codec(&self, type_oid: Oid) -> Codec {
        let domain = self.domains.get(&type_oid).copied();
        domain.unwrap_or_else(|| Codec::of(type_oid))
    }

    /// An empty namespace is pg_catalog: a type of one's own there can only be a domain.
    fn note_type(&mut self, oid: Oid, namespace: &[u8], name: &[u8]) {
        let base = namespace.is_empty().then(|| Codec::named(name)).flatten();
        match base {
            Some(codec) => drop(self.domains.insert(oid, codec)),
            None => drop(self.domains.remove(&oid)),
        }
    }

    fn row(&mut self, change: &Change<'_>, out: &mut Vec<u8>) -> bool {
        let Self {
            relations,
            value,
            old: old_buf,
            new: new_buf,
            ..
        } = self;
        let Some(codecs) = relations.get(&change.relation()) else {
            return false;
        };
        if codecs.iter().all(|codec| *codec == Codec::Text) {
            return false;
        }
        let mut fill = |tuple: Tuple<'_>, buf: &mut TupleBuf| fill(tuple, codecs, value, buf);
        let mut old = |old: OldTuple<'_>| match old {
            OldTuple::Key(tuple) => {
                fill(tuple, old_buf);
                true
            }
            OldTuple::Full(tuple) => {
                fill(tuple, old_buf);
                false
            }
        };
        let is_key = match change {
            Change::Insert { .. } => None,
            Change::Update { old: before, .. } => before.map(&mut old),
            Change::Delete { old: before, .. } => Some(old(*before)),
        };
        if let Change::Insert { new, .. } | Change::Update { new, .. } = change {
            fill(*new, new_buf);
        }
        let old = is_key.map(|key| {
            let tuple = old_buf.as_tuple();
            if key {
                OldTuple::Key(tuple)
            } else {
                OldTuple::Full(tuple)
            }
        });
        let Some(converted) = rebuilt(change, old, new_buf.as_tuple()) else {
            return false;
        };
        encode(&Message::Change(converted), out);
        true
    }
}

/// The change with other tuples.
fn rebuilt<'a>(
    change: &Change<'_>,
    old: Option<OldTuple<'a>>,
    new: Tuple<'a>,
) -> Option<Change<'a>> {
    Some(match *change {
        Change::Insert { xid, relation, .. } => Change::Insert { xid, relation, new },
        Change::Update { xid, relation, .. } => Change::Update {
            xid,
            relation,
            old,
            new,
        },
        Change::Delete { xid, relation, .. } => Change::Delete {
            xid,
            relation,
            old: old?,
        },
    })
}

fn fill(tuple: Tuple<'_>, codecs: &[Codec], value: &mut Vec<u8>, buf: &mut TupleBuf) {
    buf.clear();
    for (place, column) in tuple.columns().enumerate() {
        let codec = codecs.get(place).copied().unwrap_or(Codec::Text);
        let ColumnValue::Text(text) = column else {
            buf.push(column);
            continue;
        };
        value.clear();
        match codec.encode(text, value) {
            Some(()) => buf.push(ColumnValue::Binary(value)),
            None => buf.push(column),
        };
    }
}
