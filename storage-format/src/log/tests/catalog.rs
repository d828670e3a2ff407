//! The catalog that a cursor says is in force.

use std::sync::Arc;

use pg_proto::Oid;

use super::support::{Event, ORIGIN, Source, open_log};
use crate::log::TransactionIter;

fn columns(catalog: &crate::catalog::Catalog, relation: u32) -> usize {
    catalog
        .relation(Oid(relation))
        .map_or(0, |schema| schema.columns.len())
}

#[test]
fn every_position_has_its_own_version() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    let mut events = Vec::new();
    for number in 0..200_u8 {
        events.push(Event::Alter(1, number % 9 + 1));
        events.push(Event::Transaction(vec![(1, 700)]));
    }
    source.run_apart(&events);
    let log = open_log(directory.path());
    assert!(log.head().sequence > 2);
    for (number, pair) in source.boundaries.windows(3).step_by(2).enumerate() {
        let before = log.cursor_at(pair[0]).unwrap();
        let expected = if number == 0 { 0 } else { (number - 1) % 9 + 1 };
        assert_eq!(columns(before.catalog(), 1), expected, "before {number}");
        let behind = log.cursor_at(pair[1]).unwrap();
        assert_eq!(
            columns(behind.catalog(), 1),
            number % 9 + 1,
            "behind {number}"
        );
    }
}

#[test]
fn it_changes_in_its_place_and_survives_skipping() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run_apart(&[
        Event::Alter(1, 1),
        Event::Transaction(vec![(1, 5)]),
        Event::Alter(1, 2),
        Event::Transaction(vec![(1, 5)]),
    ]);
    let log = open_log(directory.path());
    let mut cursor = log.cursor_at(ORIGIN).unwrap();
    let mut seen = Vec::new();
    while cursor.next().unwrap().is_some() {
        seen.push(columns(cursor.catalog(), 1));
    }
    assert_eq!(seen, [0, 1, 1, 2]);

    let mut skipping = log.cursor_at(ORIGIN).unwrap();
    assert!(skipping.next_with(&|_, _| false).unwrap().is_none());
    assert!(Arc::ptr_eq(skipping.catalog(), cursor.catalog()));

    let mut records = TransactionIter::new(log.cursor_at(ORIGIN).unwrap());
    let mut seen = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        if record.ordinal.is_some() {
            seen.push(columns(records.catalog(), 1));
        }
    }
    assert_eq!(seen, [1, 1, 2, 2]);
}

#[test]
fn cursors_share_versions_and_repeated_descriptions_make_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run_apart(&[
        Event::Alter(1, 3),
        Event::Alter(2, 3),
        Event::Alter(1, 3),
        Event::Transaction(vec![(1, 5)]),
    ]);
    let log = open_log(directory.path());
    let mut first = log.cursor_at(ORIGIN).unwrap();
    let mut versions = Vec::new();
    while first.next().unwrap().is_some() {
        versions.push(Arc::clone(first.catalog()));
    }
    assert!(
        Arc::ptr_eq(&versions[2], &versions[3]),
        "the same content again"
    );
    let mut second = log.cursor_at(ORIGIN).unwrap();
    while second.next().unwrap().is_some() {}
    assert!(Arc::ptr_eq(first.catalog(), second.catalog()));
    let third = log.cursor_at(log.head().lsn).unwrap();
    assert!(Arc::ptr_eq(first.catalog(), third.catalog()));
}
