//! The set of relations of a block while it is filled.

use std::collections::HashMap;

use pg_proto::Oid;

use super::{NO_RELATION, RELATIONS_MAX};

/// Relations in order of their first use. Changes of one relation come in runs, so the last one is tried first.
#[derive(Debug, Default)]
pub(super) struct RelationSet {
    oids: Vec<Oid>,
    places: HashMap<Oid, usize>,
    last: Option<(Oid, u16)>,
}

impl RelationSet {
    pub(super) fn clear(&mut self) {
        self.oids.clear();
        self.places.clear();
        self.last = None;
    }

    pub(super) fn as_slice(&self) -> &[Oid] {
        &self.oids
    }

    /// The relation's index, which it gets now if it had none; `None` if the set is full.
    pub(super) fn index_of(&mut self, relation: Oid) -> Option<u16> {
        if let Some((oid, index)) = self.last
            && oid == relation
        {
            return Some(index);
        }
        let index = u16::try_from(self.place_of(relation)?)
            .ok()
            .filter(|&index| index != NO_RELATION)?;
        self.last = Some((relation, index));
        Some(index)
    }

    /// Adds relations that no entry refers to by index; false if the set is full.
    pub(super) fn add_all(&mut self, relations: impl IntoIterator<Item = Oid>) -> bool {
        relations
            .into_iter()
            .all(|relation| self.place_of(relation).is_some())
    }

    fn place_of(&mut self, relation: Oid) -> Option<usize> {
        if let Some(&place) = self.places.get(&relation) {
            return Some(place);
        }
        let place = self.oids.len();
        if place >= RELATIONS_MAX {
            return None;
        }
        self.oids.push(relation);
        self.places.insert(relation, place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_relations_by_first_use() {
        let mut set = RelationSet::default();
        assert_eq!(set.index_of(Oid(7)), Some(0));
        assert_eq!(set.index_of(Oid(9)), Some(1));
        assert_eq!(set.index_of(Oid(7)), Some(0));
        assert!(set.add_all([Oid(9), Oid(11)]));
        assert_eq!(set.as_slice(), [Oid(7), Oid(9), Oid(11)]);
        set.clear();
        assert_eq!(set.index_of(Oid(11)), Some(0));
    }

    #[test]
    fn an_index_never_means_no_relation() {
        let mut set = RelationSet::default();
        assert!(set.add_all((0..u32::from(NO_RELATION)).map(Oid)));
        assert_eq!(set.index_of(Oid(u32::from(NO_RELATION) - 1)), Some(0xFFFE));
        assert_eq!(set.index_of(Oid(1 << 20)), None);
    }
}
