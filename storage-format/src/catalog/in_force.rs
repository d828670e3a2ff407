//! The publications in force where some of Decant's own count from an older position than the log says.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Attribute, Catalog, DescribedRelation, Generated, OwnVersion, OwnVersions, PublicationState,
    RelationSchema,
};

use pg_proto::Lsn;

/// The versions of some publications, by position. Between two bounds the same ones are in force.
#[derive(Clone, Debug, Default)]
pub struct OwnTimeline {
    versions: Arc<OwnVersions>,
    /// Ascending.
    bounds: Vec<Lsn>,
    /// The versions in force before the first bound, between each and the next, and behind the last, as far as the log does
    /// not state them there.
    parts: Vec<Vec<usize>>,
}

impl OwnTimeline {
    /// Of the publications that are `wanted`.
    #[must_use]
    pub fn new(versions: Arc<OwnVersions>, wanted: impl Fn(&str) -> bool) -> Self {
        let bounds = versions.bounds(&wanted);
        let names: BTreeSet<&str> = versions.all().iter().map(|one| &*one.name).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| wanted(name)).collect();
        let in_force = |lsn: &Lsn| {
            let found = names
                .iter()
                .filter_map(|name| versions.beside_log(name, *lsn));
            found.map(|(place, _)| place).collect()
        };
        let mut parts = vec![Vec::new()];
        parts.extend(bounds.iter().map(in_force));
        Self {
            bounds,
            parts,
            versions,
        }
    }

    /// The number of the part in which a change at `lsn` is.
    #[must_use]
    pub fn part(&self, lsn: Lsn) -> usize {
        self.bounds.partition_point(|bound| *bound <= lsn)
    }

    /// Whether the log states all that is in force in this part.
    #[must_use]
    pub fn is_stated(&self, part: usize) -> bool {
        self.parts.get(part).is_none_or(Vec::is_empty)
    }

    /// The publications in force in this part where the log has `state`. `catalog` says how tables look there.
    #[must_use]
    pub fn in_force(
        &self,
        part: usize,
        state: &PublicationState,
        catalog: &Catalog,
    ) -> PublicationState {
        let places = self.parts.get(part).into_iter().flatten();
        let versions: Vec<&OwnVersion> = places
            .filter_map(|place| self.versions.all().get(*place))
            .collect();
        let replaced = |name: &str| versions.iter().any(|one| one.name == name);
        let left = state.publications.iter();
        let left = left.filter(|one| !one.is_own() || !replaced(&one.name));
        let others = PublicationState {
            publications: left.cloned().collect(),
            ..state.clone()
        };
        let made = versions.iter().filter(|one| one.definition.is_some());
        let own: Vec<PublicationState> = made
            .map(|one| before_it_was_made(&one.state, state, catalog))
            .collect();
        others.with_own(&own, &mut |_, _| {})
    }
}

/// What a publication means before the position at which the source was asked for it: of its tables it knows how they are
/// then, and of the log how they were.
fn before_it_was_made(
    own: &PublicationState,
    state: &PublicationState,
    catalog: &Catalog,
) -> PublicationState {
    let mut own = own.clone();
    // Members of schemas and partitions of then: the log's own descriptions tell those of the place.
    let publications = own.publications.iter().cloned().map(|mut one| {
        one.tables.retain(|table| !table.implied);
        one
    });
    own.publications = publications.collect();
    for relation in &mut own.relations {
        let described = state.relation(relation.oid);
        let is_described = described.is_some_and(|one| one.attributes.is_some());
        if let Some(schema) = catalog.relation(relation.oid)
            && !is_described
        {
            restrict(relation, schema);
        }
    }
    own
}

/// Leaves out columns that were added later.
fn restrict(relation: &mut DescribedRelation, schema: &RelationSchema) {
    let Some(attributes) = &mut relation.attributes else {
        return;
    };
    let is_there = |one: &Attribute| schema.columns.iter().any(|column| column.name == one.name);
    let there = attributes.iter().filter(|one| is_there(one));
    let last = there.map(|one| one.number).max().unwrap_or(0);
    attributes.retain(|one| is_there(one) || one.generated != Generated::No && one.number < last);
    relation.attribute_count = u16::try_from(last).unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use pg_proto::Oid;

    use super::*;
    use crate::catalog::{Publication, PublicationTable};

    fn publication(name: &str, oid: u32, table: u32) -> Publication {
        Publication {
            oid: Oid(oid),
            name: name.to_owned(),
            tables: vec![PublicationTable {
                relation: Oid(table),
                ..PublicationTable::default()
            }],
            ..Publication::default()
        }
    }

    fn version(from: u64, table: Option<u32>) -> OwnVersion {
        OwnVersion {
            name: "p".to_owned(),
            from: Lsn(from),
            stated: Lsn(100),
            definition: table.map(|table| table.to_string()),
            state: table.map_or_else(PublicationState::default, |table| {
                PublicationState::from(vec![publication("p", 0, table)])
            }),
        }
    }

    fn tables(state: &PublicationState, name: &str) -> Vec<u32> {
        let named = state.publications.iter().filter(|one| one.name == name);
        let tables = named.flat_map(|one| &one.tables);
        tables.map(|table| table.relation.0).collect()
    }

    #[test]
    fn each_part_has_its_own_versions() {
        let mut versions = OwnVersions::default();
        versions.put(version(10, Some(1)));
        versions.put(version(20, None));
        versions.put(version(30, Some(3)));
        let timeline = OwnTimeline::new(Arc::new(versions.clone()), |name| name == "p");
        let catalog = Catalog::default();
        // The log has another definition of it from 15 on, and the source one of another name.
        let state = |lsn: u64| {
            let mut all = vec![publication("theirs", 5, 9)];
            if lsn >= 15 {
                all.push(publication("p", 0, 2));
            }
            PublicationState::from(all)
        };
        for (lsn, expected) in [
            (9, vec![]),
            (10, vec![1]),
            (15, vec![1]),
            (20, vec![]),
            (29, vec![]),
            (30, vec![3]),
            (99, vec![3]),
            (100, vec![2]),
        ] {
            let part = timeline.part(Lsn(lsn));
            let found = timeline.in_force(part, &state(lsn), &catalog);
            assert_eq!(tables(&found, "p"), expected, "{lsn}");
            assert_eq!(tables(&found, "theirs"), [9]);
            if timeline.is_stated(part) {
                assert_eq!(found, state(lsn));
            }
        }
        let others = OwnTimeline::new(Arc::new(versions), |name| name == "theirs");
        assert!(others.is_stated(others.part(Lsn(50))));
    }

    #[test]
    fn the_sources_publication_counts() {
        let mut versions = OwnVersions::default();
        versions.put(version(10, Some(1)));
        let timeline = OwnTimeline::new(Arc::new(versions), |_| true);
        let state = PublicationState::from(vec![publication("p", 7, 2)]);
        let found = timeline.in_force(timeline.part(Lsn(50)), &state, &Catalog::default());
        assert_eq!(found, state);
    }
}
