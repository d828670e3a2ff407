//! One version of the catalog, and the step to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pg_proto::read::ReadError;
use pg_proto::{Lsn, Oid};

use super::relation::peek_oid;
use super::{
    Definitions, Publication, PublicationState, PublicationsRecord, RelationSchema,
    ServerParameters, TypeName,
};
use crate::record::RecordKind;

/// A record that should change the catalog can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {kind:?} record can't be understood")]
pub struct CatalogError {
    /// The record's kind.
    pub kind: RecordKind,
    /// What is wrong with its payload.
    pub source: ReadError,
}

/// Relations, types, publications and server parameters as of a position. Immutable where it is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    relations: Arc<BTreeMap<Oid, Arc<RelationSchema>>>,
    types: Arc<BTreeMap<Oid, Arc<TypeName>>>,
    definitions: Arc<Definitions>,
    parameters: Arc<ServerParameters>,
}

impl Catalog {
    /// A relation.
    #[must_use]
    pub fn relation(&self, oid: Oid) -> Option<&Arc<RelationSchema>> {
        self.relations.get(&oid)
    }

    /// All relations, by identifier. `Arc::ptr_eq` of two versions' maps says whether any relation changed.
    #[must_use]
    pub const fn relations(&self) -> &Arc<BTreeMap<Oid, Arc<RelationSchema>>> {
        &self.relations
    }

    /// A type that is not built in.
    #[must_use]
    pub fn type_name(&self, oid: Oid) -> Option<&Arc<TypeName>> {
        self.types.get(&oid)
    }

    /// All types that are not built in and that a relation needed, by identifier.
    #[must_use]
    pub const fn types(&self) -> &Arc<BTreeMap<Oid, Arc<TypeName>>> {
        &self.types
    }

    /// The source's publications.
    #[must_use]
    pub fn publications(&self) -> &Arc<[Publication]> {
        &self.publication_state().publications
    }

    /// The source's publications and what they depend on. `Arc::ptr_eq` of two versions' says whether any of it changed.
    #[must_use]
    pub fn publication_state(&self) -> &Arc<PublicationState> {
        &self.definitions.current().state
    }

    /// The publications in force, and those that were before.
    #[must_use]
    pub const fn definitions(&self) -> &Arc<Definitions> {
        &self.definitions
    }

    /// This version with `state` as the publications in force.
    #[must_use]
    pub fn judging_by(&self, state: &Arc<PublicationState>) -> Self {
        Self {
            definitions: Arc::new(Definitions::only(state)),
            ..self.clone()
        }
    }

    /// A publication by name.
    #[must_use]
    pub fn publication(&self, name: &str) -> Option<&Publication> {
        let mut publications = self.publications().iter();
        publications.find(|publication| publication.name == name)
    }

    /// The source's parameters.
    #[must_use]
    pub const fn parameters(&self) -> &Arc<ServerParameters> {
        &self.parameters
    }

    /// Applies one record to the version that `catalog` points to; true if that made a new version. A record of
    /// a kind that does not concern the catalog changes nothing. `commit_lsn` is that of the record's transaction. While
    /// nobody else holds the version it is changed in place, so that a run of records costs one copy at most.
    pub fn apply(
        catalog: &mut Arc<Self>,
        kind: RecordKind,
        payload: &[u8],
        commit_lsn: Lsn,
    ) -> Result<bool, CatalogError> {
        let changed = match kind {
            RecordKind::Relation => catalog.apply_relation(payload),
            RecordKind::Type => catalog.apply_type(payload),
            RecordKind::Publications => catalog.apply_publications(payload, commit_lsn),
            RecordKind::ServerParameters => catalog.apply_parameters(payload),
            _ => return Ok(false),
        };
        let Some(part) = changed.map_err(|source| CatalogError { kind, source })? else {
            return Ok(false);
        };
        Arc::make_mut(catalog).set(part);
        Ok(true)
    }

    /// The records that make this version out of an empty one, as a snapshot stores them: types before the
    /// relations that use them.
    pub fn records(&self) -> impl Iterator<Item = (RecordKind, Bytes)> {
        let types = self
            .types
            .values()
            .map(|named| (RecordKind::Type, named.message.clone()));
        let relations = self
            .relations
            .values()
            .map(|relation| (RecordKind::Relation, relation.message.clone()));
        let publications = self.definitions.records().map(|record| {
            let mut payload = Vec::new();
            record.encode(&mut payload);
            (RecordKind::Publications, payload.into())
        });
        let parameters = (!self.parameters.is_empty()).then(|| {
            let mut payload = Vec::new();
            self.parameters.encode(&mut payload);
            (RecordKind::ServerParameters, payload.into())
        });
        parameters
            .into_iter()
            .chain(publications)
            .chain(types)
            .chain(relations)
    }

    fn apply_relation(&self, payload: &[u8]) -> Result<Option<Part>, ReadError> {
        let known = self.relations.get(&peek_oid(payload)?);
        if known.is_some_and(|known| known.message == payload) {
            return Ok(None);
        }
        let schema = RelationSchema::from_message(payload)?;
        Ok(Some(Part::Relation(Arc::new(schema))))
    }

    fn apply_type(&self, payload: &[u8]) -> Result<Option<Part>, ReadError> {
        let known = self.types.get(&peek_oid(payload)?);
        if known.is_some_and(|known| known.message == payload) {
            return Ok(None);
        }
        let named = TypeName::from_message(payload)?;
        Ok(Some(Part::Type(Arc::new(named))))
    }

    fn apply_publications(
        &self,
        payload: &[u8],
        commit_lsn: Lsn,
    ) -> Result<Option<Part>, ReadError> {
        let record = PublicationsRecord::decode(payload)?;
        let definitions = self.definitions.with(record, commit_lsn);
        Ok(definitions.map(|definitions| Part::Publications(Arc::new(definitions))))
    }

    fn apply_parameters(&self, payload: &[u8]) -> Result<Option<Part>, ReadError> {
        let parameters = ServerParameters::decode(payload)?;
        let same = parameters == *self.parameters;
        Ok((!same).then(|| Part::Parameters(Arc::new(parameters))))
    }

    fn set(&mut self, part: Part) {
        match part {
            Part::Relation(schema) => {
                Arc::make_mut(&mut self.relations).insert(schema.oid, schema);
            }
            Part::Type(named) => {
                Arc::make_mut(&mut self.types).insert(named.oid, named);
            }
            Part::Publications(definitions) => self.definitions = definitions,
            Part::Parameters(parameters) => self.parameters = parameters,
        }
    }
}

/// What one record changes.
enum Part {
    Relation(Arc<RelationSchema>),
    Type(Arc<TypeName>),
    Publications(Arc<Definitions>),
    Parameters(Arc<ServerParameters>),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::{PublicationActions, encode_publications};

    fn relation(oid: u32, name: &str, columns: &[&str]) -> Vec<u8> {
        let mut out = vec![b'R'];
        out.extend_from_slice(&oid.to_be_bytes());
        out.extend_from_slice(b"public\0");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\0d");
        out.extend_from_slice(&u16::try_from(columns.len()).unwrap().to_be_bytes());
        for column in columns {
            out.push(1);
            out.extend_from_slice(column.as_bytes());
            out.push(0);
            out.extend_from_slice(&23_u32.to_be_bytes());
            out.extend_from_slice(&(-1_i32).to_be_bytes());
        }
        out
    }

    fn named_type(oid: u32, name: &str) -> Vec<u8> {
        let mut out = vec![b'Y'];
        out.extend_from_slice(&oid.to_be_bytes());
        out.extend_from_slice(b"\0");
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out
    }

    fn apply(catalog: &mut Arc<Catalog>, kind: RecordKind, payload: &[u8]) -> bool {
        Catalog::apply(catalog, kind, payload, Lsn(0)).unwrap()
    }

    #[test]
    fn the_same_content_is_no_new_version() {
        let mut catalog = Arc::new(Catalog::default());
        assert!(apply(
            &mut catalog,
            RecordKind::Relation,
            &relation(1, "a", &["id"])
        ));
        assert!(apply(
            &mut catalog,
            RecordKind::Type,
            &named_type(9, "mood")
        ));
        let before = Arc::clone(&catalog);
        assert!(!apply(
            &mut catalog,
            RecordKind::Relation,
            &relation(1, "a", &["id"])
        ));
        assert!(!apply(
            &mut catalog,
            RecordKind::Type,
            &named_type(9, "mood")
        ));
        assert!(!apply(&mut catalog, RecordKind::Insert, b"whatever"));
        assert!(Arc::ptr_eq(&before, &catalog));

        assert!(apply(
            &mut catalog,
            RecordKind::Relation,
            &relation(1, "a", &["id", "v"])
        ));
        assert_eq!(before.relation(Oid(1)).unwrap().columns.len(), 1);
        assert_eq!(catalog.relation(Oid(1)).unwrap().columns[1].name, "v");
        assert!(Arc::ptr_eq(before.types(), catalog.types()));
        assert_eq!(catalog.type_name(Oid(9)).unwrap().namespace, "pg_catalog");
    }

    #[test]
    fn a_record_that_cannot_be_read_names_its_kind() {
        let mut catalog = Arc::new(Catalog::default());
        let cut = &relation(1, "a", &["id"])[..12];
        let error = Catalog::apply(&mut catalog, RecordKind::Relation, cut, Lsn(0)).unwrap_err();
        assert_eq!(error.kind, RecordKind::Relation);
        let wrong = Catalog::apply(
            &mut catalog,
            RecordKind::Type,
            &relation(1, "a", &[]),
            Lsn(0),
        );
        assert!(wrong.is_err());
        assert_eq!(*catalog, Catalog::default());
    }

    proptest! {
        #[test]
        fn its_records_give_a_version_back(
            relations in prop::collection::btree_map(any::<u32>(), "[a-z]{1,6}", 0..8),
            types in prop::collection::btree_map(any::<u32>(), "[a-z]{1,6}", 0..4),
            publications in prop::collection::vec("[a-z]{1,6}", 0..3),
        ) {
            let mut catalog = Arc::new(Catalog::default());
            for (oid, name) in &types {
                apply(&mut catalog, RecordKind::Type, &named_type(*oid, name));
            }
            for (oid, name) in &relations {
                apply(&mut catalog, RecordKind::Relation, &relation(*oid, name, &["id", name]));
            }
            let list: Vec<_> = publications
                .into_iter()
                .map(|name| Publication { name, actions: PublicationActions::ALL, ..Default::default() })
                .collect();
            let mut payload = Vec::new();
            encode_publications(&list, &mut payload);
            apply(&mut catalog, RecordKind::Publications, &payload);

            let mut copy = Arc::new(Catalog::default());
            for (kind, payload) in catalog.records() {
                prop_assert!(apply(&mut copy, kind, &payload));
            }
            prop_assert_eq!(copy, catalog);
        }
    }
}
