//! Reading while the writer appends.

use std::sync::atomic::{AtomicBool, Ordering};

use super::support::{Event, Flat, ORIGIN, Source, open_log};
use crate::log::TransactionIter;

/// A mixture in which segments fill up quickly.
pub(super) fn events(count: usize) -> Vec<Event> {
    (0..count)
        .map(|number| match number % 7 {
            // Larger than a segment, whose file grows under its readers.
            _ if number % 100 == 50 => Event::Transaction(vec![(1, 9000); 30]),
            0 => Event::Transaction(vec![(1, 900); number % 50]),
            1 => Event::Alter(2, if number % 2 == 0 { 2 } else { 3 }),
            2 => Event::Message,
            3 => Event::Idle,
            _ => Event::Transaction(vec![(3, number % 300)]),
        })
        .collect()
}

#[test]
fn readers_follow_the_writer_through_rollovers() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[]);
    let log = open_log(directory.path());
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| follow(TransactionIter::new(log.cursor_at(ORIGIN).unwrap()), &done))
            })
            .collect();
        for (number, event) in events(1500).iter().enumerate() {
            source.event(event);
            if number % 5 == 0 {
                source.flush();
                source.writer.sync().unwrap();
            }
        }
        source.run(&[]);
        done.store(true, Ordering::Release);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(log.head().sequence > 5, "no rollovers");
    for flats in seen {
        assert!(flats == source.expected);
    }
}

/// Reads until the writer is done and nothing is left.
pub(super) fn follow(mut records: TransactionIter, done: &AtomicBool) -> Vec<Flat> {
    let mut flats = Vec::new();
    loop {
        let last_turn = done.load(Ordering::Acquire);
        while let Some(record) = records.next_record().unwrap() {
            flats.push(Flat {
                commit_lsn: record.commit_lsn,
                ordinal: record.ordinal,
                kind: record.kind().unwrap(),
                payload: record.payload().to_vec(),
            });
        }
        if last_turn {
            return flats;
        }
        std::thread::yield_now();
    }
}
