//! Looking for damage, rebuilding what is derived, and gaps in the place of what is gone.

use std::path::{Path, PathBuf};

use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode};
use storage_format::fs::RealFs;
use storage_format::log::{Cursor, Log, ReadError, ReadOptions, TransactionIter};
use storage_format::segment::list_segments;
use storage_format::verify::{Remedy, Report, cut_off, quarantine, repair, verify};
use storage_format::{FormatError, LogWriter, SealOptions, seal_segment};

use crate::support::{START, append_all, files, filled, open, read_all, transaction};

const SEGMENT: u64 = 64 << 10;

/// Commit LSN of transaction `number`.
const fn at(number: u64) -> u64 {
    START.0 + 0x1000 * (number + 1)
}

/// Several segments with several transactions in each block: all but the last two segments sealed.
fn log_of(folder: &Path, transactions: u64) -> LogWriter {
    let (mut writer, _) = open(folder, SEGMENT);
    for group in (0..transactions).collect::<Vec<_>>().chunks(4) {
        let group: Vec<_> = group.iter().map(|n| transaction(at(*n), 60)).collect();
        writer.append(&mut filled(&group)).unwrap();
    }
    writer.sync().unwrap();
    let finished = writer.take_finished();
    assert!(finished.len() > 3, "{finished:?}");
    for name in &finished[..finished.len() - 1] {
        let options = SealOptions {
            block_bytes: 16 << 10,
            ..SealOptions::default()
        };
        seal_segment(&RealFs, folder, *name, &options).unwrap();
    }
    writer
}

fn look(folder: &Path) -> Report {
    verify(&RealFs, folder, &mut |_| {}).unwrap()
}

fn flip(path: &Path, offset: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[usize::try_from(offset).unwrap()] ^= 0x10;
    // A new file, so that nobody's map changes.
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// The commit LSNs that a cursor comes to.
fn commits_of(mut cursor: Cursor) -> Vec<Lsn> {
    let mut all = Vec::new();
    while let Some(block) = cursor.next().unwrap() {
        all.extend(block.entries().filter_map(|entry| {
            match decode(block.payload(&entry), Framing::Plain) {
                Ok(Message::Commit(commit)) => Some(commit.commit_lsn),
                _ => None,
            }
        }));
    }
    all
}

fn commits(folder: &Path) -> Vec<Lsn> {
    let mut commits: Vec<Lsn> = read_all(folder).iter().map(|seen| seen.0).collect();
    commits.dedup();
    commits
}

/// Commits that are read until the first error, from a position on.
fn read_from(folder: &Path, from: Lsn) -> (Vec<Lsn>, Option<ReadError>) {
    let log = Log::open(folder, ReadOptions::default()).unwrap();
    let mut records = TransactionIter::new(log.cursor_at(from).unwrap());
    let mut commits = Vec::new();
    loop {
        match records.next_record() {
            Ok(Some(record)) if commits.last() != Some(&record.commit_lsn) => {
                commits.push(record.commit_lsn);
            }
            Ok(Some(_)) => {}
            Ok(None) => return (commits, None),
            Err(error) => return (commits, Some(error)),
        }
    }
}

#[test]
fn a_sound_log_is_sound_beside_its_writer_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = log_of(folder.path(), 80);
    writer.heartbeat(pg_proto::PgTimestamp::now()).unwrap();
    // Not durable: beside a writer that is not looked at.
    append_all(&mut writer, &[transaction(at(80), 5)]);
    let report = look(folder.path());
    assert!(report.live && report.is_sound(), "{report:#?}");
    assert_eq!(report.transactions, 80);
    assert_eq!(report.events, 80 * 60);
    assert_eq!(report.end_lsn, writer.durable_lsn());
    writer.heartbeat(pg_proto::PgTimestamp(1)).unwrap();
    drop(writer);
    let report = look(folder.path());
    assert!(!report.live && report.is_sound(), "{report:#?}");
    assert_eq!(report.transactions, 81);
    assert_eq!((report.first_lsn, report.gaps.len()), (START, 0));
}

/// Whatever byte of a segment or index is changed, it is found.
#[test]
fn every_changed_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let writer = log_of(folder.path(), 80);
    let durable_offset = writer.durable_lsn();
    drop(writer);
    let sealed = files(folder.path(), "seg");
    let mut paths = vec![sealed[1].clone(), files(folder.path(), "idx")[1].clone()];
    paths.push(files(folder.path(), "active")[0].clone());
    for path in paths {
        let sound = std::fs::read(&path).unwrap();
        // What lies behind an active segment's end is no part of the log.
        let end = sound.iter().rposition(|byte| *byte != 0).unwrap() as u64;
        for offset in (0..end).step_by(997) {
            flip(&path, offset);
            let report = look(folder.path());
            let finding = report.findings.first();
            let found = finding.unwrap_or_else(|| panic!("{} {offset}", path.display()));
            assert_eq!(found.path, path, "offset {offset}: {found:?}");
            assert!(found.offset <= offset, "offset {offset}: {found:?}");
            std::fs::write(&path, &sound).unwrap();
        }
    }
    assert!(look(folder.path()).is_sound());
    assert!(durable_offset > START);
}

#[test]
fn indexes_and_leftovers_are_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let writer = log_of(folder.path(), 80);
    let busy = repair(&RealFs, folder.path());
    assert!(matches!(busy, Err(FormatError::Locked { .. })), "{busy:?}");
    drop(writer);
    let before = read_all(folder.path());
    let indexes = files(folder.path(), "idx");
    std::fs::remove_file(&indexes[0]).unwrap();
    flip(&indexes[1], 70);
    let stray = folder.path().join("segments/x.tmp");
    std::fs::write(&stray, b"x").unwrap();
    let report = look(folder.path());
    let remedies: Vec<Remedy> = report.findings.iter().map(|f| f.remedy).collect();
    assert_eq!(remedies, [Remedy::Repair; 2], "{report:#?}");
    assert_eq!(report.leftovers, std::slice::from_ref(&stray));
    let repaired = repair(&RealFs, folder.path()).unwrap();
    assert_eq!(repaired.indexes, indexes[..2]);
    assert_eq!(repaired.leftovers, [stray]);
    assert!(look(folder.path()).is_sound());
    assert_eq!(read_all(folder.path()), before);
}

/// Where the damage is, in a part of a file of this length.
type Place = fn(u64) -> u64;

#[test]
fn damage_becomes_a_gap_that_no_reader_passes() {
    let places: [(&str, Place); 3] = [
        ("header", |_| 20),
        ("middle", |length| length / 2),
        ("footer", |length| length - 40),
    ];
    for (what, place) in places {
        for extension in ["seg", "active"] {
            let folder = tempfile::tempdir().unwrap();
            drop(log_of(folder.path(), 80));
            let all = commits(folder.path());
            let victim = match extension {
                "seg" => files(folder.path(), "seg")[1].clone(),
                _ => files(folder.path(), "active")[0].clone(),
            };
            let length = std::fs::read(&victim).unwrap();
            let used = length.iter().rposition(|byte| *byte != 0).unwrap() as u64;
            flip(&victim, place(used));
            check_quarantine(folder.path(), &victim, &all, what);
        }
    }
}

fn check_quarantine(folder: &Path, victim: &Path, all: &[Lsn], what: &str) {
    assert!(!look(folder).is_sound(), "{what}");
    let done = quarantine(&RealFs, folder).unwrap();
    let [gap] = &done[..] else {
        panic!("{what}: {done:?}")
    };
    let kept: PathBuf = gap.moved_to.clone().unwrap();
    assert_eq!(kept.file_name(), victim.file_name(), "{what}");
    let report = look(folder);
    assert!(report.is_sound(), "{what}: {report:#?}");
    if what == "footer" {
        // Nothing of what was written is missing, only the totals.
        assert_eq!((report.gaps.len(), commits(folder)), (0, all.to_vec()));
        return;
    }
    assert_eq!(report.gaps.len(), 1, "{what}: {done:?}");

    // Up to the gap everything, then the error with both positions, whoever asks again.
    let (before, error) = read_from(folder, START);
    let expected: Vec<Lsn> = all.iter().copied().filter(|lsn| *lsn < gap.from).collect();
    assert_eq!(before, expected, "{what}");
    match error {
        Some(ReadError::Gap { from, to }) => assert_eq!((from, to), (gap.from, gap.to)),
        other => panic!("{what}: {other:?}"),
    }
    // Behind it everything.
    let (behind, error) = read_from(folder, gap.to);
    let expected: Vec<Lsn> = all.iter().copied().filter(|lsn| *lsn >= gap.to).collect();
    assert_eq!(behind, expected, "{what}");
    assert!(error.is_none(), "{what}: {error:?}");
    assert!(before.len() + behind.len() < all.len(), "{what}");

    // The log goes on, and a gap stays one when it is sealed.
    let (mut writer, _) = open(folder, SEGMENT);
    append_all(&mut writer, &[transaction(at(1000), 3)]);
    writer.sync().unwrap();
    drop(writer);
    assert!(look(folder).is_sound(), "{what}");
    assert_eq!(quarantine(&RealFs, folder).unwrap(), []);
}

#[test]
fn missing_segments_become_gaps() {
    let folder = tempfile::tempdir().unwrap();
    drop(log_of(folder.path(), 80));
    let segments = list_segments(&RealFs, folder.path()).unwrap();
    for gone in &segments[1..3] {
        std::fs::remove_file(&gone.path).unwrap();
    }
    let report = look(folder.path());
    assert_eq!(report.findings.len(), 1, "{report:#?}");
    quarantine(&RealFs, folder.path()).unwrap();
    let report = look(folder.path());
    assert!(report.is_sound(), "{report:#?}");
    let [gap] = &report.gaps[..] else {
        panic!("{report:#?}")
    };
    assert_eq!(gap.from, segments[1].name.first_lsn);
    assert_eq!(gap.to, segments[3].name.first_lsn);
    let (_, error) = read_from(folder.path(), START);
    assert!(matches!(error, Some(ReadError::Gap { .. })), "{error:?}");
    open(folder.path(), SEGMENT);
}

#[test]
fn a_lost_end_becomes_a_gap_up_to_what_was_durable() {
    let folder = tempfile::tempdir().unwrap();
    let writer = log_of(folder.path(), 80);
    let durable = writer.durable_lsn();
    drop(writer);
    let last = list_segments(&RealFs, folder.path())
        .unwrap()
        .pop()
        .unwrap();
    std::fs::remove_file(&last.path).unwrap();
    assert!(!look(folder.path()).is_sound());
    quarantine(&RealFs, folder.path()).unwrap();
    let report = look(folder.path());
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!((report.gaps.len(), report.end_lsn), (1, durable));
    let (_, recovery) = open(folder.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, durable);
}

#[test]
fn a_gap_can_be_accepted_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(folder.path(), SEGMENT);
    append_all(&mut writer, &[transaction(at(0), 3)]);
    let end = writer.written_lsn();
    writer.gap(Lsn(at(5))).unwrap();
    append_all(&mut writer, &[transaction(at(6), 3)]);
    writer.finish_segment().unwrap();
    let name = writer.take_finished()[0];
    for sealed in [false, true] {
        if sealed {
            seal_segment(&RealFs, folder.path(), name, &SealOptions::default()).unwrap();
        }
        let (before, error) = read_from(folder.path(), START);
        assert_eq!(before, [Lsn(at(0))]);
        let Some(ReadError::Gap { from, to }) = error else {
            panic!("{error:?}")
        };
        assert_eq!((from, to), (end, Lsn(at(5))));
        // A position inside the gap is none to read from either.
        let (_, error) = read_from(folder.path(), Lsn(at(4)));
        assert!(matches!(error, Some(ReadError::Gap { .. })), "{error:?}");
        assert_eq!(read_from(folder.path(), Lsn(at(5))).0, [Lsn(at(6))]);
        assert!(look(folder.path()).is_sound());
    }
}

#[test]
fn a_cut_leaves_exactly_what_ended_before_it() {
    let folder = tempfile::tempdir().unwrap();
    drop(log_of(folder.path(), 80));
    let all = commits(folder.path());
    for number in [78, 71, 33, 6, 0] {
        let log = Log::open(folder.path(), ReadOptions::default()).unwrap();
        let mut past = log.cursor_at(log.head().lsn).unwrap();
        let mut early = log.cursor_at(START).unwrap();
        early.next().unwrap();
        // Has all files open and their blocks in memory.
        let mut whole = log.cursor_at(START).unwrap();
        while whole.next().unwrap().is_some() {}
        // In the middle of the next transaction.
        let fork = Lsn(at(number) + 0x800);
        let cut = cut_off(&RealFs, folder.path(), fork).unwrap();
        assert_eq!(cut.end_lsn, Lsn(at(number) + 48), "{number}");
        assert_eq!(cut.first_commit_lsn, Some(Lsn(at(number + 1))), "{number}");
        assert!(!cut.moved.is_empty());
        let report = look(folder.path());
        assert!(report.is_sound(), "{number}: {report:#?}");
        let expected: Vec<Lsn> = all.iter().copied().filter(|lsn| *lsn < fork).collect();
        assert_eq!(commits(folder.path()), expected, "{number}");
        // Also for a reader that had the files open, whoever else has them open still.
        assert_eq!(
            commits_of(log.cursor_at(START).unwrap()),
            expected,
            "{number}"
        );
        // Readers that were past it are told, those before it go on.
        let told = past.next().unwrap_err();
        assert!(matches!(told, ReadError::Forked { .. }), "{told:?}");
        match early.next() {
            Ok(_) => while early.next().unwrap().is_some() {},
            Err(ReadError::Forked { .. }) => assert!(number < 4, "{number}"),
            Err(other) => panic!("{other:?}"),
        }
    }
    // Another history goes on there.
    let (mut writer, recovery) = open(folder.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, Lsn(at(0) + 48));
    append_all(&mut writer, &[transaction(at(0) + 100, 3)]);
    writer.sync().unwrap();
    assert_eq!(commits(folder.path()), [Lsn(at(0)), Lsn(at(0) + 100)]);
}
