//! Which row filters apply (`pgoutput_row_filter_init`).
//!
//! They count per action: a publication without one for an action removes those of the others for this action. FOR ALL
//! TABLES and TABLES IN SCHEMA mean "no row filter" for their tables.

use std::borrow::Cow;
use std::sync::Arc;

use row_filter::{DefaultCollation, Environment};
use storage_format::catalog::{
    Attribute, ColumnSchema, DatabaseFacts, Publication, RelationSchema, RowFilterText,
};

use super::membership::{Membership, entry, has_schema};
use super::{Facts, qualified};
use crate::filter::{Column, Relation, RowFilters};
use crate::selection::{Actions, Refusal, TableFilter};

/// Row filters of a relation, by action. Several of one action are united by OR, in this order.
#[derive(Debug, Default)]
pub(super) struct Filters<'a> {
    /// Of INSERT, UPDATE and DELETE.
    by_action: [Vec<Cow<'a, RowFilterText>>; 3],
    /// Those among them that the source does not know, so that it can't refuse what contradicts them.
    unguarded: [Vec<&'a RowFilterText>; 3],
    /// One that the subscriber brought.
    requested: Option<&'a TableFilter>,
}

const FILTERED: [Actions; 3] = [Actions::INSERT, Actions::UPDATE, Actions::DELETE];

impl<'a> Filters<'a> {
    pub(super) fn of(member: &Membership<'a>, schema: &RelationSchema) -> Self {
        let mut filters = Self::default();
        let mut unfiltered = Actions::NONE;
        for publication in &member.publications {
            let actions = Actions::from(publication.actions);
            let Some(filter) = filter_of(publication, member, schema) else {
                unfiltered |= actions;
                continue;
            };
            for (index, action) in FILTERED.into_iter().enumerate() {
                if actions.contains(action) {
                    filters.add(index, filter, publication.is_own());
                }
            }
        }
        for (index, action) in FILTERED.into_iter().enumerate() {
            if unfiltered.contains(action) {
                filters.by_action[index].clear();
                filters.unguarded[index].clear();
            }
        }
        filters
    }

    fn add(&mut self, index: usize, filter: &'a RowFilterText, unguarded: bool) {
        self.by_action[index].push(Cow::Borrowed(filter));
        if unguarded {
            self.unguarded[index].push(filter);
        }
    }

    /// Of what these let pass only what the subscriber's own filter lets pass too.
    pub(super) fn narrow(&mut self, filter: &'a TableFilter) {
        for index in 0..FILTERED.len() {
            let united = std::mem::take(&mut self.by_action[index]);
            self.by_action[index] = vec![both(&united, &filter.text)];
            self.unguarded[index].push(&filter.text);
        }
        self.requested = Some(filter);
    }

    /// The actions that are filtered.
    fn actions(&self) -> Actions {
        let lists = FILTERED.iter().zip(&self.by_action);
        let filtered = lists.filter(|(_, list)| !list.is_empty());
        filtered.fold(Actions::NONE, |all, (action, _)| all | *action)
    }

    /// Ready to judge rows of a relation; none if no action is filtered.
    pub(super) fn compile(&self, facts: Facts<'_>, relation: &Relation) -> Option<Arc<RowFilters>> {
        if self.actions().is_empty() {
            return None;
        }
        let by_action = self.by_action.each_ref().map(|list| {
            let texts = list.iter().map(AsRef::as_ref);
            texts.collect::<Vec<&RowFilterText>>()
        });
        let by_action = by_action.each_ref().map(Vec::as_slice);
        Some(Arc::new(facts.filters.of(relation, by_action)))
    }

    /// The columns of the relation as which `schema` is published, and where they are in the rows of `schema`.
    pub(super) fn relation(
        &self,
        facts: Facts<'_>,
        member: &Membership<'_>,
        schema: &RelationSchema,
    ) -> Relation {
        let described = facts.state.relation(member.publish_as);
        let asked = self.requested.map(|one| one.attributes.as_slice());
        let attributes = match described {
            Some(described) => described.attributes.as_deref(),
            None => asked,
        };
        let columns = match attributes {
            Some(attributes) => attributes
                .iter()
                .map(|one| described_column(one, schema))
                .collect(),
            None => (1..).zip(&schema.columns).map(plain_column).collect(),
        };
        Relation {
            columns,
            environment: environment(&facts.state.database, facts.stated_major),
        }
    }

    /// At which of the published actions the stream ends, because of a filter that the source does not know.
    pub(super) fn refused(
        &self,
        facts: Facts<'_>,
        published: Actions,
        relation: &Relation,
        schema: &RelationSchema,
    ) -> Option<(Actions, Refusal)> {
        let table = || qualified(&schema.namespace, &schema.name);
        let mut keyless = Actions::NONE;
        for (action, texts) in FILTERED.into_iter().zip(&self.unguarded) {
            if !published.contains(action) {
                continue;
            }
            let variables = texts
                .iter()
                .flat_map(|text| row_filter::variables(&text.tree));
            for (number, type_oid) in variables {
                let found = relation.columns.iter().find(|one| one.attribute == number);
                let found = found.filter(|one| one.type_oid == type_oid);
                let sent = found.and_then(|one| schema.columns.get(usize::from(one.index?)));
                let Some(column) = sent else {
                    return Some((published, Refusal::FilterColumn(table())));
                };
                if !column.is_key && action != Actions::INSERT {
                    keyless |= action;
                }
            }
        }
        let denied = self
            .requested
            .and_then(|one| denied_column(facts, one, relation, schema));
        if let Some(refusal) = denied {
            return Some((published, refusal));
        }
        (!keyless.is_empty()).then(|| (keyless, Refusal::FilterIdentity(table())))
    }

    /// Whether the subscriber's filter, as SQL for the source, would name columns that are called otherwise here.
    pub(super) fn is_renamed(&self, relation: &Relation) -> bool {
        let Some(filter) = self.requested else {
            return false;
        };
        row_filter::variables(&filter.text.tree)
            .into_iter()
            .any(|(number, _)| {
                let then = filter.attributes.iter().find(|one| one.number == number);
                let here = relation.columns.iter().find(|one| one.attribute == number);
                then.map(|one| &one.name) != here.map(|one| &one.name)
            })
    }
}

/// What both let pass: any of `united`, or everything if there is none, and `filter`.
fn both<'a>(
    united: &[Cow<'a, RowFilterText>],
    filter: &'a RowFilterText,
) -> Cow<'a, RowFilterText> {
    let node = |operator: &str, trees: &str| {
        format!("{{BOOLEXPR :boolop {operator} :args ({trees}) :location -1}}")
    };
    let trees: Vec<&str> = united.iter().map(|one| one.tree.as_str()).collect();
    let any = match trees.as_slice() {
        [] => return Cow::Borrowed(filter),
        [one] => (*one).to_owned(),
        several => node("or", &several.join(" ")),
    };
    let each: Vec<String> = united.iter().map(|one| format!("({})", one.sql)).collect();
    Cow::Owned(RowFilterText {
        sql: format!("({}) AND ({})", each.join(" OR "), filter.sql),
        tree: node("and", &format!("{any} {}", filter.tree)),
    })
}

/// A column that the subscriber's own filter reads and the subscriber may not.
fn denied_column(
    facts: Facts<'_>,
    filter: &TableFilter,
    relation: &Relation,
    schema: &RelationSchema,
) -> Option<Refusal> {
    let grant = facts.grant?;
    let described = facts.state.relation(filter.relation);
    let (namespace, name) = described.map_or((&schema.namespace, &schema.name), |one| {
        (&one.schema, &one.name)
    });
    let variables = row_filter::variables(&filter.text.tree);
    let mut columns = variables.into_iter().filter_map(|(number, _)| {
        let column = relation.columns.iter().find(|one| one.attribute == number);
        column.map(|one| &one.name)
    });
    let column = columns.find(|column| !grant.allows_column(namespace, name, column))?;
    Some(Refusal::ColumnDenied {
        table: qualified(namespace, name),
        column: column.clone(),
    })
}

fn described_column(attribute: &Attribute, schema: &RelationSchema) -> Column {
    let mut columns = schema.columns.iter();
    let index = columns.position(|one| one.name == attribute.name);
    Column {
        attribute: attribute.number,
        name: attribute.name.clone(),
        type_oid: attribute.type_oid.0,
        collation: attribute.collation.0,
        index: index.and_then(|index| u16::try_from(index).ok()),
    }
}

/// A column of which the log says no more than RELATION does.
fn plain_column((attribute, column): (i16, &ColumnSchema)) -> Column {
    Column {
        attribute,
        name: column.name.clone(),
        type_oid: column.type_oid.0,
        collation: 0,
        index: u16::try_from(attribute - 1).ok(),
    }
}

fn environment(database: &DatabaseFacts, major: Option<u32>) -> Environment {
    let locale = database.locale.as_deref().unwrap_or_default();
    let (collate, ctype) = (&database.collate, &database.ctype);
    let provider = char::from(database.provider);
    Environment {
        utf8: database.encoding == "UTF8",
        default_collation: DefaultCollation::of(provider, collate, ctype, locale),
        major,
    }
}

fn filter_of<'a>(
    publication: &'a Publication,
    member: &Membership<'_>,
    schema: &RelationSchema,
) -> Option<&'a RowFilterText> {
    let own = member.publish_as == schema.oid;
    if publication.all_tables || (own && has_schema(publication, &schema.namespace)) {
        return None;
    }
    // Of a root in a published schema the source says none.
    entry(publication, member.publish_as).and_then(|table| table.row_filter.as_ref())
}
