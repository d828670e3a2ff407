//! The publications and what they depend on, and how that is stored.

use std::sync::Arc;

use pg_proto::Oid;
use pg_proto::read::{ReadError, Reader};

use super::codec;
use super::described::{COLLATION_MIN, RELATION_MIN};
use super::merge::merged;
use super::publication::PUBLICATION_MIN;
use super::{Collation, DatabaseFacts, DescribedRelation, Publication};

/// The publications, and what they depend on. Lists are in the order of OIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationState {
    /// All publications.
    pub publications: Arc<[Publication]>,
    /// Relations of which more must be known than their RELATION messages say.
    pub relations: Vec<DescribedRelation>,
    /// Collations that row filters can depend on.
    pub collations: Vec<Collation>,
    /// The database.
    pub database: DatabaseFacts,
}

impl PublicationState {
    /// What is known of a relation beside its RELATION message.
    #[must_use]
    pub fn relation(&self, oid: Oid) -> Option<&DescribedRelation> {
        let found = self.relations.binary_search_by_key(&oid, |one| one.oid);
        found.ok().and_then(|index| self.relations.get(index))
    }

    /// A collation that a row filter can depend on.
    #[must_use]
    pub fn collation(&self, oid: Oid) -> Option<&Collation> {
        self.collations.iter().find(|one| one.oid == oid)
    }

    /// These on top of `others`, where a transaction that has stated them had seen `seen` of others: what it changed itself,
    /// and what others did that it had not seen.
    #[must_use]
    pub fn on_top_of(&self, seen: &Self, others: &Self) -> Self {
        merged(seen, self, others)
    }

    fn has_publications_only(&self) -> bool {
        self.relations.is_empty()
            && self.collations.is_empty()
            && self.database == DatabaseFacts::default()
    }

    /// Puts the lists in the order of OIDs, so that the same state is the same value.
    pub fn sort(&mut self) {
        self.relations.sort_by_key(|one| one.oid);
        self.collations.sort_by_key(|one| one.oid);
    }

    /// Appends the state as it stands in a publications record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        codec::put_list(out, &self.publications, |out, one| one.encode(out));
        if self.has_publications_only() {
            return;
        }
        codec::put_list(out, &self.relations, |out, one| one.encode(out));
        codec::put_list(out, &self.collations, |out, one| one.encode(out));
        self.database.encode(out);
    }

    /// The inverse of [`Self::encode`]. The order of relations is not trusted.
    pub fn decode(payload: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(payload);
        let publications = codec::take_list(
            &mut reader,
            "publication count",
            PUBLICATION_MIN,
            Publication::take,
        )?;
        let mut state = Self {
            publications: publications.into(),
            ..Self::default()
        };
        // A record of publications alone ends here.
        if !reader.rest().is_empty() {
            state.relations = codec::take_list(
                &mut reader,
                "described relation count",
                RELATION_MIN,
                DescribedRelation::take,
            )?;
            state.collations = codec::take_list(
                &mut reader,
                "collation count",
                COLLATION_MIN,
                Collation::take,
            )?;
            state.database = DatabaseFacts::take(&mut reader)?;
            state.sort();
        }
        reader.finish("publications")?;
        Ok(state)
    }
}

impl From<Vec<Publication>> for PublicationState {
    fn from(publications: Vec<Publication>) -> Self {
        Self {
            publications: publications.into(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Attribute, Generated};

    fn full() -> PublicationState {
        let attribute = |number: i16, generated| Attribute {
            number,
            name: format!("c{number}"),
            type_oid: Oid(25),
            type_modifier: -1,
            collation: Oid(100),
            generated,
            is_key: number == 1,
        };
        PublicationState {
            publications: vec![Publication::default()].into(),
            relations: vec![
                DescribedRelation {
                    oid: Oid(16_384),
                    schema: "s".into(),
                    name: "root".into(),
                    partitioned: true,
                    replica_identity: b'd',
                    attribute_count: 4,
                    ancestors: Vec::new(),
                    attributes: Some(vec![
                        attribute(1, Generated::No),
                        attribute(3, Generated::Stored),
                        attribute(4, Generated::Virtual),
                    ]),
                },
                DescribedRelation {
                    oid: Oid(16_390),
                    replica_identity: b'f',
                    ancestors: vec![Oid(16_387), Oid(16_384)],
                    ..DescribedRelation::default()
                },
            ],
            collations: vec![Collation {
                oid: Oid(950),
                name: "C".into(),
                provider: b'c',
                deterministic: true,
                collate: Some("C".into()),
                ctype: Some("C".into()),
                locale: None,
            }],
            database: DatabaseFacts {
                encoding: "UTF8".into(),
                provider: b'i',
                collate: "C".into(),
                ctype: "C".into(),
                locale: Some("en-US".into()),
            },
        }
    }

    #[test]
    fn round_trips_and_refuses_every_truncation() {
        let state = full();
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        assert_eq!(PublicationState::decode(&bytes).unwrap(), state);
        let mut publications = Vec::new();
        codec::put_list(&mut publications, &state.publications, |out, one| {
            one.encode(out);
        });
        for end in 0..bytes.len() {
            let decoded = PublicationState::decode(&bytes[..end]);
            // Publications alone are whole.
            assert_eq!(decoded.is_ok(), end == publications.len(), "{end}");
        }
        bytes.push(0);
        assert!(PublicationState::decode(&bytes).is_err());
    }

    #[test]
    fn relations_are_found_by_oid_and_attributes_by_number() {
        let state = full();
        let root = state.relation(Oid(16_384)).unwrap();
        assert_eq!(root.attribute(3).unwrap().name, "c3");
        assert_eq!(root.attribute(2), None);
        assert_eq!(state.relation(Oid(1)), None);
        assert_eq!(state.collation(Oid(950)).unwrap().name, "C");
    }
}
