//! Publications that belong to Decant and not to the source.
//!
//! They become part of the log's catalog: wherever the source states its publications, the decoder adds these. So a change of
//! one counts from a place in commit order, the same for every subscriber and every replay, and fanouts need to know nothing
//! of the difference. What a definition means was found out by the source, which parsed it in a transaction that was
//! rolled back.

use std::collections::BTreeSet;

use pg_proto::Oid;
use storage_format::catalog::{
    Attribute, DescribedRelation, Publication, PublicationState, PublicationTable,
};

use super::message::parse_state;
use super::state_json::StateJson;

/// Longest name of a publication, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// The text of a filter of which a column was renamed or dropped. The filter's tree goes by number; where its text has to be
/// evaluated, in an initial copy for example, the source says that it has no column of this name.
const RENAMED: &str = "\"column renamed: run decctl publication alter\"";

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
        let state = alone(all, name).ok_or_else(|| OwnPublicationError::Absent(name.to_owned()))?;
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
        let mut tables = self.publication().into_iter().flat_map(|one| &one.tables);
        tables.any(|one| one.partitioned && !one.implied)
    }

    /// Whether the source says which partitions its partitioned tables have.
    fn is_described(&self, source: &PublicationState) -> bool {
        let tables = self.publication().into_iter().flat_map(|one| &one.tables);
        let mut roots = tables.filter(|one| one.partitioned && !one.implied);
        self.has_roots() && roots.all(|one| described(source, one.relation).is_some())
    }

    fn publication(&self) -> Option<&Publication> {
        self.state.publications.first()
    }

    /// The publication with its tables' columns named as they are now, as far as the source says that: it means them by
    /// number. A column that was dropped is no longer listed.
    fn as_of(&self, publication: &Publication, source: &PublicationState) -> Publication {
        let mut publication = publication.clone();
        if self.is_described(source) {
            // Partitions are known by their ancestors.
            publication.tables.retain(|table| !table.implied);
        }
        for table in &mut publication.tables {
            let relation = table.relation;
            let attributes =
                |state| described(state, relation).and_then(|one| one.attributes.clone());
            if let (Some(then), Some(now)) = (attributes(&self.state), attributes(source)) {
                let listed = table.columns.as_ref().map(Vec::len);
                follow(table, &then, &now);
                if table.columns.as_ref().map(Vec::len) != listed {
                    tracing::warn!(
                        publication = self.name(),
                        table = table.name,
                        "a column that the publication lists was dropped: the others are published"
                    );
                }
            }
        }
        publication
    }

    /// Its state as JSON, for the store.
    pub fn state_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&StateJson::from(&self.state))
    }
}

fn described(state: &PublicationState, oid: Oid) -> Option<&DescribedRelation> {
    state.relations.iter().find(|one| one.oid == oid)
}

/// Has a table's list and filter name columns as they are `now`, where they were made for those of `then`.
fn follow(table: &mut PublicationTable, then: &[Attribute], now: &[Attribute]) {
    let current = |name: &String| {
        let then = then.iter().find(|one| one.name == *name)?;
        now.iter().find(|one| one.number == then.number)
    };
    if let Some(columns) = &mut table.columns {
        let named = columns.iter().filter_map(current);
        *columns = named.map(|one| one.name.clone()).collect();
    }
    if let Some(filter) = &mut table.row_filter {
        let renamed = then.iter().any(|then| {
            let used = filter.tree.contains(&format!(":varattno {} ", then.number));
            let mut now = now.iter();
            used && !now.any(|one| one.number == then.number && one.name == then.name)
        });
        if renamed {
            RENAMED.clone_into(&mut filter.sql);
        }
    }
}

/// One publication of a state, and what it depends on. It has no number of the source: that is one of a transaction that
/// was rolled back.
pub(super) fn alone(mut state: PublicationState, name: &str) -> Option<PublicationState> {
    let found = state.publications.iter().find(|one| one.name == name);
    let mut publication = found.cloned()?;
    publication.oid = Oid(0);
    let tables: BTreeSet<Oid> = publication.tables.iter().map(|one| one.relation).collect();
    state.relations.retain(|one| tables.contains(&one.oid));
    state.publications = vec![publication].into();
    Some(state)
}

/// The source's publications and Decant's own. Where both have a name the source's counts.
#[must_use]
pub fn with_own(source: &PublicationState, own: &[OwnPublication]) -> PublicationState {
    let mut all = source.clone();
    let mut publications = source.publications.to_vec();
    for one in own {
        if publications.iter().any(|known| known.name == one.name()) {
            tracing::warn!(
                publication = one.name(),
                "the source has a publication of the same name as one of Decant's own: the source's counts"
            );
            continue;
        }
        publications.extend(
            one.publication()
                .map(|publication| one.as_of(publication, source)),
        );
        add_relations(&mut all, &one.state, one.is_described(source));
    }
    all.publications = publications.into();
    all.sort();
    all
}

/// `partitions`: what of them is true is in the source's state, and nothing else.
fn add_relations(all: &mut PublicationState, own: &PublicationState, partitions: bool) {
    for relation in &own.relations {
        if partitions && (relation.partitioned || !relation.ancestors.is_empty()) {
            continue;
        }
        match all.relations.iter_mut().find(|one| one.oid == relation.oid) {
            // What the source says now is newer.
            Some(known) if known.attributes.is_some() => {}
            Some(known) => known.attributes.clone_from(&relation.attributes),
            None => all.relations.push(relation.clone()),
        }
    }
    for collation in &own.collations {
        if all.collation(collation.oid).is_none() {
            all.collations.push(collation.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use storage_format::catalog::RowFilterText;

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
    fn columns_are_meant_by_number() {
        let attribute = |number, name: &str| Attribute {
            number,
            name: name.to_owned(),
            ..Attribute::default()
        };
        let then = [attribute(1, "id"), attribute(2, "v"), attribute(3, "w")];
        let now = [attribute(1, "key"), attribute(3, "w"), attribute(4, "v")];
        let mut table = PublicationTable {
            columns: Some(vec!["id".to_owned(), "v".to_owned(), "w".to_owned()]),
            row_filter: Some(RowFilterText {
                sql: "(w > 1)".to_owned(),
                tree: "{VAR :varattno 3 :vartype 23}".to_owned(),
            }),
            ..PublicationTable::default()
        };
        follow(&mut table, &then, &now);
        let columns = table.columns.as_deref().unwrap();
        assert_eq!(
            columns,
            ["key", "w"],
            "a new column of a dropped one's name is another one"
        );
        assert_eq!(table.row_filter.as_ref().unwrap().sql, "(w > 1)");
        table.row_filter.as_mut().unwrap().tree = "{VAR :varattno 1 :vartype 23}".to_owned();
        follow(&mut table, &then, &now);
        assert_eq!(table.row_filter.unwrap().sql, RENAMED);
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
