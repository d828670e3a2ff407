//! The message that states the publications: a MAC in hexadecimal, then JSON.
//!
//! ```json
//! {"version": 1, "xid": 784, "settled": true, "complete": false, "publications": [{"oid": 16390, "name": "p", ...}]}
//! ```
//!
//! `sql/install.sql` writes it, and [`CatalogMessage::write`] in a decoder that polls. Fields that this version does
//! not know are ignored; another version of the form is refused.

use pg_proto::{Oid, Xid};
use serde::{Deserialize, Serialize};
use storage_format::catalog::{Publication, PublicationActions, PublicationTable};

use super::secret::{MAC_HEX_LEN, Secret};

/// The form of the JSON.
const FORM: u32 = 1;

/// Longest JSON text that is read: PostgreSQL's own limit for a jsonb value is 256 MiB.
pub const STATE_BYTES_MAX: usize = 256 << 20;

/// What a message says, if its MAC is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogMessage {
    /// The transaction that wrote it; the low half of PostgreSQL's `xid8`.
    pub xid: Xid,
    /// Whether it can miss no change of a transaction that had ended.
    pub settled: bool,
    /// Whether it was taken while no transaction was under way that had stated the publications: whatever was said
    /// before and not settled is settled by it.
    pub complete: bool,
    /// All publications, by their OIDs.
    pub publications: Vec<Publication>,
}

/// The content is no message of Decant's.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// It is shorter than a MAC, or longer than allowed.
    #[error("its length of {length} bytes is not possible")]
    Length {
        /// The content's length.
        length: usize,
    },
    /// None of the secrets makes this MAC.
    #[error("its MAC is wrong")]
    Mac,
    /// The MAC is right, but the content is not understood.
    #[error("its content is not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// The MAC is right, but the form is another one.
    #[error(
        "its form is {found}, not {FORM}: the scripts at the source are of another version, run decctl init"
    )]
    Form {
        /// The form.
        found: u32,
    },
}

#[derive(Deserialize)]
struct Head {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Body {
    version: u32,
    xid: u64,
    settled: bool,
    complete: bool,
    publications: Vec<PublicationJson>,
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
    columns: Option<Vec<String>>,
    row_filter: Option<String>,
}

impl CatalogMessage {
    /// Reads a message whose MAC one of `secrets` makes.
    pub fn read(content: &[u8], secrets: &[Secret]) -> Result<Self, MessageError> {
        let length = content.len();
        let (mac, body) = content
            .split_at_checked(MAC_HEX_LEN)
            .filter(|(_, body)| body.len() <= STATE_BYTES_MAX)
            .ok_or(MessageError::Length { length })?;
        if !secrets.iter().any(|secret| secret.verify(mac, body)) {
            return Err(MessageError::Mac);
        }
        // SQL_ASCII databases may hold names that are not UTF-8.
        let text = String::from_utf8_lossy(body);
        let Head { version } = serde_json::from_str(&text)?;
        if version != FORM {
            return Err(MessageError::Form { found: version });
        }
        let body: Body = serde_json::from_str(&text)?;
        Ok(Self {
            xid: low_half(body.xid),
            settled: body.settled,
            complete: body.complete,
            publications: publications(body.publications),
        })
    }

    /// Writes a message for a transaction whose full number is `xid`, where nobody else writes any.
    pub fn write(
        xid: u64,
        all: &[Publication],
        secret: &Secret,
    ) -> Result<String, serde_json::Error> {
        let body = serde_json::to_string(&Body {
            version: FORM,
            xid,
            settled: true,
            complete: true,
            publications: all.iter().map(PublicationJson::from).collect(),
        })?;
        let mac = secret.mac(body.as_bytes());
        Ok(mac + &body)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the stream says the low half"
)]
const fn low_half(xid: u64) -> Xid {
    Xid(xid as u32)
}

/// Reads the value of a state query.
pub fn parse_publications(json: &str) -> Result<Vec<Publication>, serde_json::Error> {
    serde_json::from_str(json).map(publications)
}

/// In the order of their OIDs, as the queries give them: the same state is the same value.
fn publications(list: Vec<PublicationJson>) -> Vec<Publication> {
    let mut all: Vec<Publication> = list.into_iter().map(Publication::from).collect();
    all.sort_by_key(|publication| publication.oid);
    for publication in &mut all {
        publication.tables.sort_by_key(|table| table.relation);
        publication.schemas.sort();
    }
    all
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
            tables: json
                .tables
                .into_iter()
                .map(PublicationTable::from)
                .collect(),
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
            tables: publication.tables.iter().map(TableJson::from).collect(),
        }
    }
}

impl From<TableJson> for PublicationTable {
    fn from(json: TableJson) -> Self {
        Self {
            relation: Oid(json.oid),
            schema: json.schema,
            name: json.name,
            columns: json.columns,
            row_filter: json.row_filter,
        }
    }
}

impl From<&PublicationTable> for TableJson {
    fn from(table: &PublicationTable) -> Self {
        Self {
            oid: table.relation.0,
            schema: table.schema.clone(),
            name: table.name.clone(),
            columns: table.columns.clone(),
            row_filter: table.row_filter.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL 15 wrote it.
    const STATE: &str = r#"[{"oid": 16390, "name": "p", "delete": true, "insert": true, "tables": [{"oid": 16385, "name": "t", "schema": "public", "columns": ["id", "v"], "row_filter": "(id > 10)"}], "update": true, "schemas": ["a b"], "truncate": false, "via_root": false, "all_tables": false, "generated_columns": false, "has_partitioned_root": true}]"#;

    fn publication() -> Publication {
        Publication {
            oid: Oid(16390),
            name: "p".into(),
            schemas: vec!["a b".into()],
            actions: PublicationActions {
                truncate: false,
                ..PublicationActions::ALL
            },
            has_partitioned_root: true,
            tables: vec![PublicationTable {
                relation: Oid(16385),
                schema: "public".into(),
                name: "t".into(),
                columns: Some(vec!["id".into(), "v".into()]),
                row_filter: Some("(id > 10)".into()),
            }],
            ..Publication::default()
        }
    }

    #[test]
    fn reads_what_the_query_gives() {
        assert_eq!(parse_publications(STATE).unwrap(), [publication()]);
        assert!(parse_publications("[]").unwrap().is_empty());
        assert!(parse_publications(r#"[{"oid": 1}]"#).is_err());
    }

    #[test]
    fn the_order_of_the_source_does_not_matter() {
        let (mut a, b) = (publication(), publication());
        a.oid = Oid(5);
        let write = |list: &[Publication]| {
            let text = CatalogMessage::write(1, list, &Secret::new("s")).unwrap();
            CatalogMessage::read(text.as_bytes(), &[Secret::new("s")]).unwrap()
        };
        assert_eq!(write(&[a.clone(), b.clone()]), write(&[b, a]));
    }

    #[test]
    fn round_trips_with_the_right_secret_only() {
        let secrets = [Secret::new("old"), Secret::new("now")];
        let xid = (7 << 32) | 784;
        let text = CatalogMessage::write(xid, &[publication()], &secrets[1]).unwrap();
        let message = CatalogMessage::read(text.as_bytes(), &secrets).unwrap();
        assert_eq!(message.xid, Xid(784));
        assert!(message.settled && message.complete);
        assert_eq!(message.publications, [publication()]);
        let other = CatalogMessage::read(text.as_bytes(), &secrets[..1]);
        assert!(matches!(other, Err(MessageError::Mac)));
        assert!(matches!(
            CatalogMessage::read(text.as_bytes(), &[]),
            Err(MessageError::Mac)
        ));
    }

    #[test]
    fn every_flipped_byte_and_every_truncation_is_refused() {
        let secrets = [Secret::new("s")];
        let text = CatalogMessage::write(1, &[], &secrets[0]).unwrap();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(CatalogMessage::read(&bytes, &secrets).is_err(), "{at}");
            assert!(
                CatalogMessage::read(&text.as_bytes()[..at], &secrets).is_err(),
                "{at}"
            );
        }
    }

    #[test]
    fn a_right_mac_over_something_else_is_explained() {
        let secrets = [Secret::new("s")];
        let signed = |body: &str| secrets[0].mac(body.as_bytes()) + body;
        let read = |body: &str| CatalogMessage::read(signed(body).as_bytes(), &secrets);
        assert!(matches!(read("nonsense"), Err(MessageError::Json(_))));
        assert!(matches!(
            read(r#"{"version": 2}"#),
            Err(MessageError::Form { found: 2 })
        ));
        let padded = format!(
            r#"{{"version": 1, "xid": 1, "settled": true, "complete": true, "publications": []}}{}"#,
            '\u{80}'
        );
        assert!(matches!(read(&padded), Err(MessageError::Json(_))));
    }
}
