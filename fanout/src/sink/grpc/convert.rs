//! From the messages of the log to those of the gRPC contract. Changes, which are nearly all of it, are not here: they are
//! written without being built ([`encode`](super::encode)).

use bytes::Bytes;
use pg_proto::Lsn;
use pg_proto::pgoutput::{self, Message};
use proto::v1;
use proto::v1::event::Kind;

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
    /// Nothing that is converted here.
    Nothing,
}

/// Converts a message; `lsn`: position of its own WAL record, `ordinal`: number of the event in its transaction.
pub(super) fn convert(message: &Message<'_>, lsn: Lsn, ordinal: u64) -> Converted {
    match message {
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
        Message::Relation(relation) => Converted::Event(Kind::Relation(describe(relation))),
        Message::Truncate(truncate) => Converted::Event(Kind::Truncate(v1::Truncate {
            relation_oids: truncate.relations().map(|oid| oid.0).collect(),
            cascade: truncate.cascade,
            restart_identity: truncate.restart_identity,
            ordinal,
            lsn: lsn.0,
        })),
        Message::LogicalMessage(message) => {
            let kind = Kind::Message(v1::LogicalMessage {
                transactional: message.transactional,
                lsn: message.lsn.0,
                prefix: text(message.prefix),
                content: Bytes::copy_from_slice(message.content),
                // One that stands alone has no place in a transaction.
                ordinal: if message.transactional { ordinal } else { 0 },
            });
            if message.transactional {
                Converted::Event(kind)
            } else {
                Converted::Lone(kind)
            }
        }
        _ => Converted::Nothing,
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
