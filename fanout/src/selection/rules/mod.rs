//! The rules of publications: `get_rel_sync_entry`, `pgoutput_row_filter_init`, `check_and_init_gencol`,
//! `pgoutput_column_list_init` and `pgoutput_truncate` in PostgreSQL's `pgoutput.c`.
//!
//! | module | what |
//! |---|---|
//! | `membership` | which publications publish a relation, as which relation |
//! | `columns` | which columns of it |
//! | `descriptions` | the RELATION messages that say so |
//! | `filters` | which rows of it |
//! | `requested` | row filters that a subscriber brings itself |

mod columns;
mod descriptions;
mod filters;
mod membership;
mod requested;

use std::sync::Arc;

use pg_proto::Oid;
use storage_format::catalog::{Catalog, Publication, PublicationState, RelationSchema};

use self::columns::Projection;
use self::filters::Filters;
use self::membership::Membership;
pub(super) use self::requested::check as check_requested;
use super::{
    Actions, Decision, Publications, Refusal, SelectionSpec, Shape, TableFilter, TableName,
};
use crate::auth::Grant;

/// What the rules look at.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    /// The source's major version: its own rules differ. 15 where the log does not say.
    pub(super) major: u32,
    /// The same, if the log says it.
    pub(super) stated_major: Option<u32>,
    pub(super) state: &'a PublicationState,
    /// Names of the publications, in the order in which the subscriber gave them.
    pub(super) names: &'a [String],
    /// Row filters that the subscriber brought.
    pub(super) requested: &'a [TableFilter],
    /// What may be read; `None`: everything.
    pub(super) grant: Option<&'a Grant>,
    /// What compiles row filters.
    pub(super) filters: &'a crate::filter::Filters,
}

impl<'a> Facts<'a> {
    pub(super) fn new(
        catalog: &'a Catalog,
        spec: &'a SelectionSpec,
        filters: &'a crate::filter::Filters,
    ) -> Self {
        let stated_major = major(catalog);
        Self {
            major: stated_major.unwrap_or(15),
            stated_major,
            state: catalog.publication_state(),
            names: match &spec.publications {
                Publications::Everything => &[],
                Publications::Named(names) => names,
            },
            requested: &spec.filters,
            grant: spec.grant.as_deref(),
            filters,
        }
    }
}

/// The source's major version, if the log says it.
fn major(catalog: &Catalog) -> Option<u32> {
    let version = catalog.parameters().get("server_version").unwrap_or("");
    let digits = version.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok())
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
    let decided = shape(facts, &member, schema, columns)
        .and_then(|(shape, filters)| with_filters(facts, &member, schema, shape, filters));
    match decided {
        Ok(decision) => decision,
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

/// A subscription without publications: all rows, or those of the subscriber's filter; of these columns only.
pub(super) fn restricted(
    facts: Facts<'_>,
    schema: &RelationSchema,
    columns: Option<&[String]>,
) -> Decision {
    let member = Membership::everything(schema.oid);
    let shape = match columns {
        None => Ok(None),
        Some(columns) => columns::restrict(schema, &Projection::default(), columns)
            .map(|indexes| own_shape(schema, indexes)),
    };
    let decided =
        shape.and_then(|shape| with_filters(facts, &member, schema, shape, Filters::default()));
    decided.unwrap_or_else(|refusal| Decision::refuse(refusal.reach(Actions::ALL), refusal))
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
fn with_filters<'a>(
    facts: Facts<'a>,
    member: &Membership<'a>,
    schema: &RelationSchema,
    mut shape: Option<Shape>,
    mut filters: Filters<'a>,
) -> Result<Decision, Refusal> {
    if let Some(filter) = requested::of(facts, member, schema)? {
        filters.narrow(filter);
    }
    let relation = filters.relation(facts, member, schema);
    let mut refused = filters.refused(facts, member.actions, &relation, schema);
    if refused.is_none() {
        refused = list_refused(member, schema, shape.as_ref());
    }
    if let Some(compiled) = filters.compile(facts, &relation) {
        if compiled.needs_postgresql() && filters.is_renamed(&relation) {
            return Err(Refusal::FilterColumn(qualified(
                &schema.namespace,
                &schema.name,
            )));
        }
        let shape = shape.get_or_insert_with(|| Shape::described(schema.oid, Vec::new()));
        shape.filters = Some(compiled);
    }
    let (refused, refusal) = refused.map_or((Actions::NONE, None), |(refused, refusal)| {
        (refused, Some(Arc::new(refusal)))
    });
    Ok(Decision {
        passes: member.actions.without(refused),
        refused,
        refusal,
        shape: shape.map(Arc::new),
    })
}

/// Of a publication of Decant's own, the source can't refuse UPDATEs and DELETEs of which the columns sent would not
/// tell the row.
fn list_refused(
    member: &Membership<'_>,
    schema: &RelationSchema,
    shape: Option<&Shape>,
) -> Option<(Actions, Refusal)> {
    let is_listed = |publication: &&Publication| -> bool {
        let entry = membership::entry(publication, member.publish_as);
        publication.is_own() && entry.is_some_and(|table| table.columns.is_some())
    };
    let changes = (Actions::UPDATE | Actions::DELETE).restrict(member.actions);
    let sent = shape?.columns.as_ref()?;
    if changes.is_empty() || !member.publications.iter().any(is_listed) {
        return None;
    }
    let mut keys = schema
        .columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column.is_key);
    let left_out = keys.any(|(index, _)| !sent.iter().any(|one| usize::from(*one) == index));
    left_out.then(|| {
        (
            changes,
            Refusal::ListIdentity(qualified(&schema.namespace, &schema.name)),
        )
    })
}

fn qualified(schema: &str, name: &str) -> TableName {
    TableName {
        schema: schema.to_owned(),
        name: name.to_owned(),
    }
}
