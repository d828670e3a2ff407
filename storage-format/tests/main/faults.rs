//! Files that fail.

use std::path::Path;
use std::sync::Arc;

use pg_proto::pgoutput::Prepare;
use pg_proto::{Lsn, Oid, Xid};
use storage_format::fs::RealFs;
use storage_format::record::{PreparedRecord, RecordKind};
use storage_format::watermark::WatermarkReader;
use storage_format::{FormatError, LogWriter, PreparedStore, SealOptions, Staging, seal_segment};

use crate::faulty_fs::{Fault, FaultyFs, Operation};
use crate::support::{
    SEND_TIME, START, Transaction, append_all, filled, open, open_with, read_all, transaction,
};

const SEGMENT: u64 = 64 << 10;

fn faulty(log: &Path) -> (FaultyFs, LogWriter) {
    let fs = FaultyFs::default();
    let (writer, _) = open_with(log, SEGMENT, Arc::new(fs.clone())).unwrap();
    (fs, writer)
}

const fn nth(n: u64) -> Transaction {
    transaction(START.0 + n * 1000, 5)
}

#[test]
fn a_failed_write_or_sync_poisons_the_writer() {
    for (kind, fault) in [
        (Operation::Write, Fault::Io),
        (Operation::Write, Fault::Short),
        (Operation::Sync, Fault::Io),
        (Operation::Sync, Fault::NoSpace),
    ] {
        let log = tempfile::tempdir().unwrap();
        let (fs, mut writer) = faulty(log.path());
        append_all(&mut writer, &[nth(1)]);
        writer.sync().unwrap();
        fs.fail(kind, 0, fault, false);
        let first = writer
            .append(&mut filled(&[nth(2)]))
            .and_then(|()| writer.sync());
        assert!(first.is_err(), "{kind:?} {fault:?}");
        // The disk works again, but what is on it is unknown.
        for error in [
            writer.append(&mut filled(&[nth(3)])).unwrap_err(),
            writer.progress(Lsn(START.0 + 9000)).unwrap_err(),
            writer.sync().unwrap_err(),
            writer.abandon_open_transaction().unwrap_err(),
            writer.finish_segment().unwrap_err(),
        ] {
            assert!(matches!(error, FormatError::Poisoned { .. }), "{error}");
        }
        assert_eq!(writer.durable_lsn(), nth(1).end());
        let state = WatermarkReader::open(log.path()).unwrap().read().unwrap();
        assert_eq!(state.durable.lsn, nth(1).end());
        drop(writer);
        let (_, recovery) = open(log.path(), SEGMENT);
        assert!(recovery.end_lsn >= nth(1).end());
    }
}

#[test]
fn a_write_in_pieces_is_completed() {
    let log = tempfile::tempdir().unwrap();
    let (fs, mut writer) = faulty(log.path());
    fs.fail(Operation::Write, 0, Fault::Partial, false);
    append_all(&mut writer, &[nth(1), nth(2)]);
    drop(writer);
    assert_eq!(open(log.path(), SEGMENT).1.end_lsn, nth(2).end());
    assert_eq!(read_all(log.path()).len(), 14);
}

#[test]
fn a_full_disk_leaves_the_log_as_it_was_and_the_writer_goes_on() {
    for kind in [Operation::Write, Operation::Allocate] {
        let log = tempfile::tempdir().unwrap();
        let (fs, mut writer) = faulty(log.path());
        let mut expected = 0;
        let mut refused = 0;
        for n in 1..40 {
            let mut next = nth(n);
            next.rows = 60;
            let mut builder = filled(&[next]);
            fs.fail(kind, 0, Fault::NoSpace, true);
            let before = writer.written_lsn();
            match writer.append(&mut builder) {
                Ok(()) => {}
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    assert_eq!(writer.written_lsn(), before);
                    refused += 1;
                    fs.heal();
                    writer.append(&mut builder).unwrap();
                }
            }
            fs.heal();
            expected += 62;
            assert_eq!(writer.written_lsn(), next.end());
        }
        assert!(refused > 0, "{kind:?}");
        writer.sync().unwrap();
        assert!(writer.active_segment().sequence > 1);
        assert_eq!(read_all(log.path()).len(), expected);
    }
}

#[test]
fn a_full_disk_between_the_two_parts_of_a_split_block() {
    // Between the two the watermark is written: its slot and its count.
    for part in [0, 3] {
        let log = tempfile::tempdir().unwrap();
        let (fs, mut writer) = faulty(log.path());
        let mut builder = filled(&[nth(1)]);
        nth(2).push_begin(&mut builder);
        nth(2).push_rows(&mut builder, 3);
        let open = builder.open_transaction();
        fs.fail(Operation::Write, part, Fault::NoSpace, false);
        assert!(writer.append(&mut builder).unwrap_err().is_retryable());
        writer.append(&mut builder).unwrap();
        assert_eq!(writer.open_transaction(), open);
        builder.start(open);
        nth(2).push_rows(&mut builder, 2);
        nth(2).push_commit(&mut builder);
        writer.append(&mut builder).unwrap();
        let seen = read_all(log.path());
        let ordinals: Vec<_> = seen.iter().filter_map(|seen| seen.1).collect();
        assert_eq!(ordinals, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    }
}

fn staged_rows(staging: &mut Staging, rows: u32) {
    staging.begin(Xid(7), START, SEND_TIME);
    for row in 0..rows {
        staging
            .builder(Xid(7), Xid(7), RecordKind::Insert)
            .unwrap()
            .push_change(RecordKind::Insert, Oid(1), START, &row.to_be_bytes())
            .unwrap();
    }
}

#[test]
fn a_full_disk_during_a_staged_transaction_can_be_retried() {
    for after in 0..4 {
        let log = tempfile::tempdir().unwrap();
        let (fs, mut writer) = faulty(log.path());
        let mut staging = Staging::open(log.path(), 1 << 10, Arc::new(RealFs)).unwrap();
        staged_rows(&mut staging, 200);
        let staged = staging.finish(Xid(7)).unwrap();
        fs.fail(Operation::Write, after, Fault::NoSpace, true);
        let error = writer.append_staged(&staged, &nth(5).commit()).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(writer.written_lsn(), START);
        assert!(writer.open_transaction().is_none());
        fs.heal();
        writer.append_staged(&staged, &nth(5).commit()).unwrap();
        assert_eq!(read_all(log.path()).len(), 202);
    }
}

/// A disk can be full only when it comes to writing. What was to be written then may be lost although the next fsync
/// succeeds, so nothing is tried again.
#[test]
fn a_sync_that_finds_the_disk_full_is_not_repeated() {
    let log = tempfile::tempdir().unwrap();
    let (fs, mut writer) = faulty(log.path());
    append_all(&mut writer, &[nth(1)]);
    writer.sync().unwrap();
    // The new segment's sync, that of its folder, then the one of the segment that ends.
    fs.fail(Operation::Sync, 1, Fault::NoSpace, false);
    let error = writer.finish_segment().unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    let again = writer.finish_segment().unwrap_err();
    assert!(matches!(again, FormatError::Poisoned { .. }), "{again}");

    let mut staging = Staging::open(log.path(), 1 << 10, Arc::new(fs.clone())).unwrap();
    let store = PreparedStore::open(log.path(), Arc::new(fs.clone())).unwrap();
    staged_rows(&mut staging, 200);
    let mut staged = staging.finish(Xid(7)).unwrap();
    fs.fail(Operation::Sync, 0, Fault::NoSpace, false);
    let error = store.keep(&mut staged, &prepared()).unwrap_err();
    assert!(!error.is_retryable(), "{error}");
}

fn prepared() -> PreparedRecord {
    PreparedRecord::new(
        &Prepare {
            prepare_lsn: nth(2).at,
            end_lsn: nth(2).end(),
            prepare_time: SEND_TIME,
            xid: Xid(7),
            gid: b"gid",
        },
        true,
    )
}

/// Making room is all that can find the disk full, so that it alone is repeated.
#[test]
fn a_staged_record_has_its_room_once_that_was_made() {
    let log = tempfile::tempdir().unwrap();
    let (fs, _writer) = faulty(log.path());
    let mut staging = Staging::open(log.path(), 1 << 10, Arc::new(fs.clone())).unwrap();
    staged_rows(&mut staging, 100);
    fs.fail(Operation::Create, 0, Fault::NoSpace, true);
    let mut full = 0;
    for row in 0..100_u32 {
        if staging
            .make_room(Xid(7), Xid(7), RecordKind::Insert)
            .is_err()
        {
            full += 1;
            fs.heal();
            continue;
        }
        fs.fail(Operation::Create, 0, Fault::NoSpace, true);
        fs.fail(Operation::Write, 0, Fault::NoSpace, true);
        let block = staging.current(Xid(7)).unwrap();
        block
            .push_change(RecordKind::Insert, Oid(1), START, &row.to_be_bytes())
            .unwrap();
    }
    assert!(full > 0);
}

#[test]
fn a_full_disk_during_sealing_changes_nothing() {
    let log = tempfile::tempdir().unwrap();
    let (fs, mut writer) = faulty(log.path());
    append_all(&mut writer, &[nth(1), nth(2)]);
    writer.finish_segment().unwrap();
    let name = writer.take_finished()[0];
    let before = read_all(log.path());
    let options = SealOptions::default();
    for after in 0..3 {
        for fault in [Fault::NoSpace, Fault::Io, Fault::Short] {
            fs.fail(Operation::Write, after, fault, false);
            assert!(seal_segment(&fs, log.path(), name, &options).is_err());
            assert!(read_all(log.path()) == before);
        }
    }
    fs.heal();
    seal_segment(&fs, log.path(), name, &options)
        .unwrap()
        .unwrap();
    assert!(read_all(log.path()) == before);
}

/// Appends, rolls over, seals; returns the end of the last transaction that was durable.
fn workload(log: &Path, fs: &FaultyFs) -> Result<(), (Lsn, FormatError)> {
    let mut durable = Lsn::INVALID;
    run(log, fs, &mut durable).map_err(|error| (durable, error))
}

fn run(log: &Path, fs: &FaultyFs, durable: &mut Lsn) -> Result<(), FormatError> {
    let (mut writer, _) = open_with(log, SEGMENT, Arc::new(fs.clone()))?;
    let mut staging = Staging::open(log, 2 << 10, Arc::new(fs.clone()))?;
    for n in 1..=8 {
        let mut next = nth(n);
        next.rows = 120;
        if n == 5 {
            staged_rows_with(&mut staging)?;
            let staged = staging.finish(Xid(7))?;
            writer.append_staged(&staged, &next.commit())?;
        } else {
            let mut builder = filled(&[]);
            next.push_begin(&mut builder);
            next.push_rows(&mut builder, 60);
            let open = builder.open_transaction();
            writer.append(&mut builder)?;
            builder.start(open);
            next.push_rows(&mut builder, 60);
            next.push_commit(&mut builder);
            writer.append(&mut builder)?;
        }
        writer.progress(Lsn(next.end().0 + 8))?;
        if n % 2 == 0 {
            *durable = writer.sync()?;
        }
        for name in writer.take_finished() {
            seal_segment(fs, log, name, &SealOptions::default())?;
        }
    }
    Ok(())
}

fn staged_rows_with(staging: &mut Staging) -> Result<(), FormatError> {
    staging.begin(Xid(7), START, SEND_TIME);
    for row in 0..120_u32 {
        staging
            .builder(Xid(7), Xid(7), RecordKind::Insert)?
            .push_change(RecordKind::Insert, Oid(1), START, &row.to_be_bytes())?;
    }
    Ok(())
}

/// A log that is whole: every transaction complete, in order, none missing before the last.
fn assert_prefix(log: &Path, durable: Lsn) {
    let (mut writer, recovery) = open(log, SEGMENT);
    assert!(
        recovery.end_lsn >= durable,
        "{} < {durable}",
        recovery.end_lsn
    );
    let commits: Vec<u64> = read_all(log)
        .iter()
        .filter(|seen| seen.2 == RecordKind::Commit.id())
        .map(|seen| (seen.0.0 - START.0) / 1000)
        .collect();
    let count = commits.len() as u64;
    assert_eq!(commits, (1..=count).collect::<Vec<_>>());
    let events = read_all(log).iter().filter(|seen| seen.1.is_some()).count();
    assert_eq!(events, commits.len() * 120);
    // And it can be written to.
    append_all(&mut writer, &[transaction(START.0 + 100_000, 1)]);
    writer.sync().unwrap();
}

#[test]
fn a_crash_at_any_operation_leaves_a_whole_log() {
    let healthy = FaultyFs::default();
    let log = tempfile::tempdir().unwrap();
    workload(log.path(), &healthy).unwrap();
    for at in 0..healthy.operations() {
        let log = tempfile::tempdir().unwrap();
        let fs = FaultyFs::default();
        fs.crash_after(at);
        let (durable, _) = workload(log.path(), &fs).unwrap_err();
        assert!(fs.has_crashed());
        assert_prefix(log.path(), durable);
    }
}

#[test]
fn a_power_loss_at_any_operation_leaves_what_was_durable() {
    let healthy = FaultyFs::default();
    let log = tempfile::tempdir().unwrap();
    workload(log.path(), &healthy).unwrap();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    for at in (0..healthy.operations()).chain(0..healthy.operations()) {
        let log = tempfile::tempdir().unwrap();
        let fs = FaultyFs::default();
        fs.crash_after(at);
        let (durable, _) = workload(log.path(), &fs).unwrap_err();
        fs.lose_unsynced(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 63 == 0
        });
        assert_prefix(log.path(), durable);
    }
}

#[test]
fn a_crash_during_recovery_changes_nothing_for_the_next_one() {
    let healthy = FaultyFs::default();
    let log = tempfile::tempdir().unwrap();
    workload(log.path(), &healthy).unwrap();
    for at in (0..healthy.operations()).step_by(3) {
        let log = tempfile::tempdir().unwrap();
        let fs = FaultyFs::default();
        fs.crash_after(at);
        let (durable, _) = workload(log.path(), &fs).unwrap_err();
        for recovery_operations in 0..4 {
            let fs = FaultyFs::default();
            fs.crash_after(recovery_operations);
            drop(open_with(log.path(), SEGMENT, Arc::new(fs)));
        }
        assert_prefix(log.path(), durable);
    }
}
