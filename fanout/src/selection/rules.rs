//! The rules of publications (`get_rel_sync_entry`, `pgoutput_row_filter_init` and
//! `pgoutput_column_list_init` in PostgreSQL's `pgoutput.c`).
//!
//! Actions are united over the subscribed publications. FOR ALL TABLES and FOR TABLES IN SCHEMA mean "no row filter"
//! for their tables, whatever else the same publication says of them. Row filters count per action: a publication
//! without one for an action removes those of the others for this action. Column lists do not: two publications
//! that differ in theirs are an error at the source, so one that leaves out a column is refused however many
//! others there are. A list that names every column is no list.

use std::sync::Arc;

use pg_proto::Oid;
use storage_format::catalog::{Publication, PublicationTable, RelationSchema};

use super::{Actions, Decision, Feature, Unsupported};

/// How one publication publishes one relation.
#[derive(Default)]
struct Coverage {
    /// As it is.
    plain: Actions,
    /// Through a row filter.
    filtered: Actions,
    /// Not as this build could serve it, whatever other publications say.
    barred: Actions,
    /// What is in the way of `filtered` and `barred`.
    feature: Option<Feature>,
}

/// What passes of a relation that the publications of `names` publish.
pub(super) fn decide(
    names: &[String],
    publications: &[Publication],
    oid: Oid,
    schema: Option<&RelationSchema>,
) -> Decision {
    let (mut plain, mut filtered, mut barred) = (Actions::NONE, Actions::NONE, Actions::NONE);
    let mut refusal = None;
    let named = publications.iter().filter(|one| names.contains(&one.name));
    for publication in named {
        let coverage = cover(publication, oid, schema);
        plain |= coverage.plain;
        filtered |= coverage.filtered;
        barred |= coverage.barred;
        if let Some(feature) = coverage.feature {
            refusal = refusal.or_else(|| {
                Some(Arc::new(Unsupported {
                    publication: publication.name.clone(),
                    feature,
                }))
            });
        }
    }
    // One column list, or one root, changes every row of the relation on this connection.
    let refused = if barred.is_empty() {
        filtered.without(plain)
    } else {
        plain | filtered | barred
    };
    Decision {
        passes: plain.without(refused),
        refused,
        refusal: refusal.filter(|_| !refused.is_empty()),
    }
}

fn cover(publication: &Publication, oid: Oid, schema: Option<&RelationSchema>) -> Coverage {
    let actions = Actions::from(publication.actions);
    let table = publication
        .tables
        .iter()
        .find(|table| table.relation == oid);
    let whole = publication.all_tables
        || schema.is_some_and(|schema| publication.schemas.contains(&schema.namespace));
    if !whole && table.is_none() {
        return Coverage::default();
    }
    if let Some(feature) = unsupported(publication) {
        return Coverage {
            barred: actions,
            feature: Some(feature),
            ..Coverage::default()
        };
    }
    match table.filter(|_| !whole) {
        Some(table) if lacks_columns(table, schema) => Coverage {
            barred: actions,
            feature: Some(Feature::ColumnList(qualified(table))),
            ..Coverage::default()
        },
        Some(table) if table.row_filter.is_some() => Coverage {
            // TRUNCATE takes no notice of row filters.
            plain: restrict(actions, Actions::TRUNCATE),
            filtered: actions.without(Actions::TRUNCATE),
            feature: Some(Feature::RowFilter(qualified(table))),
            ..Coverage::default()
        },
        _ => Coverage {
            plain: actions,
            ..Coverage::default()
        },
    }
}

/// What of the publication itself, whatever the table, is not supported.
pub(super) const fn unsupported(publication: &Publication) -> Option<Feature> {
    if publication.via_root && publication.has_partitioned_root {
        Some(Feature::PartitionRoot)
    } else if publication.generated_columns {
        Some(Feature::GeneratedColumns)
    } else {
        None
    }
}

/// What is in the way of serving a table through its column list.
pub(super) fn column_list(publication: &Publication, table: &PublicationTable) -> Arc<Unsupported> {
    Arc::new(Unsupported {
        publication: publication.name.clone(),
        feature: Feature::ColumnList(qualified(table)),
    })
}

const fn restrict(actions: Actions, to: Actions) -> Actions {
    actions.without(Actions::ALL.without(to))
}

/// Whether the table's column list leaves out one of the relation's columns. While the relation is not known there
/// are no rows of it; the question comes again with the first one.
fn lacks_columns(table: &PublicationTable, schema: Option<&RelationSchema>) -> bool {
    let (Some(list), Some(schema)) = (&table.columns, schema) else {
        return false;
    };
    let mut columns = schema.columns.iter();
    columns.any(|column| !list.contains(&column.name))
}

fn qualified(table: &PublicationTable) -> String {
    format!("{}.{}", table.schema, table.name)
}
