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
        Publications::Everything if grant.allows_everything() => return Ok(()),
        Publications::Everything => Refusal::EverythingDenied,
        Publications::Named(names) => {
            let mut names = names.iter();
            match names.find(|name| !grant.allows_publication(name)) {
                None => return Ok(()),
                Some(name) => Refusal::PublicationDenied(name.clone()),
            }
        }
    };
    Err(Arc::new(refusal))
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
        Some(refusal) => Decision::refuse(decision.passes, refusal),
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
