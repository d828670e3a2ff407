//! A selection, evaluated as of one place of the log after another.

use std::sync::Arc;

use pg_proto::Oid;
use storage_format::catalog::{Catalog, Publication, RelationSchema};

use super::{Actions, Decision, OidMap, Publications, SelectionSpec, Unsupported, rules};

/// A selection with its decisions for the relations met so far, under the publications in force.
#[derive(Debug)]
pub struct Selection {
    spec: SelectionSpec,
    publications: Arc<[Publication]>,
    missing: Vec<String>,
    decisions: OidMap<Known>,
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
        let publications = Arc::clone(catalog.publications());
        let missing = missing(&spec, &publications);
        Self {
            spec,
            publications,
            missing,
            decisions: OidMap::default(),
        }
    }

    /// What was asked for.
    #[must_use]
    pub const fn spec(&self) -> &SelectionSpec {
        &self.spec
    }

    /// Names of publications that do not exist under the catalog in force.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Puts another version of the catalog in force; true if its publications are others.
    pub fn set_catalog(&mut self, catalog: &Catalog) -> bool {
        let publications = catalog.publications();
        if Arc::ptr_eq(&self.publications, publications) {
            return false;
        }
        let same = self.publications == *publications;
        self.publications = Arc::clone(publications);
        if same {
            return false;
        }
        self.missing = missing(&self.spec, &self.publications);
        self.decisions.clear();
        true
    }

    /// What passes of a relation, as `catalog` describes it; that must be the version in force.
    pub fn decide(&mut self, oid: Oid, catalog: &Catalog) -> &Decision {
        let schema = catalog.relation(oid);
        let known = self.decisions.entry(oid).or_insert_with(|| Known {
            schema: schema.cloned(),
            decision: decide(&self.spec, &self.publications, oid, schema),
        });
        let same = match (&known.schema, schema) {
            (Some(known), Some(schema)) => Arc::ptr_eq(known, schema),
            (None, None) => true,
            _ => false,
        };
        if !same {
            *known = Known {
                schema: schema.cloned(),
                decision: decide(&self.spec, &self.publications, oid, schema),
            };
        }
        &known.decision
    }

    /// What passes of a relation, if that was asked before for the same description of it.
    #[must_use]
    pub fn decided(&self, oid: Oid) -> Option<&Decision> {
        self.decisions.get(&oid).map(|known| &known.decision)
    }
}

/// Fails if the selection, as of `catalog`, can't be served exactly.
pub fn check_supported(spec: &SelectionSpec, catalog: &Catalog) -> Result<(), Arc<Unsupported>> {
    let Publications::Named(names) = &spec.publications else {
        return Ok(());
    };
    let publications = catalog.publications();
    let named = publications.iter().filter(|one| names.contains(&one.name));
    for publication in named {
        if let Some(feature) = rules::unsupported(publication) {
            return Err(Arc::new(Unsupported {
                publication: publication.name.clone(),
                feature,
            }));
        }
        let special = publication.tables.iter();
        for table in special.filter(|one| one.columns.is_some() || one.row_filter.is_some()) {
            let schema = catalog.relation(table.relation);
            let decision = decide(spec, publications, table.relation, schema);
            if let Some(refusal) = decision.refusal {
                return Err(refusal);
            }
            // There was no row of it yet, so nobody knows whether the list has every column.
            if schema.is_none() && table.columns.is_some() && spec.lists(&table.schema, &table.name)
            {
                return Err(rules::column_list(publication, table));
            }
        }
    }
    Ok(())
}

fn missing(spec: &SelectionSpec, publications: &[Publication]) -> Vec<String> {
    match &spec.publications {
        Publications::Everything => Vec::new(),
        Publications::Named(names) => {
            let unknown = |name: &&String| !publications.iter().any(|one| one.name == **name);
            names.iter().filter(unknown).cloned().collect()
        }
    }
}

fn decide(
    spec: &SelectionSpec,
    publications: &[Publication],
    oid: Oid,
    schema: Option<&Arc<RelationSchema>>,
) -> Decision {
    let listed = match schema {
        Some(schema) => spec.lists(&schema.namespace, &schema.name),
        None => spec.tables.is_empty(),
    };
    if !listed {
        return Decision::default();
    }
    match &spec.publications {
        Publications::Everything => Decision::pass(Actions::ALL),
        Publications::Named(names) => {
            rules::decide(names, publications, oid, schema.map(AsRef::as_ref))
        }
    }
}
