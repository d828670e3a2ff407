//! From the messages of the log to those of the gRPC contract. Values are slices of the log's own bytes.

use bytes::Bytes;
use pg_proto::Lsn;
use pg_proto::pgoutput::{self, ColumnValue, Framing, Message, OldTuple, Tuple};
use pg_proto::read::ReadError;
use proto::v1;
use proto::v1::event::Kind;
use proto::v1::value::Kind as ValueKind;

/// One message, and what belongs to it.
pub(super) struct Source<'a> {
    /// The message.
    pub(super) payload: &'a [u8],
    /// A buffer that the message is a part of.
    pub(super) owner: &'a Bytes,
    /// Position of its own WAL record.
    pub(super) lsn: Lsn,
    /// Number of the event in its transaction.
    pub(super) ordinal: u64,
}

/// What a message becomes.
pub(super) enum Converted {
    /// A part begins.
    Begin(v1::Begin),
    /// It ends.
    Commit(v1::Commit),
    /// More about the transaction that began: the origin's name and its position there.
    Origin(String, Lsn),
    /// An event of the transaction.
    Event(Kind),
    /// A message that stands alone.
    Lone(Kind),
    /// Nothing that this contract has.
    Nothing,
}

impl Source<'_> {
    /// Converts the message; with `raw`, a row's columns stay as they are.
    pub(super) fn convert(&self, raw: bool) -> Result<Converted, ReadError> {
        Ok(match pgoutput::decode(self.payload, Framing::Plain)? {
            Message::Begin(begin) => Converted::Begin(v1::Begin {
                commit_lsn: begin.final_lsn.0,
                commit_time: begin.commit_time.unix_micros(),
                xid: begin.xid.0,
                ..v1::Begin::default()
            }),
            Message::Commit(commit) => Converted::Commit(v1::Commit {
                commit_lsn: commit.commit_lsn.0,
                end_lsn: commit.end_lsn.0,
                commit_time: commit.commit_time.unix_micros(),
            }),
            Message::Origin(origin) => Converted::Origin(text(origin.name), origin.origin_lsn),
            Message::Relation(relation) => Converted::Event(Kind::Relation(describe(&relation))),
            Message::Change(change) => Converted::Event(Kind::Change(self.change(&change, raw))),
            Message::Truncate(truncate) => Converted::Event(Kind::Truncate(v1::Truncate {
                relation_oids: truncate.relations().map(|oid| oid.0).collect(),
                cascade: truncate.cascade,
                restart_identity: truncate.restart_identity,
                ordinal: self.ordinal,
                lsn: self.lsn.0,
            })),
            Message::LogicalMessage(message) => {
                let kind = Kind::Message(v1::LogicalMessage {
                    transactional: message.transactional,
                    lsn: message.lsn.0,
                    prefix: text(message.prefix),
                    content: self.owner.slice_ref(message.content),
                    // One that stands alone has no place in a transaction.
                    ordinal: if message.transactional {
                        self.ordinal
                    } else {
                        0
                    },
                });
                if message.transactional {
                    Converted::Event(kind)
                } else {
                    Converted::Lone(kind)
                }
            }
            _ => Converted::Nothing,
        })
    }

    fn change(&self, change: &pgoutput::Change<'_>, raw: bool) -> v1::Change {
        let (kind, relation, old, new) = match change {
            pgoutput::Change::Insert { relation, new, .. } => {
                (v1::ChangeKind::Insert, *relation, None, Some(new))
            }
            pgoutput::Change::Update {
                relation, old, new, ..
            } => (v1::ChangeKind::Update, *relation, old.as_ref(), Some(new)),
            pgoutput::Change::Delete { relation, old, .. } => {
                (v1::ChangeKind::Delete, *relation, Some(old), None)
            }
        };
        let mut converted = v1::Change {
            kind: kind.into(),
            relation_oid: relation.0,
            ordinal: self.ordinal,
            lsn: self.lsn.0,
            ..v1::Change::default()
        };
        if raw {
            converted.raw = self.owner.slice_ref(self.payload);
            return converted;
        }
        converted.new = new.map(|tuple| self.row(tuple));
        converted.old_is_key = matches!(old, Some(OldTuple::Key(_)));
        converted.old = old.map(|old| match old {
            OldTuple::Key(tuple) | OldTuple::Full(tuple) => self.row(tuple),
        });
        converted
    }

    fn row(&self, tuple: &Tuple<'_>) -> v1::Row {
        let values = tuple.columns().map(|value| {
            let kind = match value {
                ColumnValue::Null => ValueKind::Null(v1::Null {}),
                ColumnValue::UnchangedToast => ValueKind::UnchangedToast(v1::UnchangedToast {}),
                ColumnValue::Text(bytes) => ValueKind::Text(self.owner.slice_ref(bytes)),
                ColumnValue::Binary(bytes) => ValueKind::Binary(self.owner.slice_ref(bytes)),
            };
            v1::Value { kind: Some(kind) }
        });
        v1::Row {
            values: values.collect(),
        }
    }
}

/// A RELATION message's content.
pub(super) fn describe(relation: &pgoutput::Relation<'_>) -> v1::Relation {
    let columns = relation.columns.iter().map(|column| v1::Column {
        name: text(column.name),
        type_oid: column.type_oid.0,
        type_modifier: column.type_modifier,
        is_key: column.is_key,
    });
    let schema = match relation.namespace {
        b"" => "pg_catalog".to_owned(),
        name => text(name),
    };
    v1::Relation {
        oid: relation.oid.0,
        schema,
        name: text(relation.name),
        replica_identity: identity(relation.replica_identity).into(),
        columns: columns.collect(),
    }
}

/// A replica identity.
pub(super) const fn identity(identity: pgoutput::ReplicaIdentity) -> v1::ReplicaIdentity {
    match identity {
        pgoutput::ReplicaIdentity::Default => v1::ReplicaIdentity::Default,
        pgoutput::ReplicaIdentity::Nothing => v1::ReplicaIdentity::Nothing,
        pgoutput::ReplicaIdentity::Full => v1::ReplicaIdentity::Full,
        pgoutput::ReplicaIdentity::Index => v1::ReplicaIdentity::Index,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
