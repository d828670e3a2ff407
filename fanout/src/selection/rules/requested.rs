//! Row filters that a subscriber brings itself.
//!
//! The source parsed them when the stream began, for the tables of then; they are applied to the log's rows of whatever
//! time. Where that can't be done, rows are refused: they are never sent unfiltered.

use storage_format::catalog::RelationSchema;

use super::Facts;
use super::membership::Membership;
use crate::selection::{Refusal, TableFilter};

/// The filter for rows of a relation that are published as `member` says.
pub(super) fn of<'a>(
    facts: Facts<'a>,
    member: &Membership<'_>,
    schema: &RelationSchema,
) -> Result<Option<&'a TableFilter>, Refusal> {
    let mut found = None;
    for filter in facts.requested {
        let not_so = || Refusal::FilterTable(filter.table.clone());
        if filter.relation == member.publish_as {
            found = Some(filter);
        } else if filter.partitioned {
            in_force(facts, filter)?;
        } else {
            let renewed =
                filter.table.schema == schema.namespace && filter.table.name == schema.name;
            if filter.relation == schema.oid || renewed {
                return Err(not_so());
            }
        }
    }
    Ok(found)
}

/// Whether the filters of partitioned tables can be applied at all.
pub(in crate::selection) fn check(facts: Facts<'_>) -> Result<(), Refusal> {
    let mut filters = facts.requested.iter().filter(|one| one.partitioned);
    filters.try_for_each(|filter| in_force(facts, filter))
}

/// Which relations are partitions of a table is known only where it is published in their place.
fn in_force(facts: Facts<'_>, filter: &TableFilter) -> Result<(), Refusal> {
    let root = facts.state.relation(filter.relation);
    let published = root.map(|root| Membership::of_root(facts, root));
    let in_force = published
        .is_some_and(|root| !root.actions.is_empty() && root.publish_as == filter.relation);
    in_force
        .then_some(())
        .ok_or_else(|| Refusal::FilterTable(filter.table.clone()))
}
