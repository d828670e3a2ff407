//! Which row filters apply (`pgoutput_row_filter_init`).
//!
//! They count per action: a publication without one for an action removes those of the others for this action. FOR ALL
//! TABLES and TABLES IN SCHEMA mean "no row filter" for their tables.

use storage_format::catalog::{Publication, RelationSchema, RowFilterText};

use super::membership::{Membership, entry, has_schema};
use crate::selection::Actions;

/// Row filters of a relation, by action. Several of one action are united by OR, in this order.
#[derive(Debug, Default)]
pub(super) struct Filters<'a> {
    /// Of INSERT, UPDATE and DELETE.
    by_action: [Vec<&'a RowFilterText>; 3],
    publication: Option<&'a str>,
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
            filters.publication = filters.publication.or(Some(&publication.name));
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

    /// A publication that has one, for messages.
    pub(super) const fn first_publication(&self) -> Option<&'a str> {
        self.publication
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
