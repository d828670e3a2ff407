//! The message that states the publications: a MAC in hexadecimal, then JSON.
//!
//! ```json
//! {"version": 2, "xid": 784, "subxid": 785, "settled": true, "complete": false, "publications": [{"oid": 16390, "name": "p", ...}],
//!  "relations": [...], "collations": [...], "database": {...}}
//! ```
//!
//! `sql/install.sql` writes it, and [`CatalogMessage::write`] in a decoder that polls. Fields that this version does
//! not know are ignored; another version of the form is refused.

use pg_proto::Xid;
use serde::{Deserialize, Serialize};
use storage_format::catalog::PublicationState;

use super::secret::{MAC_HEX_LEN, Secret};
use super::state_json::StateJson;

/// The form of the JSON.
const FORM: u32 = 2;

/// Longest JSON text that is read: PostgreSQL's own limit for a jsonb value is 256 MiB.
pub const STATE_BYTES_MAX: usize = 256 << 20;

/// What a message says, if its MAC is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogMessage {
    /// The transaction that wrote it; the low half of PostgreSQL's `xid8`.
    pub xid: Xid,
    /// The subtransaction in which it did; `xid` where there was none.
    pub subxid: Xid,
    /// Whether it can miss no change of a transaction that had ended.
    pub settled: bool,
    /// Whether it was taken while no transaction was under way that had stated the publications: whatever was said
    /// before and not settled is settled by it.
    pub complete: bool,
    /// All publications, and what they depend on.
    pub state: PublicationState,
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
    /// What an older script does not say.
    #[serde(default)]
    subxid: Option<u64>,
    settled: bool,
    complete: bool,
    #[serde(flatten)]
    state: StateJson,
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
            subxid: low_half(body.subxid.unwrap_or(body.xid)),
            settled: body.settled,
            complete: body.complete,
            state: body.state.into(),
        })
    }

    /// Writes a message for a transaction whose full number is `xid`, where nobody else writes any.
    pub fn write(
        xid: u64,
        state: &PublicationState,
        secret: &Secret,
    ) -> Result<String, serde_json::Error> {
        let body = serde_json::to_string(&Body {
            version: FORM,
            xid,
            subxid: None,
            settled: true,
            complete: true,
            state: state.into(),
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
pub fn parse_state(json: &str) -> Result<PublicationState, serde_json::Error> {
    serde_json::from_str::<StateJson>(json).map(PublicationState::from)
}

#[cfg(test)]
mod tests {
    use pg_proto::Oid;
    use storage_format::catalog::{
        Attribute, Collation, DatabaseFacts, DescribedRelation, Publication, PublicationActions,
        PublicationTable, RowFilterText,
    };

    use super::*;

    /// As PostgreSQL 15 wrote it, the tree shortened.
    const STATE: &str = r#"{"database": {"ctype": "C.UTF-8", "locale": null, "collate": "C.UTF-8", "encoding": "UTF8", "provider": "c"}, "relations": [{"oid": 16385, "name": "t", "schema": "public", "ancestors": [], "attributes": [[1, "id", 23, -1, 0, "", true], [3, "v", 25, -1, 950, "", false]], "partitioned": false, "attribute_count": 3, "replica_identity": "d"}], "collations": [{"oid": 950, "name": "C", "ctype": "C", "locale": null, "collate": "C", "provider": "c", "deterministic": true}], "publications": [{"oid": 16390, "name": "p", "delete": true, "insert": true, "tables": [{"oid": 16385, "name": "t", "named": true, "schema": "public", "columns": ["id", "v"], "row_filter": "(id > 10)", "partitioned": false, "row_filter_tree": "{OPEXPR :opno 521}"}], "update": true, "schemas": ["a b"], "truncate": false, "via_root": false, "all_tables": false, "generated_columns": false, "has_partitioned_root": true}]}"#;

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
                row_filter: Some(RowFilterText {
                    sql: "(id > 10)".into(),
                    tree: "{OPEXPR :opno 521}".into(),
                }),
                ..PublicationTable::default()
            }],
            ..Publication::default()
        }
    }

    fn state() -> PublicationState {
        let attribute = |number, name: &str, type_oid, collation| Attribute {
            number,
            name: name.into(),
            type_oid: Oid(type_oid),
            type_modifier: -1,
            collation: Oid(collation),
            is_key: number == 1,
            ..Attribute::default()
        };
        PublicationState {
            publications: vec![publication()].into(),
            relations: vec![DescribedRelation {
                oid: Oid(16385),
                schema: "public".into(),
                name: "t".into(),
                replica_identity: b'd',
                attribute_count: 3,
                attributes: Some(vec![attribute(1, "id", 23, 0), attribute(3, "v", 25, 950)]),
                ..DescribedRelation::default()
            }],
            collations: vec![Collation {
                oid: Oid(950),
                name: "C".into(),
                provider: b'c',
                deterministic: true,
                collate: Some("C".into()),
                ctype: Some("C".into()),
                locale: None,
            }],
            database: DatabaseFacts {
                encoding: "UTF8".into(),
                provider: b'c',
                collate: "C.UTF-8".into(),
                ctype: "C.UTF-8".into(),
                locale: None,
            },
        }
    }

    #[test]
    fn reads_what_the_query_gives() {
        assert_eq!(parse_state(STATE).unwrap(), state());
        assert!(parse_state("{}").is_err());
        assert!(parse_state(r#"{"publications": [{"oid": 1}]}"#).is_err());
    }

    #[test]
    fn the_order_of_the_source_does_not_matter() {
        let (mut a, b) = (publication(), publication());
        a.oid = Oid(5);
        let write = |list: Vec<Publication>| {
            let text = CatalogMessage::write(1, &list.into(), &Secret::new("s")).unwrap();
            CatalogMessage::read(text.as_bytes(), &[Secret::new("s")]).unwrap()
        };
        assert_eq!(write(vec![a.clone(), b.clone()]), write(vec![b, a]));
    }

    #[test]
    fn round_trips_with_the_right_secret_only() {
        let secrets = [Secret::new("old"), Secret::new("now")];
        let xid = (7 << 32) | 784;
        let text = CatalogMessage::write(xid, &state(), &secrets[1]).unwrap();
        let message = CatalogMessage::read(text.as_bytes(), &secrets).unwrap();
        assert_eq!(message.xid, Xid(784));
        assert!(message.settled && message.complete);
        assert_eq!(message.state, state());
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
        let text = CatalogMessage::write(1, &PublicationState::default(), &secrets[0]).unwrap();
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
            read(r#"{"version": 1}"#),
            Err(MessageError::Form { found: 1 })
        ));
        let padded = format!(
            "{{\"version\": 2, \"xid\": 1, \"settled\": true, \"complete\": true, {}{}",
            STATE.trim_start_matches('{'),
            '\u{80}'
        );
        assert!(matches!(read(&padded), Err(MessageError::Json(_))));
    }
}
