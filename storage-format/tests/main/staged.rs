//! Transactions that are staged before they commit.

use std::sync::Arc;

use pg_proto::{Lsn, Oid, Xid};
use storage_format::fs::RealFs;
use storage_format::record::RecordKind;
use storage_format::staging::{Rollback, StagedEnd, StagedItem, StagedReader};
use storage_format::{FormatError, Staging};

use crate::support::{
    SEND_TIME, START, Transaction, append_all, open, read_all, relation_message, transaction,
};

const SEGMENT: u64 = 64 << 10;
const TOP: Xid = Xid(700);

fn staging(log: &std::path::Path, memory: usize) -> Staging {
    Staging::open(log, memory, Arc::new(RealFs)).unwrap()
}

fn stage_row(staging: &mut Staging, subxid: Xid, row: u32) {
    staging
        .builder(TOP, subxid, RecordKind::Insert)
        .unwrap()
        .push_change(RecordKind::Insert, Oid(16384), START, &row.to_be_bytes())
        .unwrap();
}

fn rows(log: &std::path::Path) -> Vec<(Option<u64>, u32)> {
    read_all(log)
        .into_iter()
        .filter(|(_, _, kind, _, _)| *kind == RecordKind::Insert.id())
        .map(|(_, ordinal, _, _, payload)| {
            (ordinal, u32::from_be_bytes(payload.try_into().unwrap()))
        })
        .collect()
}

const AT: Transaction = transaction(START.0 + 5000, 0);

#[test]
fn rolled_back_subtransactions_are_dropped() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let mut staging = staging(log.path(), 1 << 20);
    staging.begin(TOP, START, SEND_TIME);
    for (subxid, row) in [(700, 0), (701, 1), (701, 2), (702, 3), (703, 4), (700, 5)] {
        stage_row(&mut staging, Xid(subxid), row);
    }
    staging
        .abort_subtransaction(TOP, Xid(702), Rollback::default())
        .unwrap();
    staging
        .abort_subtransaction(TOP, Xid(701), Rollback::default())
        .unwrap();
    stage_row(&mut staging, Xid(704), 6);
    staging
        .abort_subtransaction(TOP, Xid(704), Rollback::default())
        .unwrap();
    stage_row(&mut staging, TOP, 7);
    let staged = staging.finish(TOP).unwrap();
    assert_eq!(staging.memory_bytes(), 0);
    writer.append_staged(&staged, &AT.commit()).unwrap();
    drop(staged);
    assert_eq!(
        std::fs::read_dir(log.path().join("staging"))
            .unwrap()
            .count(),
        0
    );
    let expected: Vec<_> = [0, 4, 5, 7]
        .into_iter()
        .enumerate()
        .map(|(ordinal, row)| (Some(ordinal as u64), row))
        .collect();
    assert_eq!(rows(log.path()), expected);
    let all = read_all(log.path());
    assert!(all.iter().all(|(commit_lsn, ..)| *commit_lsn == AT.at));
    assert_eq!(all.first().unwrap().2, RecordKind::Begin.id());
    assert_eq!(all.last().unwrap().2, RecordKind::Commit.id());
    drop(writer);
    let (_, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, AT.end());
}

#[test]
fn what_is_rolled_back_altogether_leaves_that_it_committed() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let mut staging = staging(log.path(), 1 << 20);
    staging.begin(TOP, START, SEND_TIME);
    let empty = staging.finish(TOP).unwrap();
    writer.append_staged(&empty, &AT.commit()).unwrap();
    staging.begin(TOP, START, SEND_TIME);
    stage_row(&mut staging, Xid(701), 1);
    stage_row(&mut staging, Xid(702), 2);
    staging
        .abort_subtransaction(TOP, Xid(701), Rollback::default())
        .unwrap();
    staging
        .abort_subtransaction(TOP, Xid(702), Rollback::default())
        .unwrap();
    let nothing = staging.finish(TOP).unwrap();
    let next = transaction(AT.end().0 + 5000, 0);
    writer.append_staged(&nothing, &next.commit()).unwrap();
    assert_eq!(writer.written_lsn(), next.end());
    let seen: Vec<_> = read_all(log.path())
        .iter()
        .map(|(commit_lsn, _, kind, ..)| (*commit_lsn, *kind))
        .collect();
    let ends = [RecordKind::Begin.id(), RecordKind::Commit.id()];
    let of = |one: Transaction| ends.map(|kind| (one.at, kind));
    assert_eq!(seen, [of(AT), of(next)].concat());
}

#[test]
fn a_relation_outlives_the_subtransaction_that_it_came_with() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let mut staging = staging(log.path(), 1 << 20);
    staging.begin(TOP, START, SEND_TIME);
    let message = relation_message(16384, "id");
    staging
        .builder(TOP, Xid(701), RecordKind::Relation)
        .unwrap()
        .push_change(RecordKind::Relation, Oid(16384), Lsn(0), &message)
        .unwrap();
    stage_row(&mut staging, Xid(701), 1);
    staging
        .abort_subtransaction(TOP, Xid(701), Rollback::default())
        .unwrap();
    let staged = staging.finish(TOP).unwrap();
    writer.append_staged(&staged, &AT.commit()).unwrap();
    assert!(writer.catalog().relation(Oid(16384)).is_some());
    let kinds: Vec<u8> = read_all(log.path()).iter().map(|seen| seen.2).collect();
    assert_eq!(kinds, [1, 8, 2]);
}

#[test]
fn large_ones_go_to_files_and_outgrow_their_segment() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    append_all(&mut writer, &[transaction(START.0 + 100, 5)]);
    let mut staging = staging(log.path(), 8 << 10);
    staging.begin(TOP, START, SEND_TIME);
    staging.begin(Xid(900), START, SEND_TIME);
    for row in 0..20_000 {
        stage_row(&mut staging, TOP, row);
        if row % 10 == 0 {
            staging
                .builder(Xid(900), Xid(900), RecordKind::Insert)
                .unwrap()
                .push_change(RecordKind::Insert, Oid(1), START, &[1; 100])
                .unwrap();
        }
        assert!(staging.memory_bytes() <= 9 << 10);
    }
    staging.discard(Xid(900));
    let staged = staging.finish(TOP).unwrap();
    assert!(staged.stored_bytes() > SEGMENT);
    writer.append_staged(&staged, &AT.commit()).unwrap();
    append_all(&mut writer, &[transaction(START.0 + 9000, 5)]);
    let seen: Vec<_> = read_all(log.path())
        .into_iter()
        .filter(|(lsn, _, kind, ..)| *lsn == AT.at && *kind == RecordKind::Insert.id())
        .collect();
    assert_eq!(seen.len(), 20_000);
    for (row, (_, ordinal, _, _, payload)) in (0_u32..).zip(&seen) {
        assert_eq!(*ordinal, Some(row.into()));
        assert_eq!(payload, &row.to_be_bytes());
    }
}

#[test]
fn opening_empties_what_a_crash_left() {
    let log = tempfile::tempdir().unwrap();
    let (_writer, _) = open(log.path(), SEGMENT);
    std::fs::create_dir(log.path().join("staging")).unwrap();
    std::fs::write(log.path().join("staging/700-1.staged"), b"x").unwrap();
    let mut staging = staging(log.path(), 1 << 20);
    assert_eq!(
        std::fs::read_dir(log.path().join("staging"))
            .unwrap()
            .count(),
        0
    );
    assert!(matches!(
        staging.builder(TOP, TOP, RecordKind::Insert),
        Err(FormatError::State { .. })
    ));
}

/// What a reader sees from `offset` on: rows with the position before them, aborts, the end; and where it stands then.
fn follow(reader: &StagedReader, mut offset: u64) -> (Vec<String>, u64) {
    let mut seen = Vec::new();
    while let Some(step) = reader.read(offset).unwrap() {
        match step.item {
            StagedItem::Block(block) => {
                for entry in block.entries() {
                    let row = u32::from_be_bytes(block.payload(&entry).try_into().unwrap());
                    seen.push(format!("{}:{row}@{}", entry.xid, step.position));
                }
            }
            StagedItem::Aborted(xid, at) => seen.push(format!("abort {xid} {}", at.lsn)),
            StagedItem::End(end) => seen.push(format!("{end:?}")),
        }
        offset = step.next;
    }
    (seen, offset)
}

fn only_file(log: &std::path::Path) -> StagedReader {
    let files = StagedReader::list(log).unwrap();
    assert_eq!(files.len(), 1);
    StagedReader::open(&files[0].0).unwrap().unwrap()
}

#[test]
fn others_read_it_while_it_grows_and_after_it_is_gone() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let mut staging = staging(log.path(), 1 << 20);
    staging.begin(TOP, START, SEND_TIME);
    stage_row(&mut staging, TOP, 1);
    assert!(StagedReader::list(log.path()).unwrap().is_empty());
    staging.set_position(Lsn(0x50));
    staging.flush(TOP).unwrap();
    let reader = only_file(log.path());
    assert_eq!(
        (reader.xid(), reader.start(), reader.send_time()),
        (TOP, START, SEND_TIME)
    );
    let (seen, offset) = follow(&reader, StagedReader::START);
    assert_eq!(seen, ["700:1@0/50"]);

    staging.set_position(Lsn(0x60));
    stage_row(&mut staging, Xid(701), 2);
    stage_row(&mut staging, TOP, 3);
    staging.flush(TOP).unwrap();
    let at = Rollback {
        lsn: Lsn(0x61),
        time: SEND_TIME,
    };
    staging.abort_subtransaction(TOP, Xid(701), at).unwrap();
    assert_eq!(reader.end().unwrap(), None);
    let end = StagedEnd::Committed(AT.commit().commit_lsn);
    staging.end(TOP, end).unwrap();
    let staged = staging.finish(TOP).unwrap();
    writer.append_staged(&staged, &AT.commit()).unwrap();
    assert!(!reader.is_removed().unwrap());
    drop(staged);
    assert!(reader.is_removed().unwrap());
    assert_eq!(reader.end().unwrap(), Some(end));
    let (seen, _) = follow(&reader, offset);
    let committed = format!("{end:?}");
    assert_eq!(
        seen,
        ["701:2@0/60", "700:3@0/60", "abort 701 0/61", &committed]
    );
    let rows = rows(log.path());
    assert_eq!(rows, [(Some(0), 1), (Some(1), 3)], "no mark in the log");
}

#[test]
fn what_is_given_up_goes_without_an_end_and_what_is_rolled_back_with_one() {
    let log = tempfile::tempdir().unwrap();
    let (_writer, _) = open(log.path(), SEGMENT);
    let mut staging = staging(log.path(), 1 << 20);
    for rolled_back in [false, true] {
        staging.begin(TOP, START, SEND_TIME);
        stage_row(&mut staging, TOP, 1);
        staging.flush(TOP).unwrap();
        let reader = only_file(log.path());
        let end = rolled_back.then_some(StagedEnd::RolledBack(Rollback::default()));
        if let Some(end) = end {
            staging.end(TOP, end).unwrap();
        }
        staging.discard(TOP);
        assert!(reader.is_removed().unwrap());
        assert_eq!(reader.end().unwrap(), end);
    }
}

#[test]
fn bytes_that_are_not_all_there_are_not_there() {
    let log = tempfile::tempdir().unwrap();
    let (_writer, _) = open(log.path(), SEGMENT);
    let mut staging = staging(log.path(), 1 << 20);
    staging.begin(TOP, START, SEND_TIME);
    stage_row(&mut staging, TOP, 1);
    staging.flush(TOP).unwrap();
    stage_row(&mut staging, TOP, 2);
    staging
        .end(TOP, StagedEnd::Committed(AT.commit().commit_lsn))
        .unwrap();
    let path = StagedReader::list(log.path()).unwrap()[0].0.clone();
    let whole = std::fs::read(&path).unwrap();
    let copy = log.path().join("copy");
    let all = {
        std::fs::write(&copy, &whole).unwrap();
        follow(
            &StagedReader::open(&copy).unwrap().unwrap(),
            StagedReader::START,
        )
        .0
    };
    assert_eq!(all.len(), 3);
    for length in 0..whole.len() {
        // What a growing file may look like: cut off, or with the rest not written yet.
        for fill in [false, true] {
            let mut bytes = whole[..length].to_vec();
            if fill {
                bytes.resize(whole.len(), 0);
            }
            std::fs::write(&copy, &bytes).unwrap();
            if let Some(reader) = StagedReader::open(&copy).unwrap() {
                let (seen, _) = follow(&reader, StagedReader::START);
                assert!(all.starts_with(&seen) && seen.len() < all.len(), "{length}");
                // A header may be there before its body: then the walk goes on, but never to an end that is not there.
                assert_eq!(reader.end().unwrap(), None, "{length}");
            }
        }
    }
}
