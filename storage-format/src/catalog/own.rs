//! Publications of Decant's own, beside those of the source.
//!
//! What one means was found out by the source, in a transaction that was rolled back: a state with this one publication and
//! what it depends on, as of then. It means columns by number, and follows what the source says of its tables elsewhere.

use std::collections::BTreeSet;

use pg_proto::Oid;

use super::{Attribute, DescribedRelation, Publication, PublicationState, PublicationTable};

/// The text of a filter of which a column was renamed or dropped. The filter's tree goes by number; where its text has to be
/// evaluated, in an initial copy for example, the source says that it has no column of this name.
const RENAMED: &str = "\"column renamed: run decctl publication alter\"";

/// Something that somebody may want to know of a publication of Decant's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnNote<'a> {
    /// The source has one of the same name, which counts.
    Hidden,
    /// A column that it lists was dropped from this table; the others are published.
    ColumnDropped(&'a str),
}

impl PublicationState {
    /// One publication of a state, and what it depends on. It has no number of the source: that is one of a transaction
    /// that was rolled back.
    #[must_use]
    pub fn alone(mut self, name: &str) -> Option<Self> {
        let found = self.publications.iter().find(|one| one.name == name);
        let mut publication = found.cloned()?;
        publication.oid = Oid(0);
        let tables: BTreeSet<Oid> = publication.tables.iter().map(|one| one.relation).collect();
        self.relations.retain(|one| tables.contains(&one.oid));
        self.publications = vec![publication].into();
        self.sort();
        Some(self)
    }

    /// The publication of a state that has one alone.
    #[must_use]
    pub fn only_publication(&self) -> Option<&Publication> {
        self.publications.first()
    }

    /// These and publications of Decant's own, each a state of one [alone](Self::alone). Where both have a name the
    /// source's counts. `note` hears of what may not be expected.
    #[must_use]
    pub fn with_own<'a>(
        &self,
        own: impl IntoIterator<Item = &'a Self>,
        note: &mut dyn FnMut(&str, OwnNote<'_>),
    ) -> Self {
        let mut all = self.clone();
        let mut publications = self.publications.to_vec();
        for one in own {
            let Some(publication) = one.only_publication() else {
                continue;
            };
            let name = &publication.name;
            if publications.iter().any(|known| known.name == *name) {
                note(name, OwnNote::Hidden);
                continue;
            }
            publications.push(one.as_of(publication, self, note));
            add_relations(&mut all, one, one.is_described(self));
        }
        all.publications = publications.into();
        all.sort();
        all
    }

    /// Whether the source says which partitions the partitioned tables have that the publication names.
    fn is_described(&self, source: &Self) -> bool {
        let mut roots = self.named_roots().peekable();
        roots.peek().is_some() && roots.all(|one| source.relation(one.relation).is_some())
    }

    /// Partitioned tables that the publication of a state of one alone names.
    pub fn named_roots(&self) -> impl Iterator<Item = &PublicationTable> {
        let tables = self.only_publication().into_iter();
        let tables = tables.flat_map(|one| &one.tables);
        tables.filter(|one| one.partitioned && !one.implied)
    }

    /// The publication with its tables' columns named as they are now, as far as the source says that. A column that was
    /// dropped is no longer listed.
    fn as_of(
        &self,
        publication: &Publication,
        source: &Self,
        note: &mut dyn FnMut(&str, OwnNote<'_>),
    ) -> Publication {
        let mut publication = publication.clone();
        if self.is_described(source) {
            // Partitions are known by their ancestors.
            publication.tables.retain(|table| !table.implied);
        }
        for table in &mut publication.tables {
            let attributes = |state: &Self| {
                let described = state.relation(table.relation);
                described.and_then(|one| one.attributes.clone())
            };
            if let (Some(then), Some(now)) = (attributes(self), attributes(source)) {
                let listed = table.columns.as_ref().map(Vec::len);
                follow(table, &then, &now);
                if table.columns.as_ref().map(Vec::len) != listed {
                    note(&publication.name, OwnNote::ColumnDropped(&table.name));
                }
            }
        }
        publication
    }
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
            let mut now = now.iter();
            filter.reads(then.number)
                && !now.any(|one| one.number == then.number && one.name == then.name)
        });
        if renamed {
            RENAMED.clone_into(&mut filter.sql);
        }
    }
}

/// `partitions`: what of them is true is in the source's state, and nothing else.
fn add_relations(all: &mut PublicationState, own: &PublicationState, partitions: bool) {
    let is_partition = |one: &DescribedRelation| one.partitioned || !one.ancestors.is_empty();
    for relation in &own.relations {
        if partitions && is_partition(relation) {
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
    use super::*;
    use crate::catalog::RowFilterText;

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
}
