//! What two transactions that did not see each other make of the publications.
//!
//! Each states all publications as it sees them. What one of them changed is the difference between what it states and
//! what it had seen of others; that is done to the state that the others have made meanwhile. The source lets two open
//! transactions change the same publication (`ALTER PUBLICATION ... ADD TABLE` of two tables), but not the same row of a
//! catalog, so what is merged here is disjoint.

use std::collections::BTreeMap;

use pg_proto::Oid;

use super::{DescribedRelation, Publication, PublicationState, PublicationTable};

/// `others` with what leads from `seen` to `own`.
pub(super) fn merged(
    seen: &PublicationState,
    own: &PublicationState,
    others: &PublicationState,
) -> PublicationState {
    let publications = merged_list(
        [&seen.publications, &own.publications, &others.publications],
        |one: &Publication| (one.oid == Oid(0), one.oid, one.name.clone()),
        merged_publication,
    );
    let named = |oid| {
        let mut tables = publications.iter().flat_map(|one| &one.tables);
        tables.any(|table| table.relation == oid)
    };
    let mut relations = merged_list(
        [&seen.relations, &own.relations, &others.relations],
        |one: &DescribedRelation| one.oid,
        |seen, own, others| picked(seen, own, others).clone(),
    );
    // Described for one side's publications, and no more for the other's.
    for one in others.relations.iter().chain(&own.relations) {
        if named(one.oid) && !relations.iter().any(|known| known.oid == one.oid) {
            relations.push(one.clone());
        }
    }
    let collations = merged_list(
        [&seen.collations, &own.collations, &others.collations],
        |one| one.oid,
        |seen, own, others| picked(seen, own, others).clone(),
    );
    let mut state = PublicationState {
        publications: publications.into(),
        relations,
        collations,
        database: picked(&seen.database, &own.database, &others.database).clone(),
    };
    state.sort();
    state
}

fn merged_publication(seen: &Publication, own: &Publication, others: &Publication) -> Publication {
    let tables = merged_list(
        [&seen.tables, &own.tables, &others.tables],
        |table: &PublicationTable| table.relation,
        |seen, own, others| PublicationTable {
            relation: own.relation,
            schema: picked(&seen.schema, &own.schema, &others.schema).clone(),
            name: picked(&seen.name, &own.name, &others.name).clone(),
            columns: picked(&seen.columns, &own.columns, &others.columns).clone(),
            row_filter: picked(&seen.row_filter, &own.row_filter, &others.row_filter).clone(),
            partitioned: *picked(&seen.partitioned, &own.partitioned, &others.partitioned),
            implied: *picked(&seen.implied, &own.implied, &others.implied),
        },
    );
    let schemas = merged_list(
        [&seen.schemas, &own.schemas, &others.schemas],
        |name: &String| name.clone(),
        |_, own, _| own.clone(),
    );
    let either_has_root = own.has_partitioned_root || others.has_partitioned_root;
    let all_tables = *picked(&seen.all_tables, &own.all_tables, &others.all_tables);
    let whole = all_tables || !schemas.is_empty();
    Publication {
        oid: own.oid,
        name: picked(&seen.name, &own.name, &others.name).clone(),
        all_tables,
        actions: *picked(&seen.actions, &own.actions, &others.actions),
        via_root: *picked(&seen.via_root, &own.via_root, &others.via_root),
        has_partitioned_root: tables.iter().any(|one| one.partitioned)
            || (whole && either_has_root),
        generated_columns: *picked(
            &seen.generated_columns,
            &own.generated_columns,
            &others.generated_columns,
        ),
        schemas,
        tables,
    }
}

/// What the transaction itself changed, else what others did.
fn picked<'a, T: PartialEq>(seen: &T, own: &'a T, others: &'a T) -> &'a T {
    if own == seen { others } else { own }
}

/// Merges lists, in the order of `key`.
fn merged_list<T: Clone + PartialEq, K: Ord>(
    [seen, own, others]: [&[T]; 3],
    key: impl Fn(&T) -> K,
    both: impl Fn(&T, &T, &T) -> T,
) -> Vec<T> {
    let by_key = |list: &'_ [T]| -> BTreeMap<K, T> {
        list.iter().map(|one| (key(one), one.clone())).collect()
    };
    let (seen, mut own) = (by_key(seen), by_key(own));
    let mut all = BTreeMap::new();
    for (name, other) in by_key(others) {
        let merged = match (seen.get(&name), own.remove(&name)) {
            (None, None) => other,
            (None, Some(added)) => added,
            (Some(_), None) => continue,
            (Some(before), Some(now)) => both(before, &now, &other),
        };
        all.insert(name, merged);
    }
    // What others have dropped stays dropped.
    all.extend(own.into_iter().filter(|(name, _)| !seen.contains_key(name)));
    all.into_values().collect()
}
