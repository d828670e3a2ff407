//! The names file beside a writer that can't always write it, and readers that need not list the folder.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;
use storage_format::fs::RealFs;
use storage_format::log::{Cursor, Log, ReadOptions};
use storage_format::segment::{NAMES_FILE, delete_segment, list_segments};
use storage_format::{LogWriter, SealOptions, seal_segment};

use crate::faulty_fs::{Fault, FaultyFs, Operation};
use crate::support::{START, append_all, open, open_with, transaction};

const SEGMENT: u64 = 64 << 10;
/// As `FORMAT.md` has it.
const HEADER_LEN: usize = 64;
const ENTRY_LEN: usize = 16;

const fn at(number: u64) -> Lsn {
    Lsn(START.0 + number * 1000)
}

/// One segment for each number.
fn grow(writer: &mut LogWriter, log: &Path, numbers: Range<u64>) {
    for number in numbers {
        append_all(writer, &[transaction(at(number).0, 2)]);
        writer.finish_segment().unwrap();
        for name in writer.take_finished() {
            seal_segment(&RealFs, log, name, &SealOptions::default()).unwrap();
        }
    }
}

/// Sequences and first LSNs by the file, and by the folder.
fn both(log: &Path) -> [Vec<(u64, Lsn)>; 2] {
    let bytes = std::fs::read(log.join(NAMES_FILE)).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let entries = (HEADER_LEN..bytes.len()).step_by(ENTRY_LEN);
    let by_file = (number(16)..).zip(entries.map(|entry| Lsn(number(entry))));
    let segments = list_segments(&RealFs, log).unwrap().into_iter();
    let by_folder = segments.map(|segment| (segment.name.sequence, segment.name.first_lsn));
    [by_file.collect(), by_folder.collect()]
}

fn assert_whole(log: &Path) {
    let [by_file, by_folder] = both(log);
    assert_eq!(by_file, by_folder);
}

/// One cursor comes to each of them, and others begin there.
fn assert_read(reader: &Arc<Log>, cursor: &mut Cursor, numbers: Range<u64>) {
    for number in numbers {
        let block = cursor.next().unwrap().unwrap();
        assert_eq!(block.header().first_commit_lsn, at(number));
        let mut other = reader.cursor_at(at(number)).unwrap();
        assert!(other.next().unwrap().is_some());
    }
}

#[test]
fn readers_do_not_list_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path();
    let (mut writer, _) = open(log, SEGMENT);
    grow(&mut writer, log, 1..20);
    let fs = FaultyFs::default();
    let reader = Log::open_on(Arc::new(fs.clone()), log, ReadOptions::default()).unwrap();
    let mut cursor = reader.cursor_at(at(3)).unwrap();
    assert_read(&reader, &mut cursor, 3..20);
    assert!(cursor.next().unwrap().is_none());
    grow(&mut writer, log, 20..30);
    assert_read(&reader, &mut cursor, 20..30);
    for segment in &list_segments(&RealFs, log).unwrap()[..7] {
        delete_segment(&RealFs, log, segment.name).unwrap();
        let kept = reader.kept().unwrap();
        assert!(kept.oldest > segment.name.first_lsn);
        reader.cursor_at(kept.oldest).unwrap();
    }
    assert_eq!(fs.listings(), 0);
    std::fs::remove_file(log.join(NAMES_FILE)).unwrap();
    reader.kept().unwrap();
    assert_eq!(fs.listings(), 1);
}

#[test]
fn a_name_that_can_not_be_written_stops_nothing() {
    // The header of the new segment, the end of the old one, the name.
    const BEFORE: usize = 2;
    for fault in [Fault::NoSpace, Fault::Io, Fault::Short, Fault::Partial] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path();
        let fs = FaultyFs::default();
        let (mut writer, _) = open_with(log, SEGMENT, Arc::new(fs.clone())).unwrap();
        grow(&mut writer, log, 1..4);
        append_all(&mut writer, &[transaction(at(4).0, 2)]);
        fs.fail(Operation::Write, BEFORE, fault, false);
        writer.finish_segment().unwrap();
        assert_whole(log);
        grow(&mut writer, log, 5..7);
        assert_whole(log);
    }
}

/// Nothing at all can be done about the file.
#[test]
fn without_the_file_everything_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path();
    let path = log.join(NAMES_FILE);
    std::fs::create_dir_all(path.join("in the way")).unwrap();
    let (mut writer, _) = open(log, SEGMENT);
    grow(&mut writer, log, 1..6);
    let reader = Log::open(log, ReadOptions::default()).unwrap();
    let segments = list_segments(&RealFs, log).unwrap();
    delete_segment(&RealFs, log, segments[0].name).unwrap();
    assert_eq!(reader.kept().unwrap().oldest, segments[1].name.first_lsn);
    let mut cursor = reader.cursor_at(at(4)).unwrap();
    assert!(cursor.next().unwrap().is_some());
    std::fs::remove_dir_all(&path).unwrap();
    grow(&mut writer, log, 6..8);
    assert_whole(log);
}

#[test]
fn what_was_deleted_is_passed_also_if_that_was_not_noted_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path();
    let (mut writer, _) = open(log, SEGMENT);
    grow(&mut writer, log, 1..20);
    let segments = list_segments(&RealFs, log).unwrap();
    let fs = FaultyFs::default();
    fs.fail(Operation::Write, 0, Fault::Io, true);
    for segment in &segments[..8] {
        delete_segment(&fs, log, segment.name).unwrap();
        let reader = Log::open(log, ReadOptions::default()).unwrap();
        let oldest = list_segments(&RealFs, log).unwrap()[0].name.first_lsn;
        assert_eq!(reader.kept().unwrap().oldest, oldest);
    }
    fs.heal();
    delete_segment(&fs, log, segments[8].name).unwrap();
    let reader = Log::open_on(Arc::new(fs.clone()), log, ReadOptions::default()).unwrap();
    assert_eq!(reader.kept().unwrap().oldest, segments[9].name.first_lsn);
    assert_eq!(fs.listings(), 0);
}
