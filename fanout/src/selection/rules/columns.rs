//! Which columns are published (`check_and_init_gencol`, `pgoutput_column_list_init`,
//! `logicalrep_should_publish_column`).
//!
//! Up to version 17 a list that names every column is no list, and two publications must have the same list or none;
//! version 15 counts dropped columns too, so that there a table with one never has a whole list.
//! From 18 on a list is compared with the columns that the publications without one publish, which may have stored
//! generated ones.

use std::collections::BTreeSet;

use storage_format::catalog::{
    Attribute, DescribedRelation, Generated, Publication, PublicationState, RelationSchema,
};

use super::membership::{Membership, entry};
use super::{Facts, qualified};
use crate::selection::Refusal;

/// The first version whose publications can publish generated columns.
const GENERATED_SINCE: u32 = 18;

/// Which columns of the relation that is published are sent.
#[derive(Debug, Default)]
pub(super) struct Projection {
    /// These, if there is a list.
    pub(super) list: Option<BTreeSet<String>>,
    /// Their attribute numbers, where they are known; partitions' RELATION messages go by them.
    pub(super) numbers: BTreeSet<i16>,
    /// Whether stored generated columns are sent, if there is none.
    pub(super) stored: bool,
}

impl Projection {
    fn sends(&self, name: &str, generated: Generated) -> bool {
        match &self.list {
            Some(list) => list.contains(name),
            None => is_sent(generated, self.stored),
        }
    }
}

const fn is_sent(generated: Generated, stored: bool) -> bool {
    match generated {
        Generated::No => true,
        Generated::Stored => stored,
        Generated::Virtual => false,
    }
}

/// What the publications that count say together. `schema`: the relation itself, where it is published as itself.
pub(super) fn of(
    facts: Facts<'_>,
    member: &Membership<'_>,
    schema: Option<&RelationSchema>,
) -> Result<Projection, Refusal> {
    let described = facts.state.relation(member.publish_as);
    let schema = schema.filter(|schema| schema.oid == member.publish_as);
    let Some(relation) = Columns::new(described, schema) else {
        return Ok(Projection::default());
    };
    let mut projection = Projection::default();
    if facts.major >= GENERATED_SINCE {
        projection.stored = publishes_stored(member, &relation)?;
    }
    projection.list = if facts.major >= GENERATED_SINCE {
        list_since_18(member, &relation, projection.stored)?
    } else {
        let live = match described.filter(|_| facts.major < 16) {
            Some(described) => usize::from(described.attribute_count),
            None => relation.sent_without_list(false).len(),
        };
        list_before_18(member, &relation, live)?
    };
    if let Some(list) = &projection.list {
        let attributes = described.and_then(|one| one.attributes.as_ref());
        let listed = attributes.into_iter().flatten();
        projection.numbers = listed
            .filter(|attribute| list.contains(&attribute.name))
            .map(|attribute| attribute.number)
            .collect();
    }
    Ok(projection)
}

/// Names and kinds of a relation's columns.
struct Columns<'a> {
    schema: &'a str,
    name: &'a str,
    all: Vec<(&'a str, Generated)>,
}

impl<'a> Columns<'a> {
    fn new(
        described: Option<&'a DescribedRelation>,
        schema: Option<&'a RelationSchema>,
    ) -> Option<Self> {
        let attributes = described.and_then(|one| one.attributes.as_ref());
        let (namespace, name) = match (schema, described) {
            (Some(schema), _) => (&schema.namespace, &schema.name),
            (None, Some(described)) => (&described.schema, &described.name),
            (None, None) => return None,
        };
        let all = match (attributes, schema) {
            (Some(attributes), _) => attributes
                .iter()
                .map(|one| (one.name.as_str(), one.generated))
                .collect(),
            (None, Some(schema)) => schema
                .columns
                .iter()
                .map(|one| (one.name.as_str(), Generated::No))
                .collect(),
            (None, None) => return None,
        };
        Some(Self {
            schema: namespace,
            name,
            all,
        })
    }

    fn sent_without_list(&self, stored: bool) -> BTreeSet<String> {
        let sent = self.all.iter().filter(|(_, kind)| is_sent(*kind, stored));
        sent.map(|(name, _)| (*name).to_owned()).collect()
    }

    fn different_lists(&self) -> Refusal {
        Refusal::DifferentLists(qualified(self.schema, self.name))
    }
}

fn list_of<'a>(publication: &'a Publication, member: &Membership<'_>) -> Option<&'a Vec<String>> {
    entry(publication, member.publish_as)
        .filter(|_| !publication.all_tables)
        .and_then(|table| table.columns.as_ref())
}

fn list_before_18(
    member: &Membership<'_>,
    relation: &Columns<'_>,
    live: usize,
) -> Result<Option<BTreeSet<String>>, Refusal> {
    let mut lists = member.publications.iter().map(|publication| {
        let list = list_of(publication, member).filter(|list| list.len() != live);
        list.map(|list| list.iter().cloned().collect::<BTreeSet<_>>())
    });
    let first = lists.next().flatten();
    if lists.all(|list| list == first) {
        Ok(first)
    } else {
        Err(relation.different_lists())
    }
}

fn list_since_18(
    member: &Membership<'_>,
    relation: &Columns<'_>,
    stored: bool,
) -> Result<Option<BTreeSet<String>>, Refusal> {
    let lists = || member.publications.iter().map(|one| list_of(one, member));
    if lists().all(|list| list.is_none()) {
        return Ok(None);
    }
    let whole = relation.sent_without_list(stored);
    let mut sets = lists().map(|list| match list {
        Some(list) => list.iter().cloned().collect(),
        None => whole.clone(),
    });
    let first = sets.next();
    if sets.all(|set| Some(&set) == first.as_ref()) {
        Ok(first)
    } else {
        Err(relation.different_lists())
    }
}

/// Whether stored generated columns are published where there is no list.
fn publishes_stored(member: &Membership<'_>, relation: &Columns<'_>) -> Result<bool, Refusal> {
    if relation.all.iter().all(|(_, kind)| *kind == Generated::No) {
        return Ok(false);
    }
    let without_list = member
        .publications
        .iter()
        .filter(|one| list_of(one, member).is_none());
    let mut values = without_list.map(|one| one.generated_columns);
    let first = values.next().unwrap_or(false);
    if values.all(|value| value == first) {
        Ok(first)
    } else {
        let table = qualified(relation.schema, relation.name);
        Err(Refusal::DifferentGenerated(table))
    }
}

/// Which of a relation's own columns are sent, as indexes into its RELATION message.
pub(super) fn own_indexes(
    schema: &RelationSchema,
    projection: &Projection,
    state: &PublicationState,
) -> Result<Vec<u16>, Refusal> {
    let described = state.relation(schema.oid);
    let names = schema.columns.iter().map(|column| column.name.as_str());
    let expected = projection.list.iter().flatten().map(String::as_str);
    let stored = described
        .iter()
        .flat_map(|one| one.attributes.iter().flatten())
        .filter(|one| projection.list.is_none() && one.generated == Generated::Stored)
        .filter(|_| projection.stored)
        .map(|one| one.name.as_str());
    for name in expected.chain(stored) {
        if !names.clone().any(|known| known == name) {
            return Err(missing(schema, name, kind_of(described, name)));
        }
    }
    let sent = names
        .enumerate()
        .filter(|(_, name)| projection.sends(name, kind_of(described, name)));
    Ok(sent
        .filter_map(|(index, _)| index.try_into().ok())
        .collect())
}

/// Which of a relation's own columns are sent to a subscriber that named those it wants.
pub(super) fn restrict(
    schema: &RelationSchema,
    projection: &Projection,
    columns: &[String],
) -> Result<Vec<u16>, Refusal> {
    let mut indexes = Vec::with_capacity(columns.len());
    for name in columns {
        let index = schema.columns.iter().position(|one| one.name == *name);
        let published = projection
            .list
            .as_ref()
            .is_none_or(|list| list.contains(name));
        match index.filter(|_| published).map(u16::try_from) {
            Some(Ok(index)) => indexes.push(index),
            _ => return Err(missing(schema, name, Generated::No)),
        }
    }
    indexes.sort_unstable();
    indexes.dedup();
    Ok(indexes)
}

/// The root's columns that are sent, and where each is in a partition's rows (`build_attrmap_by_name`).
pub(super) fn mapped<'a>(
    root: &'a DescribedRelation,
    leaf: &RelationSchema,
    projection: &Projection,
    restriction: Option<&[String]>,
) -> Result<(Vec<&'a Attribute>, Vec<u16>), Refusal> {
    let mut columns = Vec::new();
    let mut indexes = Vec::new();
    for attribute in root.attributes.iter().flatten() {
        let wanted = restriction.is_none_or(|names| names.contains(&attribute.name));
        if !wanted || !projection.sends(&attribute.name, attribute.generated) {
            continue;
        }
        let index = leaf
            .columns
            .iter()
            .position(|one| one.name == attribute.name);
        let Some(Ok(index)) = index.map(u16::try_from) else {
            return Err(missing(leaf, &attribute.name, attribute.generated));
        };
        columns.push(attribute);
        indexes.push(index);
    }
    let unknown = restriction.into_iter().flatten().find(|name| {
        let known = |one: &&Attribute| one.name == **name;
        !columns.iter().any(known)
    });
    match unknown {
        Some(name) => Err(missing(leaf, name, Generated::No)),
        None => Ok((columns, indexes)),
    }
}

/// The root's columns that are sent.
pub(super) fn of_root<'a>(
    root: &'a DescribedRelation,
    projection: &Projection,
) -> Vec<&'a Attribute> {
    let attributes = root.attributes.iter().flatten();
    attributes
        .filter(|one| projection.sends(&one.name, one.generated))
        .collect()
}

/// Which columns a partition's own RELATION message has: by the numbers of the root's columns, as PostgreSQL does.
pub(super) fn of_leaf(
    leaf: &RelationSchema,
    described: Option<&DescribedRelation>,
    projection: &Projection,
) -> Vec<u16> {
    let attributes = described.and_then(|one| one.attributes.as_ref());
    let sends = |index: usize, name: &str| {
        let attribute = attributes.and_then(|all| all.iter().find(|one| one.name == name));
        if projection.list.is_none() {
            let generated = attribute.map_or(Generated::No, |one| one.generated);
            return is_sent(generated, projection.stored);
        }
        let number =
            attribute.map_or_else(|| i16::try_from(index + 1).ok(), |one| Some(one.number));
        number.is_some_and(|number| projection.numbers.contains(&number))
    };
    let columns = leaf.columns.iter().enumerate();
    columns
        .filter(|(index, column)| sends(*index, &column.name))
        .filter_map(|(index, _)| index.try_into().ok())
        .collect()
}

fn kind_of(described: Option<&DescribedRelation>, name: &str) -> Generated {
    let attributes = described
        .into_iter()
        .flat_map(|one| one.attributes.iter().flatten());
    let mut named = attributes.filter(|one| one.name == name);
    named.next().map_or(Generated::No, |one| one.generated)
}

fn missing(schema: &RelationSchema, column: &str, generated: Generated) -> Refusal {
    let table = qualified(&schema.namespace, &schema.name);
    let column = column.to_owned();
    match generated {
        Generated::Stored => Refusal::MissingGenerated { table, column },
        _ => Refusal::MissingColumn { table, column },
    }
}
