//! Which of the subscribed publications publish a relation, and as which relation (`get_rel_sync_entry`).

use pg_proto::Oid;
use storage_format::catalog::{DescribedRelation, Publication, PublicationTable};

use super::Facts;
use crate::selection::Actions;

/// How the subscribed publications publish a relation together.
#[derive(Debug)]
pub(super) struct Membership<'a> {
    /// United over all that publish it.
    pub(super) actions: Actions,
    /// The relation as which it is published: itself, or the topmost ancestor that a publication publishes via the root.
    pub(super) publish_as: Oid,
    /// Those that count for columns and filters: the ones that publish it as that relation.
    pub(super) publications: Vec<&'a Publication>,
    level: usize,
}

impl<'a> Membership<'a> {
    /// Of a relation of which rows come.
    pub(super) fn of_table(facts: Facts<'a>, oid: Oid, namespace: Option<&str>) -> Self {
        let ancestors = facts
            .state
            .relation(oid)
            .map_or(&[][..], |one| &one.ancestors);
        let mut member = Self::none(oid);
        for publication in named(facts) {
            if let Some((as_relation, level)) =
                published(facts, publication, oid, namespace, ancestors)
            {
                member.add(publication, as_relation, level);
            }
        }
        member
    }

    /// Of a partitioned table: only publications via the root publish it, and not its partitions in its place.
    pub(super) fn of_root(facts: Facts<'a>, root: &DescribedRelation) -> Self {
        let mut member = Self::none(root.oid);
        for publication in named(facts).filter(|one| one.via_root) {
            let found = published(
                facts,
                publication,
                root.oid,
                Some(&root.schema),
                &root.ancestors,
            );
            if let Some((as_relation, level)) = found {
                member.add(publication, as_relation, level);
            }
        }
        member
    }

    /// Of a relation that needs no publication.
    pub(super) fn everything(oid: Oid) -> Self {
        Self {
            actions: Actions::ALL,
            ..Self::none(oid)
        }
    }

    const fn none(oid: Oid) -> Self {
        Self {
            actions: Actions::NONE,
            publish_as: oid,
            publications: Vec::new(),
            level: 0,
        }
    }

    /// The topmost relation over all publications wins, and with it the publications that publish it.
    fn add(&mut self, publication: &'a Publication, as_relation: Oid, level: usize) {
        self.actions |= Actions::from(publication.actions);
        if self.level > level {
            return;
        }
        if self.level < level {
            self.level = level;
            self.publish_as = as_relation;
            self.publications.clear();
        }
        self.publications.push(publication);
    }
}

/// The subscribed publications that exist, in the subscriber's order.
fn named(facts: Facts<'_>) -> impl Iterator<Item = &Publication> {
    facts.names.iter().filter_map(move |name| {
        let mut all = facts.state.publications.iter();
        all.find(|publication| publication.name == *name)
    })
}

/// As which relation, and how far above it, a publication publishes a relation; `None`: it does not.
fn published(
    facts: Facts<'_>,
    publication: &Publication,
    oid: Oid,
    namespace: Option<&str>,
    ancestors: &[Oid],
) -> Option<(Oid, usize)> {
    if publication.all_tables {
        let root = ancestors.last().filter(|_| publication.via_root);
        return Some(root.map_or((oid, 0), |root| (*root, ancestors.len())));
    }
    let ancestor = topmost_ancestor(facts, publication, ancestors);
    let in_schema = namespace.is_some_and(|name| has_schema(publication, name));
    let listed = publication.tables.iter().any(|one| one.relation == oid);
    if ancestor.is_none() && !in_schema && !listed {
        return None;
    }
    Some(
        ancestor
            .filter(|_| publication.via_root)
            .unwrap_or((oid, 0)),
    )
}

/// `GetTopMostAncestorInPublication`, with the ancestor's level.
fn topmost_ancestor(
    facts: Facts<'_>,
    publication: &Publication,
    ancestors: &[Oid],
) -> Option<(Oid, usize)> {
    let published = |oid: Oid| {
        let schema = facts.state.relation(oid).map(|one| one.schema.as_str());
        entry(publication, oid).is_some()
            || schema.is_some_and(|schema| has_schema(publication, schema))
    };
    let mut levels = ancestors.iter().copied().enumerate().rev();
    levels
        .find(|(_, oid)| published(*oid))
        .map(|(index, oid)| (oid, index + 1))
}

pub(super) fn has_schema(publication: &Publication, name: &str) -> bool {
    publication.schemas.iter().any(|schema| schema == name)
}

/// What a publication says of a relation that it names.
pub(super) fn entry(publication: &Publication, oid: Oid) -> Option<&PublicationTable> {
    let mut tables = publication.tables.iter();
    tables.find(|table| table.relation == oid && !table.implied)
}
