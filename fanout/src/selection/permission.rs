//! What a role may read of what it asks for.
//!
//! Nothing is left out in silence: a table or column that is published to the role and that it may not read ends its
//! stream, at the start if it is known there, else at its first change.

use std::sync::Arc;

use storage_format::catalog::RelationSchema;

use super::{Decision, Publications, Refusal, SelectionSpec, TableName};
use crate::auth::Grant;

/// Whether this may be asked for.
pub(super) fn check_spec(spec: &SelectionSpec) -> Result<(), Arc<Refusal>> {
    let Some(grant) = &spec.grant else {
        return Ok(());
    };
    let refusal = match &spec.publications {
        Publications::Everything if grant.allows_everything() => {
            return filters_denied(spec, grant);
        }
        Publications::Everything => Refusal::EverythingDenied,
        Publications::Named(names) => {
            let mut names = names.iter();
            match names.find(|name| !grant.allows_publication(name)) {
                None => return filters_denied(spec, grant),
                Some(name) => Refusal::PublicationDenied(name.clone()),
            }
        }
    };
    Err(Arc::new(refusal))
}

/// A filter tells of what it reads: it may read only what its subscriber may.
fn filters_denied(spec: &SelectionSpec, grant: &Grant) -> Result<(), Arc<Refusal>> {
    for filter in &spec.filters {
        let TableName { schema, name } = &filter.table;
        if !grant.allows_table(schema, name) {
            return Err(Arc::new(Refusal::TableDenied(filter.table.clone())));
        }
        for (number, _) in row_filter::variables(&filter.text.tree) {
            let column = filter.attributes.iter().find(|one| one.number == number);
            let column = column.map_or("", |one| &one.name);
            if !grant.allows_column(schema, name, column) {
                return Err(Arc::new(Refusal::ColumnDenied {
                    table: filter.table.clone(),
                    column: column.to_owned(),
                }));
            }
        }
    }
    Ok(())
}

/// The decision, unless it would let the role read what it may not.
pub(super) fn checked(
    grant: &Grant,
    decision: Decision,
    schema: Option<&RelationSchema>,
) -> Decision {
    if decision.passes.is_empty() {
        return decision;
    }
    let described = decision.shape.iter().flat_map(|shape| &shape.descriptions);
    // The first one is of the relation that the rows name. What was written by this process can be read.
    let mut described = described.filter_map(|one| RelationSchema::from_message(&one.message).ok());
    let denied = match (described.next(), schema) {
        (Some(sent), _) => denied(grant, &sent),
        (None, Some(schema)) => denied(grant, schema),
        (None, None) => None,
    };
    match denied {
        Some(refusal) => Decision::refuse(decision.passes | decision.refused, refusal),
        None => decision,
    }
}

fn denied(grant: &Grant, sent: &RelationSchema) -> Option<Refusal> {
    let (schema, name) = (sent.namespace.as_str(), sent.name.as_str());
    let table = || TableName {
        schema: schema.to_owned(),
        name: name.to_owned(),
    };
    if !grant.allows_table(schema, name) {
        return Some(Refusal::TableDenied(table()));
    }
    let mut columns = sent.columns.iter();
    let column = columns.find(|column| !grant.allows_column(schema, name, &column.name))?;
    Some(Refusal::ColumnDenied {
        table: table(),
        column: column.name.clone(),
    })
}
