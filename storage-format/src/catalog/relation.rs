//! Relations and types as the source described them.

use bytes::Bytes;
use pg_proto::Oid;
use pg_proto::pgoutput::{self, Framing, Message, ReplicaIdentity};
use pg_proto::read::{ReadError, Reader};

/// A column of a [`RelationSchema`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSchema {
    /// Whether it is part of the replica identity.
    pub is_key: bool,
    /// Its name.
    pub name: String,
    /// `pg_attribute.atttypid`.
    pub type_oid: Oid,
    /// `pg_attribute.atttypmod`, -1 for none.
    pub type_modifier: i32,
}

/// A relation as one RELATION message describes it. Two of them are equal if their messages are.
#[derive(Clone, Debug)]
pub struct RelationSchema {
    /// The relation's identifier at the source.
    pub oid: Oid,
    /// Its schema. The message's empty one, which stands for `pg_catalog`, is spelled out here.
    pub namespace: String,
    /// Its name. Like all names here it is for people and comparisons; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Its replica identity.
    pub replica_identity: ReplicaIdentity,
    /// Its published columns, in order.
    pub columns: Vec<ColumnSchema>,
    /// The message itself in protocol-1 form, as every subscriber gets it.
    pub message: Bytes,
}

/// A type that is not built in, as one TYPE message names it. Two of them are equal if their messages are.
#[derive(Clone, Debug)]
pub struct TypeName {
    /// The type's identifier at the source.
    pub oid: Oid,
    /// Its schema, spelled out as in [`RelationSchema::namespace`].
    pub namespace: String,
    /// Its name; of a domain, the name of its base type.
    pub name: String,
    /// The message itself in protocol-1 form.
    pub message: Bytes,
}

impl RelationSchema {
    /// Decodes a RELATION message and keeps a copy of it, so that no larger buffer is held alive.
    pub fn from_message(payload: &[u8]) -> Result<Self, ReadError> {
        let Message::Relation(relation) = pgoutput::decode(payload, Framing::Plain)? else {
            return Err(wrong_tag(payload));
        };
        Ok(Self {
            oid: relation.oid,
            namespace: namespace(relation.namespace),
            name: text(relation.name),
            replica_identity: relation.replica_identity,
            columns: relation
                .columns
                .iter()
                .map(|column| ColumnSchema {
                    is_key: column.is_key,
                    name: text(column.name),
                    type_oid: column.type_oid,
                    type_modifier: column.type_modifier,
                })
                .collect(),
            message: Bytes::copy_from_slice(payload),
        })
    }
}

impl TypeName {
    /// Decodes a TYPE message and keeps a copy of it.
    pub fn from_message(payload: &[u8]) -> Result<Self, ReadError> {
        let Message::Type(named) = pgoutput::decode(payload, Framing::Plain)? else {
            return Err(wrong_tag(payload));
        };
        Ok(Self {
            oid: named.oid,
            namespace: namespace(named.namespace),
            name: text(named.name),
            message: Bytes::copy_from_slice(payload),
        })
    }
}

impl PartialEq for RelationSchema {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

impl Eq for RelationSchema {}

impl PartialEq for TypeName {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

impl Eq for TypeName {}

/// The identifier in a RELATION or TYPE message, without decoding the rest.
pub(super) fn peek_oid(payload: &[u8]) -> Result<Oid, ReadError> {
    let mut reader = Reader::new(payload);
    reader.u8("message tag")?;
    reader.u32("oid").map(Oid)
}

fn wrong_tag(payload: &[u8]) -> ReadError {
    let mut reader = Reader::new(payload);
    match reader.u8("message tag") {
        Ok(tag) => reader.invalid("message tag", tag),
        Err(error) => error,
    }
}

fn namespace(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        "pg_catalog".to_owned()
    } else {
        text(bytes)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
