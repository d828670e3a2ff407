//! Which descriptions of relations a connection has been given.

use std::collections::BTreeMap;
use std::sync::Arc;

use pg_proto::Oid;
use storage_format::catalog::{Catalog, RelationSchema, TypeName};

use crate::selection::OidMap;

/// The RELATION, with its TYPEs, that a connection has been given last, by relation.
#[derive(Debug, Default)]
pub(super) struct Announced {
    relations: OidMap<Given>,
}

#[derive(Debug)]
struct Given {
    schema: Arc<RelationSchema>,
    types: Vec<Arc<TypeName>>,
    /// The catalog's types when that was last compared.
    all_types: Arc<BTreeMap<Oid, Arc<TypeName>>>,
}

impl Announced {
    /// Whether the connection knows the relation as the catalog describes it. Compares content, and remembers that
    /// it is the same, so that asking again under the same version costs two comparisons of pointers.
    pub(super) fn is_current(&mut self, oid: Oid, catalog: &Catalog) -> bool {
        let (Some(given), Some(schema)) = (self.relations.get_mut(&oid), catalog.relation(oid))
        else {
            return false;
        };
        if Arc::ptr_eq(&given.schema, schema) && Arc::ptr_eq(&given.all_types, catalog.types()) {
            return true;
        }
        let same = given.schema == *schema && given.types == types_of(schema, catalog);
        if same {
            given.schema = Arc::clone(schema);
            given.all_types = Arc::clone(catalog.types());
        }
        same
    }

    /// Notes that the connection is given the relation as the catalog describes it; what it is to be sent:
    /// the types of its columns, in order and each time, as pgoutput does, then the relation.
    pub(super) fn announce(
        &mut self,
        oid: Oid,
        catalog: &Catalog,
    ) -> Option<(Vec<Arc<TypeName>>, Arc<RelationSchema>)> {
        let schema = catalog.relation(oid)?;
        let types = types_of(schema, catalog);
        let given = Given {
            schema: Arc::clone(schema),
            types: types.clone(),
            all_types: Arc::clone(catalog.types()),
        };
        self.relations.insert(oid, given);
        Some((types, Arc::clone(schema)))
    }
}

fn types_of(schema: &RelationSchema, catalog: &Catalog) -> Vec<Arc<TypeName>> {
    let columns = schema.columns.iter();
    columns
        .filter_map(|column| catalog.type_name(column.type_oid).cloned())
        .collect()
}
