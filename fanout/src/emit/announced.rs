//! Which descriptions of relations a connection has been given.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pg_proto::Oid;
use storage_format::catalog::{Catalog, RelationSchema, TypeName};
use storage_format::record::RecordKind;

use crate::selection::{OidMap, Shape};

/// The RELATIONs, with their TYPEs, that a connection has been given last for a relation of the log.
#[derive(Debug, Default)]
pub(super) struct Announced {
    relations: OidMap<Given>,
    /// Those that were described since [`Descriptions::clear_fresh`].
    fresh: Vec<Oid>,
}

/// What is known where the stream is: each streamed transaction describes what it needs for itself.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    connection: Announced,
    stream: Option<Announced>,
}

impl Descriptions {
    /// What the place at hand knows.
    pub(super) const fn now(&mut self) -> &mut Announced {
        match &mut self.stream {
            Some(stream) => stream,
            None => &mut self.connection,
        }
    }

    /// A streamed transaction begins.
    pub(super) fn enter_stream(&mut self) {
        self.stream = Some(Announced::default());
    }

    /// It ends, and what it described counts outside, too. False if none had begun.
    pub(super) fn leave_stream(&mut self) -> bool {
        let stream = self.stream.take();
        let left = stream.is_some();
        let stream = stream.unwrap_or_default();
        self.connection.relations.extend(stream.relations);
        self.connection.fresh.extend(stream.fresh);
        left
    }

    /// What a transaction has described that was sent before its end, in a place of its own: it ends.
    pub(super) fn absorb(&mut self, early: Self) {
        let stream = early.stream.unwrap_or_default();
        self.connection.relations.extend(stream.relations);
    }

    /// From here on it counts what is described.
    pub(super) fn clear_fresh(&mut self) {
        self.now().fresh.clear();
    }

    /// How the relations were described that were described since [`Self::clear_fresh`] or this.
    pub(super) fn take_fresh(&mut self) -> Vec<(Oid, Given)> {
        let now = self.now();
        let mut fresh = std::mem::take(&mut now.fresh);
        fresh.sort_unstable();
        fresh.dedup();
        let given = fresh
            .into_iter()
            .filter_map(|oid| Some((oid, now.relations.get(&oid)?.clone())));
        given.collect()
    }

    /// What was described in another way elsewhere is to be described here anew.
    pub(super) fn forget_others(&mut self, elsewhere: &[(Oid, Given)]) {
        for (oid, given) in elsewhere {
            let places = [Some(&mut self.connection), self.stream.as_mut()];
            for place in places.into_iter().flatten() {
                if place
                    .relations
                    .get(oid)
                    .is_some_and(|here| !here.is_same(given))
                {
                    place.relations.remove(oid);
                }
            }
        }
    }

    /// The relation is described anew before its next change, whether or not it is another description.
    pub(super) fn forget(&mut self, oid: Oid) {
        self.connection.relations.remove(&oid);
        if let Some(stream) = &mut self.stream {
            stream.relations.remove(&oid);
        }
    }
}

/// How a relation was described.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// Unless it was described in another way.
    schema: Option<Arc<RelationSchema>>,
    shape: Option<Arc<Shape>>,
    types: Vec<Arc<TypeName>>,
    /// The catalog's types when that was last compared.
    all_types: Arc<BTreeMap<Oid, Arc<TypeName>>>,
}

impl Announced {
    /// Whether the connection knows the relation as the catalog describes it, or the shape of its rows. Compares
    /// content, and remembers that it is the same, so that asking again under the same version costs two comparisons of
    /// pointers.
    pub(super) fn is_current(
        &mut self,
        oid: Oid,
        catalog: &Catalog,
        shape: Option<&Arc<Shape>>,
    ) -> bool {
        let Some(given) = self.relations.get_mut(&oid) else {
            return false;
        };
        match (described(given.shape.as_ref()), described(shape)) {
            (None, None) => given.is_current(oid, catalog),
            (Some(known), Some(now)) => {
                let same_types = Arc::ptr_eq(&given.all_types, catalog.types());
                (Arc::ptr_eq(known, now) || known.descriptions == now.descriptions)
                    && (same_types || given.types == types_of_shape(now, catalog))
            }
            _ => false,
        }
    }

    /// Notes that the connection is given the relation as the catalog, or the shape of its rows, describes it; what it is
    /// to be sent: the types of the columns, in order and each time, as pgoutput does, then the relation.
    pub(super) fn announce(
        &mut self,
        oid: Oid,
        catalog: &Catalog,
        shape: Option<&Arc<Shape>>,
    ) -> Option<Vec<(RecordKind, Bytes)>> {
        let mut messages = Vec::new();
        let mut given = Given {
            schema: None,
            shape: shape.cloned(),
            types: Vec::new(),
            all_types: Arc::clone(catalog.types()),
        };
        if let Some(shape) = described(shape) {
            for description in &shape.descriptions {
                let types = types_of(description.types.iter().copied(), catalog);
                messages.extend(types.map(|one| (RecordKind::Type, one.message.clone())));
                messages.push((RecordKind::Relation, description.message.clone()));
            }
            given.types = types_of_shape(shape, catalog);
        } else {
            let schema = catalog.relation(oid)?;
            given.types = types_of_schema(schema, catalog);
            let types = given.types.iter();
            messages.extend(types.map(|one| (RecordKind::Type, one.message.clone())));
            messages.push((RecordKind::Relation, schema.message.clone()));
            given.schema = Some(Arc::clone(schema));
        }
        self.relations.insert(oid, given);
        self.fresh.push(oid);
        Some(messages)
    }
}

impl Given {
    fn is_same(&self, other: &Self) -> bool {
        let shapes = match (
            described(self.shape.as_ref()),
            described(other.shape.as_ref()),
        ) {
            (None, None) => self.schema == other.schema,
            (Some(one), Some(two)) => one.descriptions == two.descriptions,
            _ => false,
        };
        shapes && self.types == other.types
    }

    fn is_current(&mut self, oid: Oid, catalog: &Catalog) -> bool {
        let (Some(known), Some(schema)) = (&self.schema, catalog.relation(oid)) else {
            return false;
        };
        if Arc::ptr_eq(known, schema) && Arc::ptr_eq(&self.all_types, catalog.types()) {
            return true;
        }
        let same = known == schema && self.types == types_of_schema(schema, catalog);
        if same {
            self.schema = Some(Arc::clone(schema));
            self.all_types = Arc::clone(catalog.types());
        }
        same
    }
}

/// The shape, if it has descriptions of its own.
fn described(shape: Option<&Arc<Shape>>) -> Option<&Arc<Shape>> {
    shape.filter(|shape| !shape.descriptions.is_empty())
}

fn types_of_shape(shape: &Shape, catalog: &Catalog) -> Vec<Arc<TypeName>> {
    let descriptions = shape.descriptions.iter();
    let oids = descriptions.flat_map(|one| one.types.iter().copied());
    types_of(oids, catalog).cloned().collect()
}

fn types_of_schema(schema: &RelationSchema, catalog: &Catalog) -> Vec<Arc<TypeName>> {
    let columns = schema.columns.iter();
    types_of(columns.map(|column| column.type_oid), catalog)
        .cloned()
        .collect()
}

fn types_of(
    oids: impl Iterator<Item = Oid>,
    catalog: &Catalog,
) -> impl Iterator<Item = &Arc<TypeName>> {
    oids.filter_map(|oid| catalog.type_name(oid))
}
