//! Many segments, many cursors.

use std::sync::Arc;

use pg_proto::Lsn;

use super::support::{Event, ORIGIN, Source, drain, open_log};
use crate::log::SeekError;
use crate::segment::{NAMES_FILE, SegmentExtension, SegmentName};

#[test]
fn segments_that_are_not_needed_are_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[Event::Transaction(vec![(1, 100)])]);
    // Names of 10,000 older segments, as far as this log is concerned, which could not be opened.
    for number in 0..10_000_u64 {
        let name = SegmentName {
            sequence: 0,
            first_lsn: Lsn(ORIGIN.0 - 10_000 + number),
        };
        std::fs::write(name.path(directory.path(), SegmentExtension::Sealed), b"").unwrap();
    }
    // Nor does the file of names have them, as it were if the writer had begun them.
    std::fs::remove_file(directory.path().join(NAMES_FILE)).unwrap();
    let log = open_log(directory.path());
    assert_eq!(log.kept().unwrap().oldest, Lsn(ORIGIN.0 - 10_000));
    assert_eq!(
        drain(log.cursor_at(ORIGIN).unwrap()).unwrap(),
        source.expected
    );
    let error = log.cursor_at(Lsn(ORIGIN.0 - 1)).unwrap_err();
    assert!(matches!(error, SeekError::Read(_)), "{error}");
}

#[test]
fn readers_can_move_between_threads() {
    fn movable<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    movable::<crate::log::Cursor>();
    movable::<crate::log::TransactionIter>();
    shared::<crate::log::Log>();
    shared::<crate::block::Block>();
}

#[test]
fn thousands_of_cursors_share_blocks_and_catalogs() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run_apart(&[
        Event::Alter(1, 3),
        Event::Transaction(vec![(1, 3000)]),
        Event::Alter(2, 3),
        Event::Transaction(vec![(2, 3000)]),
    ]);
    let log = open_log(directory.path());
    let mut cursors: Vec<_> = (0..5000).map(|_| log.cursor_at(ORIGIN).unwrap()).collect();
    let mut bytes = 0;
    for turn in 0..4 {
        let mut first = None;
        for cursor in &mut cursors {
            let block = cursor.next().unwrap().unwrap();
            let (known, catalog) =
                first.get_or_insert_with(|| (Arc::clone(&block), Arc::clone(cursor.catalog())));
            assert!(Arc::ptr_eq(known, &block));
            assert!(Arc::ptr_eq(catalog, cursor.catalog()));
        }
        bytes += first.map_or(0, |(block, _)| block.weight());
        assert_eq!(log.cached_bytes(), bytes, "turn {turn}");
    }
}
