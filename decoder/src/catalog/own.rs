//! Publications that belong to Decant and not to the source.
//!
//! They become part of the log's catalog: wherever the source states its publications, the decoder adds these. So a change of
//! one counts from a place in commit order, the same for every subscriber and every replay, and fanouts need to know nothing
//! of the difference. What a definition means was found out by the source, which parsed it in a transaction that was
//! rolled back.

use pg_proto::Oid;
use storage_format::catalog::{OwnNote, Publication, PublicationState};

use super::message::parse_state;
use super::state_json::StateJson;

/// Longest name of a publication, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// A publication of Decant's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPublication {
    /// As `CREATE PUBLICATION` would have it behind the name.
    pub definition: String,
    /// The publication, alone, and what it depends on.
    state: PublicationState,
}

/// A definition can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OwnPublicationError {
    /// The name is none.
    #[error("a publication's name has 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    /// It is not what a state query gives.
    #[error("the publication's state is not in the expected form: {0}")]
    Form(#[from] serde_json::Error),
    /// The state does not have the publication.
    #[error("the state does not have publication \"{0}\"")]
    Absent(String),
    /// Which tables are partitioned can change without a word.
    #[error(
        "publication \"{0}\" has partitioned tables that it does not name: publications of Decant's own follow the partitions of \
         tables that they name, and all tables without publish_via_partition_root"
    )]
    Partitioned(String),
}

impl OwnPublication {
    /// From what the source said it means: the value of a state query in the transaction in which it existed.
    pub fn new(
        name: &str,
        definition: String,
        state_json: &str,
    ) -> Result<Self, OwnPublicationError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(OwnPublicationError::Name);
        }
        let all = parse_state(state_json)?;
        let state = all
            .alone(name)
            .ok_or_else(|| OwnPublicationError::Absent(name.to_owned()))?;
        let own = Self { definition, state };
        let rooted = own.publication().is_some_and(|one| {
            let unnamed = !one.schemas.is_empty() || one.all_tables && one.via_root;
            one.has_partitioned_root && unnamed
        });
        if rooted {
            return Err(OwnPublicationError::Partitioned(name.to_owned()));
        }
        Ok(own)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.publication().map_or("", |one| &one.name)
    }

    /// The relations that it names.
    pub fn relations(&self) -> impl Iterator<Item = Oid> + '_ {
        let tables = self.publication().into_iter().flat_map(|one| &one.tables);
        tables.filter(|one| !one.implied).map(|one| one.relation)
    }

    /// Whether it names partitioned tables.
    #[must_use]
    pub fn has_roots(&self) -> bool {
        self.state.named_roots().next().is_some()
    }

    fn publication(&self) -> Option<&Publication> {
        self.state.only_publication()
    }

    /// The publication, alone, and what it depends on.
    #[must_use]
    pub const fn state(&self) -> &PublicationState {
        &self.state
    }

    /// Whether `state` has the publication with just this definition.
    #[must_use]
    pub fn is_in(&self, state: &PublicationState) -> bool {
        let own = |state: &PublicationState| {
            let mut all = state.publications.iter();
            all.find(|one| one.is_own() && one.name == self.name())
                .cloned()
        };
        let others = PublicationState {
            publications: Vec::new().into(),
            ..state.clone()
        };
        let stated = others.with_own([&self.state], &mut |_, _| {});
        own(state).is_some_and(|found| Some(found) == own(&stated))
    }

    /// Its state as JSON, for the store.
    pub fn state_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&StateJson::from(&self.state))
    }
}

/// The source's publications and Decant's own. Where both have a name the source's counts.
#[must_use]
pub fn with_own(source: &PublicationState, own: &[OwnPublication]) -> PublicationState {
    let mut note = |publication: &str, note: OwnNote<'_>| match note {
        OwnNote::Hidden => tracing::warn!(
            publication,
            "the source has a publication of the same name as one of Decant's own: the source's counts"
        ),
        OwnNote::ColumnDropped(table) => tracing::warn!(
            publication,
            table,
            "a column that the publication lists was dropped: the others are published"
        ),
    };
    source.with_own(own.iter().map(|one| &one.state), &mut note)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = r#"{"database": {"ctype": "C", "locale": null, "collate": "C", "encoding": "UTF8", "provider": "c"},
        "relations": [
          {"oid": 10, "name": "t", "schema": "public", "ancestors": [], "attributes": [[1, "id", 23, -1, 0, "", true]],
           "partitioned": false, "attribute_count": 1, "replica_identity": "d"},
          {"oid": 11, "name": "u", "schema": "public", "ancestors": [], "attributes": [[1, "id", 23, -1, 0, "", true]],
           "partitioned": false, "attribute_count": 1, "replica_identity": "d"}],
        "collations": [],
        "publications": [
          {"oid": 90, "name": "other", "delete": true, "insert": true, "tables": [], "update": true, "schemas": [],
           "truncate": false, "via_root": false, "all_tables": true, "generated_columns": false, "has_partitioned_root": false},
          {"oid": 91, "name": "mine", "delete": true, "insert": true, "update": true, "schemas": [],
           "tables": [{"oid": 10, "name": "t", "named": true, "schema": "public", "columns": ["id"], "row_filter": null,
                       "partitioned": false, "row_filter_tree": null}],
           "truncate": false, "via_root": false, "all_tables": false, "generated_columns": false, "has_partitioned_root": false}]}"#;

    fn own() -> OwnPublication {
        OwnPublication::new("mine", "FOR TABLE t (id)".to_owned(), STATE).unwrap()
    }

    #[test]
    fn only_the_publication_itself_is_kept() {
        let own = own();
        assert_eq!(own.name(), "mine");
        assert_eq!(own.state.publications.len(), 1);
        assert_eq!(own.state.relations.len(), 1);
        let json = own.state_json().unwrap();
        let again = OwnPublication::new("mine", own.definition.clone(), &json);
        assert_eq!(again.unwrap(), own);
    }

    #[test]
    fn it_stands_beside_the_sources_and_the_source_counts() {
        let theirs = Publication {
            name: "theirs".to_owned(),
            ..Publication::default()
        };
        let mut source = PublicationState::from(vec![theirs]);
        let all = with_own(&source, &[own()]);
        let names: Vec<&str> = all
            .publications
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(names, ["theirs", "mine"]);
        assert!(all.relation(Oid(10)).is_some());
        source.publications = vec![Publication {
            oid: Oid(5),
            name: "mine".to_owned(),
            ..Publication::default()
        }]
        .into();
        assert_eq!(with_own(&source, &[own()]), source);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let new = |name: &str, json: &str| OwnPublication::new(name, String::new(), json);
        let absent = new("nosuch", STATE);
        assert!(matches!(absent, Err(OwnPublicationError::Absent(_))));
        assert!(matches!(new("", STATE), Err(OwnPublicationError::Name)));
        assert!(matches!(
            new("mine", "{}"),
            Err(OwnPublicationError::Form(_))
        ));
        let rooted = STATE
            .replace(
                r#""has_partitioned_root": false"#,
                r#""has_partitioned_root": true"#,
            )
            .replace(r#""schemas": []"#, r#""schemas": ["public"]"#);
        let partitioned = new("mine", &rooted);
        assert!(matches!(
            partitioned,
            Err(OwnPublicationError::Partitioned(_))
        ));
        let named = STATE.replace(
            r#""has_partitioned_root": false"#,
            r#""has_partitioned_root": true"#,
        );
        assert!(new("other", &named).is_ok());
        assert!(new("mine", &named).is_ok());
    }
}
