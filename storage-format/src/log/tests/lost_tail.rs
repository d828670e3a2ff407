//! What was served as written can be gone after a crash of the machine, and comes again in other blocks.

use std::os::unix::fs::FileExt;

use super::support::{Event, ORIGIN, Source, open_log};
use crate::log::{Log, ReadOptions, Serve, TransactionIter};
use crate::segment::list_segments;

fn rows(number: usize) -> Event {
    Event::Transaction(vec![(1, number)])
}

/// Commit LSNs of the rows that are there now.
fn read(records: &mut TransactionIter) -> Vec<(u64, usize)> {
    let mut seen = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        if record.ordinal.is_some() {
            seen.push((record.commit_lsn.0, record.payload().len()));
        }
    }
    seen
}

#[test]
fn a_cursor_finds_its_place_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[rows(1), rows(2)]);
    let durable = open_log(directory.path()).head();
    // Four transactions in blocks of two, written and not durable.
    for pair in [[3, 4], [5, 6]] {
        for number in pair {
            source.event(&rows(number));
        }
        source.flush();
    }
    let options = ReadOptions {
        serve: Serve::Written,
        ..ReadOptions::default()
    };
    let log = Log::open(directory.path(), options).unwrap();
    let mut records = TransactionIter::new(log.cursor_at(ORIGIN).unwrap());
    let first = read(&mut records);
    assert_eq!(first.len(), 6);
    drop(source);

    // The machine crashes: nothing of what was not durable reached the disk.
    let segment = list_segments(&crate::fs::RealFs, directory.path())
        .unwrap()
        .remove(0);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment.path)
        .unwrap();
    let end = file.metadata().unwrap().len();
    let lost = vec![0; usize::try_from(end - durable.offset).unwrap()];
    file.write_all_at(&lost, durable.offset).unwrap();

    // It comes again, in blocks of three and with more behind it.
    let mut source = Source::resume(directory.path(), durable.lsn, 2);
    assert_eq!(log.head().lsn, durable.lsn);
    assert!(
        read(&mut records).is_empty(),
        "the log is behind the reader"
    );
    for triple in [[3, 4, 5], [6, 7, 8]] {
        for number in triple {
            source.event(&rows(number));
        }
        source.flush();
        read_exactly_the_rest(&mut records, &triple);
    }
}

/// Each transaction is seen once, whatever block it is in now.
fn read_exactly_the_rest(records: &mut TransactionIter, written: &[usize]) {
    let new: Vec<usize> = written.iter().copied().filter(|size| *size > 6).collect();
    let seen: Vec<usize> = read(records)
        .into_iter()
        .map(|(_, length)| length - 5)
        .collect();
    assert_eq!(seen, new);
}
