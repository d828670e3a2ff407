//! Which definition judges a change, and what is forgotten.

use proptest::prelude::*;

use super::*;
use crate::catalog::{Publication, PublicationTable};
use pg_proto::Oid;

fn publication(oid: u32, tables: &[u32]) -> Publication {
    let table = |relation: &u32| PublicationTable {
        relation: Oid(*relation),
        name: format!("t{relation}"),
        ..PublicationTable::default()
    };
    Publication {
        oid: Oid(oid),
        name: format!("p{oid}"),
        tables: tables.iter().map(table).collect(),
        ..Publication::default()
    }
}

fn state(tables: &[u32]) -> PublicationState {
    vec![publication(1, tables)].into()
}

fn record(place: u64, horizon: u64, state: PublicationState) -> PublicationsRecord {
    PublicationsRecord {
        since: None,
        place: Lsn(place),
        horizon: Lsn(horizon),
        state,
    }
}

fn apply(definitions: &mut Definitions, record: PublicationsRecord, commit_lsn: u64) -> bool {
    let next = definitions.with(record, Lsn(commit_lsn));
    let changed = next.is_some();
    if let Some(next) = next {
        *definitions = next;
    }
    changed
}

/// The tables of the first publication for a change at `lsn`.
fn tables_at(definitions: &Definitions, lsn: u64) -> Vec<u32> {
    let first = definitions.at(Lsn(lsn)).publications.first();
    let tables = first.map_or(&[][..], |one| &one.tables);
    tables.iter().map(|one| one.relation.0).collect()
}

#[test]
fn a_change_is_judged_by_the_last_definition_that_committed_at_or_before_it() {
    let mut all = Definitions::default();
    assert!(apply(&mut all, record(90, 0, state(&[1])), 100));
    assert!(apply(&mut all, record(190, 0, state(&[2])), 200));
    assert!(!apply(&mut all, record(290, 0, state(&[2])), 300));
    assert!(apply(&mut all, record(390, 0, state(&[3])), 400));
    for (lsn, tables) in [
        // What is known first counts from ever.
        (1, [1]),
        (199, [1]),
        (200, [2]),
        (399, [2]),
        (400, [3]),
        (u64::MAX, [3]),
    ] {
        assert_eq!(tables_at(&all, lsn), tables, "{lsn}");
    }
}

#[test]
fn what_a_transaction_states_last_counts_from_its_commit() {
    let mut all = Definitions::default();
    apply(&mut all, record(90, 0, state(&[1])), 100);
    apply(&mut all, record(110, 0, state(&[1, 2])), 200);
    apply(&mut all, record(120, 0, state(&[1, 2, 3])), 200);
    assert_eq!(all.older().len(), 1);
    assert_eq!(tables_at(&all, 199), [1]);
    assert_eq!(tables_at(&all, 200), [1, 2, 3]);
}

#[test]
fn transactions_that_do_not_see_each_other_change_what_they_changed() {
    let mut all = Definitions::default();
    apply(&mut all, record(90, 0, state(&[1, 2])), 100);
    // Begins first: adds table 3, drops table 1; commits last.
    let late = record(150, 0, state(&[2, 3]));
    // Beside it: adds table 4, and a publication.
    let mut beside = vec![publication(1, &[1, 2, 4]), publication(2, &[9])];
    apply(&mut all, record(160, 0, beside.clone().into()), 170);
    assert_eq!(tables_at(&all, 180), [1, 2, 4]);
    apply(&mut all, late, 200);
    assert_eq!(tables_at(&all, 200), [2, 3, 4]);
    assert_eq!(all.current().state.publications.len(), 2);
    // A commit at the message's own end was not seen either.
    beside.truncate(1);
    beside[0].tables.remove(0);
    assert!(!apply(&mut all, record(170, 0, state(&[1, 2])), 300));
}

#[test]
fn nothing_is_forgotten_that_a_change_can_need() {
    let mut all = Definitions::default();
    for step in 1..=5 {
        apply(
            &mut all,
            record(0, 0, state(&[step])),
            u64::from(step) * 100,
        );
    }
    assert_eq!(all.older().len(), 4);
    assert_eq!(all.known_from(), Lsn(0));
    // Changes from 350 on can come: those of 300 to 400 may judge them.
    apply(&mut all, record(0, 350, state(&[6])), 600);
    assert_eq!(all.known_from(), Lsn(300));
    assert_eq!(tables_at(&all, 350), [3]);
    apply(&mut all, record(0, 700, state(&[7])), 700);
    assert!(all.older().is_empty());
    assert_eq!(all.known_from(), Lsn(700));
    assert_eq!(tables_at(&all, 650), [7]);
}

#[test]
fn more_than_can_be_kept_is_forgotten_and_that_shows() {
    let mut all = Definitions::default();
    let last = u32::try_from(OLDER_MAX).unwrap() + 10;
    for step in 0..=last {
        apply(&mut all, record(0, 0, state(&[step])), u64::from(step) * 8);
    }
    assert_eq!(all.older().len(), OLDER_MAX);
    assert_eq!(all.known_from(), Lsn(80));
    assert_eq!(tables_at(&all, 1), [10]);
}

fn snapshot(definitions: &Definitions) -> Definitions {
    let mut copy = Definitions::default();
    for record in definitions.records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        apply(&mut copy, PublicationsRecord::decode(&bytes).unwrap(), 0);
    }
    copy
}

proptest! {
    /// Against a list of all that was ever stated; and a snapshot at any place gives the same back.
    #[test]
    fn is_the_rule(
        steps in prop::collection::vec((1_u64..20, prop::collection::btree_set(1_u32..5, 0..4), 0_u64..60), 1..20),
    ) {
        let mut all = Definitions::default();
        let mut stated: Vec<(u64, Vec<u32>)> = Vec::new();
        let mut commit = 0;
        let mut horizon = 0;
        for (gap, tables, back) in steps {
            commit += gap;
            let tables: Vec<u32> = tables.into_iter().collect();
            // It never goes back.
            horizon = horizon.max(commit.saturating_sub(back));
            apply(&mut all, record(0, horizon, state(&tables)), commit);
            stated.push((commit, tables));
            for lsn in horizon..=commit + 1 {
                let found = stated.iter().rev().find(|(since, _)| *since <= lsn);
                let (_, expected) = found.unwrap_or(&stated[0]);
                prop_assert_eq!(&tables_at(&all, lsn), expected, "at {}", lsn);
            }
            prop_assert_eq!(snapshot(&all), all.clone());
        }
    }

    #[test]
    fn records_round_trip(since in prop::option::of(any::<u64>()), place: u64, horizon: u64) {
        let record = PublicationsRecord {
            since: since.map(Lsn),
            place: Lsn(place),
            horizon: Lsn(horizon),
            state: state(&[1]),
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        prop_assert_eq!(PublicationsRecord::decode(&bytes).unwrap(), record);
        for end in 0..bytes.len() {
            prop_assert!(PublicationsRecord::decode(&bytes[..end]).is_err());
        }
    }
}
