//! Segments that are sealed and deleted, also under readers.

use std::sync::atomic::{AtomicBool, Ordering};

use pg_proto::PgTimestamp;
use proptest::prelude::*;

use super::follow::{events, follow};
use super::replay::{assert_all_suffixes, event};
use super::support::{Event, ORIGIN, Source, drain, open_log};
use crate::fs::RealFs;
use crate::log::{ReadError, SeekError, TransactionIter};
use crate::seal::{SealOptions, seal_segment};
use crate::segment::{
    NAMES_FILE, SegmentExtension, SegmentName, SegmentState, delete_segment, list_segments,
};

/// Small blocks, so that a small segment has several.
const OPTIONS: SealOptions = SealOptions {
    zstd_level: 1,
    block_bytes: 8 << 10,
};

fn names(source: &Source, directory: &std::path::Path) -> Vec<SegmentName> {
    list_segments(&RealFs, directory)
        .unwrap()
        .into_iter()
        .filter(|info| info.name != source.writer.active_segment())
        .map(|info| info.name)
        .collect()
}

fn seal_all(source: &Source, directory: &std::path::Path) {
    for name in names(source, directory) {
        seal_segment(&RealFs, directory, name, &OPTIONS).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_sealed_log_reads_as_before(
        events in prop::collection::vec(event(), 1..60),
        time in -2_000..70_000_i64,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut source = Source::new(directory.path());
        source.run(&events);
        source.writer.finish_segment().unwrap();
        seal_all(&source, directory.path());
        let log = open_log(directory.path());
        assert_all_suffixes(&log, &source);

        let first = source.commits.iter().find(|(_, committed)| committed.0 >= time);
        let expected = first.map_or(log.head().lsn, |(lsn, _)| *lsn);
        let cursor = log.cursor_at_time(PgTimestamp(time)).unwrap();
        prop_assert_eq!(cursor.start(), expected);
    }
}

#[test]
fn an_index_that_is_absent_or_damaged_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&events(300));
    seal_all(&source, directory.path());
    let names = names(&source, directory.path());
    assert!(names.len() > 3);
    for (number, name) in names.iter().enumerate() {
        let path = name.path(directory.path(), SegmentExtension::Index);
        let rebuilt = crate::index::rebuild(directory.path(), *name).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), rebuilt, "{name}");
        match number % 3 {
            0 => std::fs::remove_file(&path).unwrap(),
            1 => std::fs::write(&path, b"short").unwrap(),
            _ => {
                let mut bytes = rebuilt;
                let last = bytes.len() - 20;
                bytes[last] ^= 1;
                std::fs::write(&path, bytes).unwrap();
            }
        }
    }
    assert_all_suffixes(&open_log(directory.path()), &source);
}

#[test]
fn a_cursor_survives_sealing_and_deletion_of_the_file_that_it_reads() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&events(300));
    let log = open_log(directory.path());
    let mut cursor = log.cursor_at(ORIGIN).unwrap();
    let first = cursor.next().unwrap().unwrap();
    let frames = first.frames().clone();
    let copy = frames.to_vec();
    seal_all(&source, directory.path());
    let sealed = names(&source, directory.path());
    assert!(
        list_segments(&RealFs, directory.path())
            .unwrap()
            .iter()
            .filter(|info| info.state == SegmentState::Active)
            .count()
            == 1
    );
    delete_segment(&RealFs, directory.path(), sealed[0]).unwrap();

    // What it has open it reads to the end, and goes on in the sealed one behind.
    while cursor.next().unwrap().is_some() {}
    assert_eq!(cursor.position(), log.head().lsn);
    assert_eq!(frames, copy);

    let Err(SeekError::NotKept { oldest, .. }) = log.cursor_at(ORIGIN) else {
        panic!("deleted");
    };
    assert_eq!(oldest, sealed[1].first_lsn);
    assert!(drain(log.cursor_at(oldest).unwrap()).unwrap() == source.suffix(oldest));
}

/// Segments are deleted from the oldest on. But somebody may remove files by hand, and a listing that is read while some are
/// deleted may have one before and not the one behind it.
#[test]
fn a_hole_in_front_of_a_cursor_ends_it() {
    for with_names in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let mut source = Source::new(directory.path());
        source.run(&events(300));
        seal_all(&source, directory.path());
        let sealed = names(&source, directory.path());
        for name in &sealed[1..3] {
            delete_segment(&RealFs, directory.path(), *name).unwrap();
        }
        if !with_names {
            std::fs::remove_file(directory.path().join(NAMES_FILE)).unwrap();
        }
        let log = open_log(directory.path());
        let mut cursor = log.cursor_at(ORIGIN).unwrap();
        let mut steps = (0..10_000).map(|_| cursor.step_with(&|_, _| true, 16));
        let ended = steps.find_map(Result::err);
        let Some(ReadError::NotKept { asked, oldest, .. }) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!((asked, oldest), (sealed[1].first_lsn, sealed[3].first_lsn));
        let error = log.cursor_at(asked).unwrap().next().unwrap_err();
        assert!(matches!(error, ReadError::NotKept { .. }), "{error}");
    }
}

#[test]
fn a_segment_deleted_in_front_of_a_cursor_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&events(300));
    let log = open_log(directory.path());
    let mut cursor = log.cursor_at(ORIGIN).unwrap();
    cursor.next().unwrap().unwrap();
    seal_all(&source, directory.path());
    let sealed = names(&source, directory.path());
    for name in &sealed[..3] {
        delete_segment(&RealFs, directory.path(), *name).unwrap();
    }
    let error = loop {
        match cursor.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the head behind a hole"),
            Err(error) => break error,
        }
    };
    let ReadError::NotKept {
        asked,
        oldest,
        newest,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(asked, sealed[1].first_lsn);
    assert_eq!(oldest, sealed[3].first_lsn);
    assert_eq!(newest, log.head().lsn);
    let kept = log.kept().unwrap();
    assert_eq!(kept.oldest, oldest);
}

#[test]
fn readers_follow_through_sealing_and_deletion() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[]);
    let log = open_log(directory.path());
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let follow = || follow(TransactionIter::new(log.cursor_at(ORIGIN).unwrap()), &done);
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(follow)).collect();
        for (number, event) in events(1200).iter().enumerate() {
            source.event(event);
            if number % 5 == 0 {
                source.flush();
                source.writer.sync().unwrap();
            }
            if number % 40 == 0 {
                seal_all(&source, directory.path());
            }
        }
        source.run(&[]);
        done.store(true, Ordering::Release);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect::<Vec<_>>()
    });
    for flats in seen {
        assert!(flats == source.expected);
    }
}

#[test]
fn a_damaged_sealed_segment_is_reported_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[Event::Alter(1, 2), Event::Transaction(vec![(1, 300); 4])]);
    source.writer.finish_segment().unwrap();
    seal_all(&source, directory.path());
    let name = names(&source, directory.path())[0];
    let path = name.path(directory.path(), SegmentExtension::Sealed);
    let sound = std::fs::read(&path).unwrap();
    let footer = crate::segment::FOOTER_TRAILER_LEN;
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        let read = open_log(directory.path())
            .cursor_at(ORIGIN)
            .map_err(|error| error.to_string())
            .and_then(|cursor| drain(cursor).map_err(|error| error.to_string()));
        match read {
            Err(error) => assert!(error.contains(path.to_str().unwrap()), "byte {at}: {error}"),
            // Readers stop at the footer's header, and have checked all that is before it.
            Ok(flats) => assert!(at + 128 + footer > sound.len() && flats == source.expected),
        }
    }
}
