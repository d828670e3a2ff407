//! The JSON that the state queries of `sql/` give, as Rust types.

use pg_proto::Oid;
use serde::{Deserialize, Serialize};
use storage_format::catalog::{
    Attribute, Collation, DatabaseFacts, DescribedRelation, Generated, Publication,
    PublicationActions, PublicationState, PublicationTable, RowFilterText,
};

/// What a state query gives.
#[derive(Serialize, Deserialize)]
pub(super) struct StateJson {
    publications: Vec<PublicationJson>,
    relations: Vec<RelationJson>,
    collations: Vec<CollationJson>,
    database: DatabaseJson,
}

#[derive(Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the columns of pg_publication"
)]
struct PublicationJson {
    oid: u32,
    name: String,
    all_tables: bool,
    schemas: Vec<String>,
    insert: bool,
    update: bool,
    delete: bool,
    truncate: bool,
    via_root: bool,
    has_partitioned_root: bool,
    generated_columns: bool,
    tables: Vec<TableJson>,
}

#[derive(Serialize, Deserialize)]
struct TableJson {
    oid: u32,
    schema: String,
    name: String,
    partitioned: bool,
    named: bool,
    columns: Option<Vec<String>>,
    row_filter: Option<String>,
    row_filter_tree: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct RelationJson {
    oid: u32,
    schema: String,
    name: String,
    partitioned: bool,
    replica_identity: char,
    attribute_count: u16,
    ancestors: Vec<u32>,
    attributes: Option<Vec<AttributeJson>>,
}

/// Number, name, type, its modifier, collation, `attgenerated`, whether in the replica identity.
#[derive(Serialize, Deserialize)]
struct AttributeJson(i16, String, u32, i32, u32, String, bool);

#[derive(Serialize, Deserialize)]
struct CollationJson {
    oid: u32,
    name: String,
    provider: char,
    deterministic: bool,
    collate: Option<String>,
    ctype: Option<String>,
    locale: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct DatabaseJson {
    encoding: String,
    provider: char,
    collate: String,
    ctype: String,
    locale: Option<String>,
}

impl From<StateJson> for PublicationState {
    /// In the order of OIDs, as the queries give them: the same state is the same value.
    fn from(json: StateJson) -> Self {
        let mut publications: Vec<Publication> = list(json.publications);
        publications.sort_by_key(|publication| publication.oid);
        for publication in &mut publications {
            publication.tables.sort_by_key(|table| table.relation);
            publication.schemas.sort();
        }
        let mut state = Self {
            publications: publications.into(),
            relations: list(json.relations),
            collations: list(json.collations),
            database: json.database.into(),
        };
        state.sort();
        state
    }
}

impl From<&PublicationState> for StateJson {
    fn from(state: &PublicationState) -> Self {
        Self {
            publications: list(&*state.publications),
            relations: list(&state.relations),
            collations: list(&state.collations),
            database: (&state.database).into(),
        }
    }
}

fn list<A, B: From<A>>(items: impl IntoIterator<Item = A>) -> Vec<B> {
    items.into_iter().map(B::from).collect()
}

impl From<PublicationJson> for Publication {
    fn from(json: PublicationJson) -> Self {
        Self {
            oid: Oid(json.oid),
            name: json.name,
            all_tables: json.all_tables,
            schemas: json.schemas,
            actions: PublicationActions {
                insert: json.insert,
                update: json.update,
                delete: json.delete,
                truncate: json.truncate,
            },
            via_root: json.via_root,
            has_partitioned_root: json.has_partitioned_root,
            generated_columns: json.generated_columns,
            tables: list(json.tables),
        }
    }
}

impl From<&Publication> for PublicationJson {
    fn from(publication: &Publication) -> Self {
        Self {
            oid: publication.oid.0,
            name: publication.name.clone(),
            all_tables: publication.all_tables,
            schemas: publication.schemas.clone(),
            insert: publication.actions.insert,
            update: publication.actions.update,
            delete: publication.actions.delete,
            truncate: publication.actions.truncate,
            via_root: publication.via_root,
            has_partitioned_root: publication.has_partitioned_root,
            generated_columns: publication.generated_columns,
            tables: list(&publication.tables),
        }
    }
}

impl From<TableJson> for PublicationTable {
    fn from(json: TableJson) -> Self {
        let tree = json.row_filter_tree.unwrap_or_default();
        Self {
            relation: Oid(json.oid),
            schema: json.schema,
            name: json.name,
            columns: json.columns,
            row_filter: json.row_filter.map(|sql| RowFilterText { sql, tree }),
            partitioned: json.partitioned,
            implied: !json.named,
        }
    }
}

impl From<&PublicationTable> for TableJson {
    fn from(table: &PublicationTable) -> Self {
        let filter = table.row_filter.as_ref();
        Self {
            oid: table.relation.0,
            schema: table.schema.clone(),
            name: table.name.clone(),
            partitioned: table.partitioned,
            named: !table.implied,
            columns: table.columns.clone(),
            row_filter: filter.map(|filter| filter.sql.clone()),
            row_filter_tree: filter.map(|filter| filter.tree.clone()),
        }
    }
}

impl From<RelationJson> for DescribedRelation {
    fn from(json: RelationJson) -> Self {
        Self {
            oid: Oid(json.oid),
            schema: json.schema,
            name: json.name,
            partitioned: json.partitioned,
            replica_identity: byte(json.replica_identity),
            attribute_count: json.attribute_count,
            ancestors: json.ancestors.into_iter().map(Oid).collect(),
            attributes: json.attributes.map(list),
        }
    }
}

impl From<&DescribedRelation> for RelationJson {
    fn from(relation: &DescribedRelation) -> Self {
        Self {
            oid: relation.oid.0,
            schema: relation.schema.clone(),
            name: relation.name.clone(),
            partitioned: relation.partitioned,
            replica_identity: relation.replica_identity.into(),
            attribute_count: relation.attribute_count,
            ancestors: relation.ancestors.iter().map(|oid| oid.0).collect(),
            attributes: relation.attributes.as_ref().map(list),
        }
    }
}

impl From<AttributeJson> for Attribute {
    fn from(json: AttributeJson) -> Self {
        let AttributeJson(number, name, type_oid, type_modifier, collation, generated, is_key) =
            json;
        let generated = generated.bytes().next().unwrap_or_default();
        Self {
            number,
            name,
            type_oid: Oid(type_oid),
            type_modifier,
            collation: Oid(collation),
            // A way that is not known: its values can't be in the stream.
            generated: Generated::from_byte(generated).unwrap_or(Generated::Virtual),
            is_key,
        }
    }
}

impl From<&Attribute> for AttributeJson {
    fn from(attribute: &Attribute) -> Self {
        let generated = match attribute.generated.as_byte() {
            0 => String::new(),
            byte => char::from(byte).to_string(),
        };
        Self(
            attribute.number,
            attribute.name.clone(),
            attribute.type_oid.0,
            attribute.type_modifier,
            attribute.collation.0,
            generated,
            attribute.is_key,
        )
    }
}

impl From<CollationJson> for Collation {
    fn from(json: CollationJson) -> Self {
        Self {
            oid: Oid(json.oid),
            name: json.name,
            provider: byte(json.provider),
            deterministic: json.deterministic,
            collate: json.collate,
            ctype: json.ctype,
            locale: json.locale,
        }
    }
}

impl From<&Collation> for CollationJson {
    fn from(collation: &Collation) -> Self {
        Self {
            oid: collation.oid.0,
            name: collation.name.clone(),
            provider: collation.provider.into(),
            deterministic: collation.deterministic,
            collate: collation.collate.clone(),
            ctype: collation.ctype.clone(),
            locale: collation.locale.clone(),
        }
    }
}

impl From<DatabaseJson> for DatabaseFacts {
    fn from(json: DatabaseJson) -> Self {
        Self {
            encoding: json.encoding,
            provider: byte(json.provider),
            collate: json.collate,
            ctype: json.ctype,
            locale: json.locale,
        }
    }
}

impl From<&DatabaseFacts> for DatabaseJson {
    fn from(database: &DatabaseFacts) -> Self {
        Self {
            encoding: database.encoding.clone(),
            provider: database.provider.into(),
            collate: database.collate.clone(),
            ctype: database.ctype.clone(),
            locale: database.locale.clone(),
        }
    }
}

/// A "char" column's one byte.
fn byte(letter: char) -> u8 {
    u8::try_from(letter).unwrap_or(b'?')
}
