//! RELATION messages that the fanout makes: of fewer columns than the log's, and of partitioned tables, which the log's
//! stream never describes.

use bytes::{BufMut, BytesMut};
use pg_proto::Oid;
use pg_proto::pgoutput::tag;
use storage_format::catalog::{Attribute, DescribedRelation, RelationSchema};

use super::columns::{self, Projection};
use crate::selection::Description;

/// Flag of a column in the replica identity.
const KEY: u8 = 1;

/// Of a relation published as itself, without the columns that are not sent.
pub(super) fn of_own(schema: &RelationSchema, indexes: &[u16]) -> Description {
    let columns = indexes
        .iter()
        .filter_map(|index| schema.columns.get(usize::from(*index)));
    let columns: Vec<Column<'_>> = columns
        .map(|column| Column {
            is_key: column.is_key,
            name: &column.name,
            type_oid: column.type_oid,
            type_modifier: column.type_modifier,
        })
        .collect();
    let identity = schema.replica_identity as u8;
    write(
        schema.oid,
        &schema.namespace,
        &schema.name,
        identity,
        &columns,
    )
}

/// Of a partition that is published as an ancestor.
pub(super) fn of_leaf(
    schema: &RelationSchema,
    described: Option<&DescribedRelation>,
    projection: &Projection,
) -> Description {
    of_own(schema, &columns::of_leaf(schema, described, projection))
}

/// Of a partitioned table.
pub(super) fn of_root(root: &DescribedRelation, projection: &Projection) -> Description {
    of_root_columns(root, &columns::of_root(root, projection))
}

/// Of a partitioned table with these columns.
pub(super) fn of_root_columns(root: &DescribedRelation, columns: &[&Attribute]) -> Description {
    let columns: Vec<Column<'_>> = columns
        .iter()
        .map(|attribute| Column {
            is_key: attribute.is_key,
            name: &attribute.name,
            type_oid: attribute.type_oid,
            type_modifier: attribute.type_modifier,
        })
        .collect();
    write(
        root.oid,
        &root.schema,
        &root.name,
        root.replica_identity,
        &columns,
    )
}

struct Column<'a> {
    is_key: bool,
    name: &'a str,
    type_oid: Oid,
    type_modifier: i32,
}

fn write(
    oid: Oid,
    namespace: &str,
    name: &str,
    identity: u8,
    columns: &[Column<'_>],
) -> Description {
    let mut message = BytesMut::new();
    message.put_u8(tag::RELATION);
    message.put_u32(oid.0);
    // The empty one stands for pg_catalog.
    let namespace = if namespace == "pg_catalog" {
        ""
    } else {
        namespace
    };
    put_text(&mut message, namespace);
    put_text(&mut message, name);
    message.put_u8(identity);
    message.put_u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
    for column in columns {
        message.put_u8(if column.is_key { KEY } else { 0 });
        put_text(&mut message, column.name);
        message.put_u32(column.type_oid.0);
        message.put_i32(column.type_modifier);
    }
    Description {
        message: message.freeze(),
        types: columns.iter().map(|column| column.type_oid).collect(),
    }
}

fn put_text(message: &mut BytesMut, text: &str) {
    message.put_slice(text.as_bytes());
    message.put_u8(0);
}
