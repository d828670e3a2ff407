//! Which row filters apply (`pgoutput_row_filter_init`).
//!
//! They count per action: a publication without one for an action removes those of the others for this action. FOR ALL
//! TABLES and TABLES IN SCHEMA mean "no row filter" for their tables.

use std::sync::Arc;

use row_filter::{DefaultCollation, Environment};
use storage_format::catalog::{
    Attribute, ColumnSchema, DatabaseFacts, Publication, RelationSchema, RowFilterText,
};

use super::Facts;
use super::membership::{Membership, entry, has_schema};
use crate::filter::{Column, Relation, RowFilters};
use crate::selection::Actions;

/// Row filters of a relation, by action. Several of one action are united by OR, in this order.
#[derive(Debug, Default)]
pub(super) struct Filters<'a> {
    /// Of INSERT, UPDATE and DELETE.
    by_action: [Vec<&'a RowFilterText>; 3],
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
            for (action, list) in FILTERED.iter().zip(&mut filters.by_action) {
                if actions.contains(*action) {
                    list.push(filter);
                }
            }
        }
        for (action, list) in FILTERED.iter().zip(&mut filters.by_action) {
            if unfiltered.contains(*action) {
                list.clear();
            }
        }
        filters
    }

    /// The actions that are filtered.
    pub(super) fn actions(&self) -> Actions {
        let lists = FILTERED.iter().zip(&self.by_action);
        let filtered = lists.filter(|(_, list)| !list.is_empty());
        filtered.fold(Actions::NONE, |all, (action, _)| all | *action)
    }

    /// Ready to judge rows of `schema`, published as `member` says; none if no action is filtered.
    pub(super) fn compile(
        &self,
        facts: Facts<'_>,
        member: &Membership<'_>,
        schema: &RelationSchema,
    ) -> Option<Arc<RowFilters>> {
        if self.actions().is_empty() {
            return None;
        }
        let described = facts.state.relation(member.publish_as);
        let attributes = described.and_then(|one| one.attributes.as_deref());
        let columns = match attributes {
            Some(attributes) => attributes
                .iter()
                .map(|one| described_column(one, schema))
                .collect(),
            None => (1..).zip(&schema.columns).map(plain_column).collect(),
        };
        let relation = Relation {
            columns,
            environment: environment(&facts.state.database),
        };
        let [insert, update, delete] = &self.by_action;
        let by_action = [insert.as_slice(), update, delete];
        Some(Arc::new(facts.filters.of(&relation, by_action)))
    }
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

fn environment(database: &DatabaseFacts) -> Environment {
    let locale = database.locale.as_deref().unwrap_or_default();
    let (collate, ctype) = (&database.collate, &database.ctype);
    let provider = char::from(database.provider);
    Environment {
        utf8: database.encoding == "UTF8",
        default_collation: DefaultCollation::of(provider, collate, ctype, locale),
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
