//! The rules of publications: `get_rel_sync_entry`, `pgoutput_row_filter_init`, `check_and_init_gencol`,
//! `pgoutput_column_list_init` and `pgoutput_truncate` in PostgreSQL's `pgoutput.c`.
//!
//! | module | what |
//! |---|---|
//! | `membership` | which publications publish a relation, as which relation |
//! | `columns` | which columns of it |
//! | `descriptions` | the RELATION messages that say so |
//! | `filters` | which rows of it |

mod columns;
mod descriptions;
mod filters;
mod membership;

use std::sync::Arc;

use pg_proto::Oid;
use storage_format::catalog::{Catalog, PublicationState, RelationSchema};

use self::columns::Projection;
use self::filters::Filters;
use self::membership::Membership;
use super::{Actions, Decision, Refusal, Shape, TableName};

/// What the rules look at.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    /// The source's major version: its own rules differ.
    pub(super) major: u32,
    pub(super) state: &'a PublicationState,
    /// Names of the publications, in the order in which the subscriber gave them.
    pub(super) names: &'a [String],
    /// What compiles row filters.
    pub(super) filters: &'a crate::filter::Filters,
}

impl<'a> Facts<'a> {
    pub(super) fn new(
        catalog: &'a Catalog,
        names: &'a [String],
        filters: &'a crate::filter::Filters,
    ) -> Self {
        Self {
            major: major(catalog),
            state: catalog.publication_state(),
            names,
            filters,
        }
    }
}

/// The source's major version; 15 where the log does not say.
fn major(catalog: &Catalog) -> u32 {
    let version = catalog.parameters().get("server_version").unwrap_or("");
    let digits = version.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(15)
}

/// What passes of a relation of which rows come. `columns`: of these columns only.
pub(super) fn decide(
    facts: Facts<'_>,
    oid: Oid,
    schema: Option<&RelationSchema>,
    columns: Option<&[String]>,
) -> Decision {
    let namespace = schema.map(|schema| schema.namespace.as_str());
    let member = Membership::of_table(facts, oid, namespace);
    let Some(schema) = schema.filter(|_| !member.actions.is_empty()) else {
        return Decision::pass(member.actions);
    };
    match shape(facts, &member, schema, columns) {
        Ok((shape, filters)) => with_filters(facts, &member, schema, shape, &filters),
        Err(refusal) => Decision::refuse(refusal.reach(member.actions), refusal),
    }
}

/// What passes of a partitioned table, of which TRUNCATEs come and no rows.
pub(super) fn decide_root(facts: Facts<'_>, oid: Oid) -> Option<Decision> {
    let root = facts.state.relation(oid).filter(|one| one.partitioned)?;
    let member = Membership::of_root(facts, root);
    // A partition of a published one is left out.
    if member.publish_as != oid {
        return Some(Decision::default());
    }
    let decided = (|| {
        let columns = root_columns(facts, &member)?;
        let described = descriptions::of_root(root, &columns);
        Ok(Shape::described(oid, vec![described]))
    })();
    Some(match decided {
        Ok(shape) => Decision {
            passes: member.actions,
            shape: Some(Arc::new(shape)),
            ..Decision::default()
        },
        Err(refusal) => {
            let refusal: Refusal = refusal;
            Decision::refuse(refusal.reach(member.actions), refusal)
        }
    })
}

fn root_columns(facts: Facts<'_>, member: &Membership<'_>) -> Result<Projection, Refusal> {
    if member.actions.intersects(Actions::ROWS) {
        columns::of(facts, member, None)
    } else {
        Ok(Projection::default())
    }
}

/// A subscription without publications: all rows, of these columns only.
pub(super) fn restricted(schema: &RelationSchema, columns: &[String]) -> Decision {
    match columns::restrict(schema, &Projection::default(), columns) {
        Ok(indexes) => Decision {
            passes: Actions::ALL,
            shape: own_shape(schema, indexes).map(Arc::new),
            ..Decision::default()
        },
        Err(refusal) => Decision::refuse(refusal.reach(Actions::ALL), refusal),
    }
}

/// How rows change on their way; `None`: not at all, as far as columns go.
fn shape<'a>(
    facts: Facts<'a>,
    member: &Membership<'a>,
    schema: &RelationSchema,
    restriction: Option<&[String]>,
) -> Result<(Option<Shape>, Filters<'a>), Refusal> {
    // As PostgreSQL has it, lists and filters are looked at only where rows are published.
    if !member.actions.intersects(Actions::ROWS) {
        let shape = (member.publish_as != schema.oid)
            .then(|| Shape::described(member.publish_as, Vec::new()));
        return Ok((shape, Filters::default()));
    }
    let filters = Filters::of(member, schema);
    let projection = columns::of(facts, member, Some(schema))?;
    if member.publish_as == schema.oid {
        let indexes = match restriction {
            Some(columns) => columns::restrict(schema, &projection, columns)?,
            None => columns::own_indexes(schema, &projection, facts.state)?,
        };
        return Ok((own_shape(schema, indexes), filters));
    }
    let root = facts.state.relation(member.publish_as);
    let root = root.ok_or_else(|| unknown_root(schema))?;
    let (columns, indexes) = columns::mapped(root, schema, &projection, restriction)?;
    let leaf = facts.state.relation(schema.oid);
    let described = vec![
        descriptions::of_root_columns(root, &columns),
        descriptions::of_leaf(schema, leaf, &projection),
    ];
    let shape = Shape {
        relation: root.oid,
        columns: Some(indexes),
        full_identity: Some(root.replica_identity == b'f'),
        descriptions: described,
        filters: None,
    };
    Ok((Some(shape), filters))
}

/// The shape of rows that keep their relation, if they lose columns.
fn own_shape(schema: &RelationSchema, indexes: Vec<u16>) -> Option<Shape> {
    let whole = indexes.len() == schema.columns.len()
        && indexes
            .iter()
            .enumerate()
            .all(|(at, index)| at == usize::from(*index));
    (!whole).then(|| Shape {
        relation: schema.oid,
        full_identity: None,
        descriptions: vec![descriptions::of_own(schema, &indexes)],
        columns: Some(indexes),
        filters: None,
    })
}

fn unknown_root(schema: &RelationSchema) -> Refusal {
    Refusal::MissingColumn {
        table: qualified(&schema.namespace, &schema.name),
        column: "of its partitioned table".to_owned(),
    }
}

/// What passes, by the filters if there are any.
fn with_filters(
    facts: Facts<'_>,
    member: &Membership<'_>,
    schema: &RelationSchema,
    mut shape: Option<Shape>,
    filters: &Filters<'_>,
) -> Decision {
    if let Some(filters) = filters.compile(facts, member, schema) {
        let shape = shape.get_or_insert_with(|| Shape::described(schema.oid, Vec::new()));
        shape.filters = Some(filters);
    }
    Decision {
        shape: shape.map(Arc::new),
        ..Decision::pass(member.actions)
    }
}

fn qualified(schema: &str, name: &str) -> TableName {
    TableName {
        schema: schema.to_owned(),
        name: name.to_owned(),
    }
}
