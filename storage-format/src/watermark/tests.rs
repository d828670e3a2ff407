//! Publishing, reading, and both at once.

use std::sync::atomic::{AtomicBool, Ordering};

use pg_proto::{Lsn, PgTimestamp};

use super::layout::{COUNT_WORD, FILE_WORDS, slot_start};
use super::*;
use crate::fs::RealFs;

/// A state all of whose fields follow from one number, so that a mixture is noticed.
fn state(number: u64) -> WatermarkState {
    let point = |add: u64| LogPoint {
        sequence: number + add,
        offset: number * 3 + add,
        lsn: Lsn(number * 7 + add),
    };
    WatermarkState {
        epoch: number,
        written: point(2),
        durable: point(1),
    }
}

#[test]
fn what_is_published_is_read_and_survives_a_new_writer() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(
        WatermarkReader::open(directory.path()),
        Err(WatermarkError::Io { .. })
    ));
    let mut publisher = WatermarkPublisher::open(&RealFs, directory.path()).unwrap();
    let reader = WatermarkReader::open(directory.path()).unwrap();
    assert!(matches!(
        reader.read(),
        Err(WatermarkError::Unpublished { .. })
    ));
    assert_eq!(reader.heartbeat(), None);
    for number in 1..5 {
        publisher.publish(state(number)).unwrap();
        assert_eq!(reader.read().unwrap(), state(number));
    }
    publisher.heartbeat(PgTimestamp(9)).unwrap();
    drop(publisher);
    let mut publisher = WatermarkPublisher::open(&RealFs, directory.path()).unwrap();
    assert_eq!(publisher.last(), Some(state(4)));
    assert_eq!(reader.heartbeat(), Some(PgTimestamp(9)));
    publisher.publish(state(5)).unwrap();
    assert_eq!(reader.read().unwrap(), state(5));
}

#[test]
fn a_writer_that_died_leaves_the_publication_before() {
    let directory = tempfile::tempdir().unwrap();
    let mut publisher = WatermarkPublisher::open(&RealFs, directory.path()).unwrap();
    publisher.publish(state(1)).unwrap();
    publisher.publish(state(2)).unwrap();
    // Half of publication 3, without its count.
    publisher.put(slot_start(3), &[3]).unwrap();
    publisher.put(slot_start(3) + 1, &[99]).unwrap();
    let reader = WatermarkReader::open(directory.path()).unwrap();
    assert_eq!(reader.read().unwrap(), state(2));
    // Pages torn by a machine crash: the count arrived and the slot did not, or the other way round.
    publisher.publish(state(3)).unwrap();
    publisher.put(slot_start(3) + 1, &[99]).unwrap();
    assert_eq!(reader.read().unwrap(), state(2));
    publisher.put(COUNT_WORD, &[0]).unwrap();
    assert_eq!(reader.read().unwrap(), state(2));
}

#[test]
fn a_foreign_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(WATERMARK_FILE);
    std::fs::write(&path, vec![1; FILE_WORDS * 8]).unwrap();
    assert!(matches!(
        WatermarkReader::open(directory.path()),
        Err(WatermarkError::Foreign { .. })
    ));
    std::fs::write(&path, b"short").unwrap();
    assert!(matches!(
        WatermarkPublisher::open(&RealFs, directory.path()),
        Err(WatermarkError::Io { .. })
    ));
}

#[test]
fn no_reader_sees_a_mixture_of_two_publications() {
    let directory = tempfile::tempdir().unwrap();
    let mut publisher = WatermarkPublisher::open(&RealFs, directory.path()).unwrap();
    publisher.publish(state(1)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = WatermarkReader::open(directory.path()).unwrap();
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let seen = reader.read().unwrap();
                    assert_eq!(seen, state(seen.epoch));
                    assert!(seen.epoch >= last, "went back");
                    last = seen.epoch;
                }
            });
        }
        for number in 2..200_000 {
            publisher.publish(state(number)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
