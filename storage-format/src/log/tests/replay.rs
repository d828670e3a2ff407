//! From any position, a reader gets exactly the rest.

use std::sync::Arc;

use pg_proto::{Lsn, PgTimestamp};
use proptest::prelude::*;

use super::support::{Event, ORIGIN, Source, drain, open_log};
use crate::log::{Log, ReadOptions, SeekError, Step};

pub(super) fn event() -> impl Strategy<Value = Event> {
    let row = (1..4_u32, 0..400_usize);
    let large = (1..4_u32, 2_000..6_000_usize);
    prop_oneof![
        6 => prop::collection::vec(row, 0..5).prop_map(Event::Transaction),
        1 => prop::collection::vec(large, 3..12).prop_map(Event::Transaction),
        1 => (1..4_u32, 1..4_u8).prop_map(|(relation, columns)| Event::Alter(relation, columns)),
        1 => Just(Event::Message),
        1 => Just(Event::Idle),
    ]
}

pub(super) fn assert_all_suffixes(log: &Arc<Log>, source: &Source) {
    for &boundary in &source.boundaries {
        for lsn in [boundary, Lsn(boundary.0.saturating_sub(1)).max(ORIGIN)] {
            let cursor = log.cursor_at(lsn).unwrap();
            assert_eq!(cursor.start(), lsn);
            assert!(drain(cursor).unwrap() == source.suffix(lsn), "from {lsn}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn replay_from_every_boundary_is_the_suffix(events in prop::collection::vec(event(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let mut source = Source::new(directory.path());
        source.run(&events);
        assert_all_suffixes(&open_log(directory.path()), &source);
    }

    #[test]
    fn the_first_transaction_of_a_time_is_found(
        events in prop::collection::vec(event(), 1..60),
        time in -2_000..70_000_i64,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut source = Source::new(directory.path());
        source.run(&events);
        let log = open_log(directory.path());
        let first = source.commits.iter().find(|(_, committed)| committed.0 >= time);
        let expected = first.map_or(log.head().lsn, |(lsn, _)| *lsn);
        let cursor = log.cursor_at_time(PgTimestamp(time)).unwrap();
        prop_assert_eq!(cursor.start(), expected);
        prop_assert_eq!(drain(cursor).unwrap(), source.suffix(expected));
    }
}

#[test]
fn positions_outside_of_what_is_kept_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[Event::Transaction(vec![(1, 10)])]);
    let log = open_log(directory.path());
    let head = log.head().lsn;
    let kept = log.kept().unwrap();
    assert_eq!((kept.oldest, kept.newest), (ORIGIN, head));
    let Err(SeekError::NotKept {
        asked,
        oldest,
        newest,
    }) = log.cursor_at(Lsn(0xFFF))
    else {
        panic!("below the oldest");
    };
    assert_eq!((asked, oldest, newest), (Lsn(0xFFF), ORIGIN, head));
    let Err(SeekError::Ahead { asked, newest }) = log.cursor_at(Lsn(head.0 + 1)) else {
        panic!("ahead of the head");
    };
    assert_eq!((asked, newest), (Lsn(head.0 + 1), head));
    let mut cursor = log.cursor_at(head).unwrap();
    assert!(cursor.next().unwrap().is_none());
    assert_eq!(cursor.position(), head);
}

#[test]
fn what_is_not_wanted_is_skipped_and_moves_the_position() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run_apart(&[
        Event::Transaction(vec![(1, 10)]),
        Event::Transaction(vec![(2, 10)]),
        Event::Idle,
    ]);
    let log = open_log(directory.path());
    let mut cursor = log.cursor_at(ORIGIN).unwrap();
    let wanted = |_: &_, relations: &[pg_proto::Oid]| relations.contains(&pg_proto::Oid(2));
    let mut blocks = 0;
    while let Some(block) = cursor.next_with(&wanted).unwrap() {
        assert_eq!(block.relations(), [pg_proto::Oid(2)]);
        blocks += 1;
    }
    assert_eq!(blocks, 1);
    assert_eq!(cursor.position(), log.head().lsn);

    let mut cursor = log.cursor_at(ORIGIN).unwrap();
    assert!(matches!(
        cursor.step_with(&|_, _| false, 1).unwrap(),
        Step::Skipped
    ));
    assert!(matches!(
        cursor.step_with(&|_, _| false, 99).unwrap(),
        Step::Head
    ));
    assert_eq!(cursor.position(), log.head().lsn);
}

#[test]
fn only_what_is_durable_is_seen_unless_asked_for() {
    use crate::log::Serve;
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[Event::Transaction(vec![(1, 10)])]);
    let durable = open_log(directory.path());
    let written = Log::open(
        directory.path(),
        ReadOptions {
            serve: Serve::Written,
            ..ReadOptions::default()
        },
    )
    .unwrap();
    let before = durable.head().lsn;
    source.event(&Event::Transaction(vec![(1, 11)]));
    source.flush();
    assert_eq!(durable.head().lsn, before);
    assert_eq!(written.head().lsn, source.writer.written_lsn());
    assert_eq!(
        drain(written.cursor_at(ORIGIN).unwrap()).unwrap(),
        source.expected
    );
    let seen = drain(durable.cursor_at(ORIGIN).unwrap()).unwrap();
    assert!(seen.len() < source.expected.len());
    source.writer.sync().unwrap();
    assert_eq!(
        drain(durable.cursor_at(ORIGIN).unwrap()).unwrap(),
        source.expected
    );
}
