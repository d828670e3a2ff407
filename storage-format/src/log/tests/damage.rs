//! Damaged files are reported, never misread.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::support::{Event, ORIGIN, Source, drain, open_log};
use crate::error::FormatError;
use crate::log::{Log, ReadError, ReadOptions, SeekError};

fn flip(path: &Path, offset: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

fn read_all(directory: &Path) -> Result<Vec<super::support::Flat>, SeekError> {
    let log = Log::open(directory, ReadOptions::default())?;
    Ok(drain(log.cursor_at(ORIGIN)?)?)
}

#[test]
fn every_changed_byte_is_noticed_and_placed() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[
        Event::Alter(1, 2),
        Event::Transaction(vec![(1, 30), (2, 40)]),
        Event::Message,
        Event::Idle,
    ]);
    let log = open_log(directory.path());
    let end = log.head().offset;
    let segment = &crate::segment::list_segments(&crate::fs::RealFs, directory.path()).unwrap()[0];
    for offset in 0..end {
        flip(&segment.path, offset);
        match read_all(directory.path()) {
            Err(SeekError::Read(ReadError::Format(error))) => {
                assert_placed(&error, &segment.path, offset)
            }
            other => panic!("byte {offset}: {other:?}"),
        }
        flip(&segment.path, offset);
    }
    assert_eq!(read_all(directory.path()).unwrap(), source.expected);
}

fn assert_placed(error: &FormatError, expected: &Path, changed: u64) {
    match error {
        FormatError::Damaged { path, offset, .. } => {
            assert_eq!(path, expected);
            assert!(*offset <= changed, "{error} for byte {changed}");
        }
        FormatError::Version { path, .. } => assert_eq!(path, expected),
        other => panic!("byte {changed}: {other}"),
    }
}

#[test]
fn a_file_that_is_too_short_is_not_touched_behind_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::new(directory.path());
    source.run(&[Event::Transaction(vec![(1, 3000); 5])]);
    drop(source);
    let segment = &crate::segment::list_segments(&crate::fs::RealFs, directory.path()).unwrap()[0];
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment.path)
        .unwrap();
    for length in [6000, 300, 100, 0] {
        file.set_len(length).unwrap();
        assert!(read_all(directory.path()).is_err(), "{length}");
    }
}

#[test]
fn an_empty_directory_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let error = Log::open(directory.path(), ReadOptions::default()).unwrap_err();
    assert!(matches!(error, ReadError::Watermark(_)), "{error}");
}
