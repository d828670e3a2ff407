//! A selection, evaluated as of one place of the log after another.

use std::sync::Arc;

use pg_proto::Oid;
use storage_format::catalog::{Catalog, PublicationState, RelationSchema};

use super::permission;
use super::rules::{self, Facts};
use super::{Actions, Decision, OidMap, Publications, Refusal, SelectionSpec};
use crate::filter::Filters;

/// A selection with its decisions for the relations met so far, under the publications in force.
#[derive(Debug)]
pub struct Selection {
    spec: SelectionSpec,
    state: Arc<PublicationState>,
    missing: Vec<String>,
    decisions: OidMap<Known>,
    filters: Filters,
}

/// A decision and the description of the relation for which it was made.
#[derive(Debug)]
struct Known {
    schema: Option<Arc<RelationSchema>>,
    decision: Decision,
}

impl Selection {
    /// What was asked for, under the publications of `catalog`.
    #[must_use]
    pub fn new(spec: SelectionSpec, catalog: &Catalog) -> Self {
        let state = Arc::clone(catalog.publication_state());
        let missing = missing(&spec, &state);
        Self {
            spec,
            state,
            missing,
            decisions: OidMap::default(),
            filters: Filters::default(),
        }
    }

    /// Row filters are compiled, and evaluated by the source if need be, by these.
    #[must_use]
    pub fn with_filters(mut self, filters: Filters) -> Self {
        self.filters = filters;
        self.decisions.clear();
        self
    }

    /// What was asked for.
    #[must_use]
    pub const fn spec(&self) -> &SelectionSpec {
        &self.spec
    }

    /// What row filters are compiled by.
    #[must_use]
    pub const fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Names of publications that do not exist under the catalog in force.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Puts another version of the catalog in force; true if its publications, or what they depend on, are others.
    pub fn set_catalog(&mut self, catalog: &Catalog) -> bool {
        let state = catalog.publication_state();
        if Arc::ptr_eq(&self.state, state) {
            return false;
        }
        let same = self.state == *state;
        self.state = Arc::clone(state);
        if same {
            return false;
        }
        self.missing = missing(&self.spec, &self.state);
        self.decisions.clear();
        true
    }

    /// What passes of a relation, as `catalog` describes it; that must be the version in force.
    pub fn decide(&mut self, oid: Oid, catalog: &Catalog) -> &Decision {
        let schema = catalog.relation(oid);
        let known = self.decisions.entry(oid).or_insert_with(|| Known {
            schema: schema.cloned(),
            decision: decide(&self.spec, catalog, oid, schema, &self.filters),
        });
        let same = match (&known.schema, schema) {
            (Some(known), Some(schema)) => Arc::ptr_eq(known, schema),
            (None, None) => true,
            _ => false,
        };
        if !same {
            *known = Known {
                schema: schema.cloned(),
                decision: decide(&self.spec, catalog, oid, schema, &self.filters),
            };
        }
        &known.decision
    }

    /// Whether these are all the partitions that have rows of a partitioned table.
    #[must_use]
    pub fn has_all_leaves(&self, root: Oid, relations: impl Fn(Oid) -> bool) -> bool {
        let all = self.state.relations.iter();
        all.filter(|one| !one.partitioned && one.ancestors.contains(&root))
            .all(|leaf| relations(leaf.oid))
    }

    /// What passes of a relation, if that was asked before for the same description of it.
    #[must_use]
    pub fn decided(&self, oid: Oid) -> Option<&Decision> {
        self.decisions.get(&oid).map(|known| &known.decision)
    }
}

/// Fails if the selection, as of `catalog`, can't be served exactly. What PostgreSQL itself refuses at a change is left
/// to that change.
pub fn check_supported(spec: &SelectionSpec, catalog: &Catalog) -> Result<(), Arc<Refusal>> {
    permission::check_spec(spec)?;
    let Publications::Named(names) = &spec.publications else {
        return Ok(());
    };
    let filters = Filters::default();
    rules::check_requested(Facts::new(catalog, spec, &filters))?;
    let publications = catalog.publications();
    let named = publications.iter().filter(|one| names.contains(&one.name));
    for table in named.flat_map(|publication| &publication.tables) {
        let schema = catalog.relation(table.relation);
        let decision = decide(spec, catalog, table.relation, schema, &filters);
        let refusal = decision.refusal;
        let refusal = refusal.filter(|one| !one.is_of_postgresql());
        if let Some(refusal) = refusal.filter(|one| !is_outdated(one, spec, catalog, schema)) {
            return Err(refusal);
        }
    }
    Ok(())
}

/// Whether a column is missing only because no row has come since it was added: the RELATION message that describes it
/// comes with the next one.
fn is_outdated(
    refusal: &Refusal,
    spec: &SelectionSpec,
    catalog: &Catalog,
    schema: Option<&Arc<RelationSchema>>,
) -> bool {
    let (Refusal::MissingColumn { column, .. }, Some(schema)) = (refusal, schema) else {
        return false;
    };
    if !spec.tables.is_empty() || schema.columns.iter().any(|one| one.name == *column) {
        return false;
    }
    let described = catalog.publication_state().relation(schema.oid);
    let attributes = described.and_then(|one| one.attributes.as_ref());
    attributes.is_none_or(|all| all.iter().any(|one| one.name == *column))
}

fn missing(spec: &SelectionSpec, state: &PublicationState) -> Vec<String> {
    match &spec.publications {
        Publications::Everything => Vec::new(),
        Publications::Named(names) => {
            let known = |name: &str| state.publications.iter().any(|one| one.name == name);
            names.iter().filter(|name| !known(name)).cloned().collect()
        }
    }
}

fn decide(
    spec: &SelectionSpec,
    catalog: &Catalog,
    oid: Oid,
    schema: Option<&Arc<RelationSchema>>,
    filters: &Filters,
) -> Decision {
    let decision = decide_as_asked(spec, catalog, oid, schema, filters);
    match &spec.grant {
        None => decision,
        Some(grant) => permission::checked(grant, decision, schema.map(AsRef::as_ref)),
    }
}

fn decide_as_asked(
    spec: &SelectionSpec,
    catalog: &Catalog,
    oid: Oid,
    schema: Option<&Arc<RelationSchema>>,
    filters: &Filters,
) -> Decision {
    let facts = Facts::new(catalog, spec, filters);
    if spec.publications == Publications::Everything {
        return decide_without_publications(facts, spec, schema);
    }
    let decision = match schema {
        Some(schema) => {
            let columns = spec.columns_of(&schema.namespace, &schema.name);
            let decision = rules::decide(facts, oid, Some(schema), columns);
            match columns_of_root(spec, catalog, oid, &decision) {
                Some(columns) => rules::decide(facts, oid, Some(schema), Some(columns)),
                None => decision,
            }
        }
        None => {
            rules::decide_root(facts, oid).unwrap_or_else(|| rules::decide(facts, oid, None, None))
        }
    };
    if is_listed(spec, catalog, oid, schema, &decision) {
        decision
    } else {
        Decision::default()
    }
}

/// The columns that are meant of the partitioned table that a relation is published as.
fn columns_of_root<'a>(
    spec: &'a SelectionSpec,
    catalog: &Catalog,
    oid: Oid,
    decision: &Decision,
) -> Option<&'a [String]> {
    let root = decision.shape.as_ref().map(|shape| shape.relation);
    let root = root.filter(|root| *root != oid)?;
    let described = catalog.publication_state().relation(root)?;
    spec.columns_of(&described.schema, &described.name)
}

fn decide_without_publications(
    facts: Facts<'_>,
    spec: &SelectionSpec,
    schema: Option<&Arc<RelationSchema>>,
) -> Decision {
    let Some(schema) = schema else {
        let any = spec.tables.is_empty();
        return Decision::pass(if any { Actions::ALL } else { Actions::NONE });
    };
    let (namespace, name) = (&schema.namespace, &schema.name);
    if !spec.lists(namespace, name) {
        return Decision::default();
    }
    rules::restricted(facts, schema, spec.columns_of(namespace, name))
}

/// Whether the table was asked for, by its own name or by that of the table that its rows are published as.
fn is_listed(
    spec: &SelectionSpec,
    catalog: &Catalog,
    oid: Oid,
    schema: Option<&Arc<RelationSchema>>,
    decision: &Decision,
) -> bool {
    if spec.tables.is_empty() {
        return true;
    }
    let own = schema.is_some_and(|one| spec.lists(&one.namespace, &one.name));
    let published_as = decision.shape.as_ref().map_or(oid, |shape| shape.relation);
    let described = catalog.publication_state().relation(published_as);
    own || described.is_some_and(|one| one.partitioned && spec.lists(&one.schema, &one.name))
}
