//! Publications of the source, and how a list of them is stored.

use pg_proto::read::{ReadError, Reader};
use pg_proto::{Lsn, Oid};

use super::codec;
use super::definitions::put_head;

/// Which changes a publication publishes (`publish = '...'`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the four columns of pg_publication, independent of each other"
)]
pub struct PublicationActions {
    /// INSERT.
    pub insert: bool,
    /// UPDATE.
    pub update: bool,
    /// DELETE.
    pub delete: bool,
    /// TRUNCATE.
    pub truncate: bool,
}

impl PublicationActions {
    /// PostgreSQL's default: all of them.
    pub const ALL: Self = Self {
        insert: true,
        update: true,
        delete: true,
        truncate: true,
    };
}

/// A relation that a publication names, or one that it publishes and that can't be told by its schema's name: a leaf
/// of a partitioned table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationTable {
    /// The relation.
    pub relation: Oid,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The column list, if there is one.
    pub columns: Option<Vec<String>>,
    /// The row filter, if there is one.
    pub row_filter: Option<RowFilterText>,
    /// Whether it is a partitioned table, of which no rows come.
    pub partitioned: bool,
    /// Whether it is published only through an ancestor or its schema, not named itself.
    pub implied: bool,
}

/// A row filter as the source has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilterText {
    /// As SQL, for people.
    pub sql: String,
    /// As `pg_node_tree`, in which functions, operators, types and collations are OIDs, columns are attribute numbers and
    /// constants are the bytes of their datums in the source server's memory.
    pub tree: String,
}

/// A publication of the source and what it publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// `pg_publication.oid`; 0: it belongs to Decant and not to the source.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// FOR ALL TABLES.
    pub all_tables: bool,
    /// FOR TABLES IN SCHEMA: the schemas' names.
    pub schemas: Vec<String>,
    /// What is published of each table.
    pub actions: PublicationActions,
    /// `publish_via_partition_root`.
    pub via_root: bool,
    /// Whether a partitioned table is published, so that [`Self::via_root`] changes something.
    pub has_partitioned_root: bool,
    /// `publish_generated_columns = stored` (version 18).
    pub generated_columns: bool,
    /// The relations that it names, and those whose membership can't be seen of their schema's name. Not those
    /// of FOR ALL TABLES; of TABLES IN SCHEMA only some: a relation is published if it is here or its schema is.
    pub tables: Vec<PublicationTable>,
}

const ALL_TABLES: u32 = 1;
const INSERT: u32 = 1 << 1;
const UPDATE: u32 = 1 << 2;
const DELETE: u32 = 1 << 3;
const TRUNCATE: u32 = 1 << 4;
const VIA_ROOT: u32 = 1 << 5;
const HAS_PARTITIONED_ROOT: u32 = 1 << 6;
const GENERATED_COLUMNS: u32 = 1 << 7;
const KNOWN_FLAGS: u32 = (1 << 8) - 1;

const HAS_COLUMNS: u8 = 1;
const HAS_ROW_FILTER: u8 = 1 << 1;
const HAS_TREE: u8 = 1 << 2;
const PARTITIONED: u8 = 1 << 3;
const IMPLIED: u8 = 1 << 4;
const KNOWN_TABLE_FLAGS: u8 = (1 << 5) - 1;

/// Least size of a publication: oid, flags, three lengths.
pub(super) const PUBLICATION_MIN: usize = 20;
/// Least size of a table: oid, two lengths, flags.
const TABLE_MIN: usize = 13;

impl Publication {
    /// Whether it belongs to Decant. The source then knows nothing of it, and does not refuse what contradicts it.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        self.oid.0 == 0
    }

    fn flags(&self) -> u32 {
        [
            (self.all_tables, ALL_TABLES),
            (self.actions.insert, INSERT),
            (self.actions.update, UPDATE),
            (self.actions.delete, DELETE),
            (self.actions.truncate, TRUNCATE),
            (self.via_root, VIA_ROOT),
            (self.has_partitioned_root, HAS_PARTITIONED_ROOT),
            (self.generated_columns, GENERATED_COLUMNS),
        ]
        .into_iter()
        .filter_map(|(set, flag)| set.then_some(flag))
        .sum()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.oid.0.to_le_bytes());
        out.extend_from_slice(&self.flags().to_le_bytes());
        codec::put_str(out, &self.name);
        codec::put_list(out, &self.schemas, |out, name| codec::put_str(out, name));
        codec::put_list(out, &self.tables, |out, table| table.encode(out));
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let oid = Oid(codec::take_u32(reader, "publication oid")?);
        let flags = codec::take_u32(reader, "publication flags")?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(reader.invalid("publication flags", flags));
        }
        let set = |flag| flags & flag != 0;
        Ok(Self {
            oid,
            name: codec::take_str(reader, "publication name")?,
            all_tables: set(ALL_TABLES),
            schemas: codec::take_list(reader, "publication schema count", 4, |reader| {
                codec::take_str(reader, "publication schema")
            })?,
            actions: PublicationActions {
                insert: set(INSERT),
                update: set(UPDATE),
                delete: set(DELETE),
                truncate: set(TRUNCATE),
            },
            via_root: set(VIA_ROOT),
            has_partitioned_root: set(HAS_PARTITIONED_ROOT),
            generated_columns: set(GENERATED_COLUMNS),
            tables: codec::take_list(
                reader,
                "publication table count",
                TABLE_MIN,
                PublicationTable::take,
            )?,
        })
    }
}

impl PublicationTable {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relation.0.to_le_bytes());
        codec::put_str(out, &self.schema);
        codec::put_str(out, &self.name);
        out.push(self.flags());
        if let Some(columns) = &self.columns {
            codec::put_list(out, columns, |out, name| codec::put_str(out, name));
        }
        if let Some(filter) = &self.row_filter {
            codec::put_str(out, &filter.sql);
            if !filter.tree.is_empty() {
                codec::put_str(out, &filter.tree);
            }
        }
    }

    fn flags(&self) -> u8 {
        let filter = self.row_filter.as_ref();
        [
            (self.columns.is_some(), HAS_COLUMNS),
            (filter.is_some(), HAS_ROW_FILTER),
            (filter.is_some_and(|one| !one.tree.is_empty()), HAS_TREE),
            (self.partitioned, PARTITIONED),
            (self.implied, IMPLIED),
        ]
        .into_iter()
        .filter_map(|(set, flag)| set.then_some(flag))
        .sum()
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let relation = Oid(codec::take_u32(reader, "published relation")?);
        let schema = codec::take_str(reader, "published relation's schema")?;
        let name = codec::take_str(reader, "published relation's name")?;
        let flags = reader.u8("published relation's flags")?;
        let tree_alone = flags & HAS_TREE != 0 && flags & HAS_ROW_FILTER == 0;
        if flags & !KNOWN_TABLE_FLAGS != 0 || tree_alone {
            return Err(reader.invalid("published relation's flags", flags));
        }
        let columns = (flags & HAS_COLUMNS != 0)
            .then(|| {
                codec::take_list(reader, "column list length", 4, |reader| {
                    codec::take_str(reader, "column list name")
                })
            })
            .transpose()?;
        let row_filter = (flags & HAS_ROW_FILTER != 0)
            .then(|| RowFilterText::take(reader, flags & HAS_TREE != 0))
            .transpose()?;
        Ok(Self {
            relation,
            schema,
            name,
            columns,
            row_filter,
            partitioned: flags & PARTITIONED != 0,
            implied: flags & IMPLIED != 0,
        })
    }
}

impl RowFilterText {
    /// Whether it reads the column of this number.
    #[must_use]
    pub fn reads(&self, number: i16) -> bool {
        self.tree.contains(&format!(":varattno {number} "))
    }

    fn take(reader: &mut Reader<'_>, has_tree: bool) -> Result<Self, ReadError> {
        Ok(Self {
            sql: codec::take_str(reader, "row filter")?,
            tree: if has_tree {
                codec::take_str(reader, "row filter's tree")?
            } else {
                String::new()
            },
        })
    }
}

/// Appends the payload of a publications record of publications alone, in the given order, which says no more of its place
/// than that it stands in its transaction.
pub fn encode_publications(publications: &[Publication], out: &mut Vec<u8>) {
    put_head(None, Lsn::INVALID, Lsn::INVALID, out);
    codec::put_list(out, publications, |out, publication| {
        publication.encode(out);
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::PublicationsRecord;

    fn table() -> impl Strategy<Value = PublicationTable> {
        (
            any::<u32>(),
            ".{0,8}",
            ".{0,8}",
            prop::option::of(prop::collection::vec(".{0,5}", 0..4)),
            prop::option::of((".{0,12}", ".{0,12}")),
            any::<[bool; 2]>(),
        )
            .prop_map(
                |(oid, schema, name, columns, row_filter, [partitioned, implied])| {
                    PublicationTable {
                        relation: Oid(oid),
                        schema,
                        name,
                        columns,
                        row_filter: row_filter.map(|(sql, tree)| RowFilterText { sql, tree }),
                        partitioned,
                        implied,
                    }
                },
            )
    }

    fn publication() -> impl Strategy<Value = Publication> {
        (
            any::<u32>(),
            ".{0,8}",
            any::<[bool; 8]>(),
            prop::collection::vec(".{0,8}", 0..3),
            prop::collection::vec(table(), 0..4),
        )
            .prop_map(|(oid, name, flags, schemas, tables)| {
                let [
                    all_tables,
                    insert,
                    update,
                    delete,
                    truncate,
                    via_root,
                    rooted,
                    generated_columns,
                ] = flags;
                Publication {
                    oid: Oid(oid),
                    name,
                    all_tables,
                    schemas,
                    actions: PublicationActions {
                        insert,
                        update,
                        delete,
                        truncate,
                    },
                    via_root,
                    has_partitioned_root: rooted,
                    generated_columns,
                    tables,
                }
            })
    }

    proptest! {
        #[test]
        fn round_trips(publications in prop::collection::vec(publication(), 0..4)) {
            let mut bytes = Vec::new();
            encode_publications(&publications, &mut bytes);
            let decoded = PublicationsRecord::decode(&bytes).unwrap();
            prop_assert_eq!(&*decoded.state.publications, publications.as_slice());
            for end in 0..bytes.len() {
                prop_assert!(PublicationsRecord::decode(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = PublicationsRecord::decode(&bytes);
        }
    }
}
