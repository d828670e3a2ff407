//! Sealing changes the file and nothing that is read from it.

use pg_proto::{Lsn, Oid, PgTimestamp};
use proptest::prelude::*;
use storage_format::block::BlockBuilder;
use storage_format::fs::RealFs;
use storage_format::index::rebuild;
use storage_format::log::{Log, ReadOptions};
use storage_format::record::RecordKind;
use storage_format::segment::SegmentExtension;
use storage_format::{
    FormatError, LogWriter, SealOptions, SegmentState, list_segments, seal_segment,
};

use crate::faulty_fs::FaultyFs;
use crate::support::{
    SEND_TIME, START, append_all, files, lone_message, open, read_all, relation_message,
    transaction,
};

const SEGMENT: u64 = 64 << 10;

const SMALL_BLOCKS: SealOptions = SealOptions {
    zstd_level: 3,
    block_bytes: 4 << 10,
};

fn seal_all(writer: &mut LogWriter, log: &std::path::Path, options: &SealOptions) {
    for name in writer.take_finished() {
        let sealed = seal_segment(&RealFs, log, name, options).unwrap().unwrap();
        assert_eq!(sealed.name, name);
        assert!(sealed.sealed_bytes < sealed.active_bytes);
        assert_eq!(seal_segment(&RealFs, log, name, options).unwrap(), None);
        let index = std::fs::read(name.path(log, SegmentExtension::Index)).unwrap();
        assert_eq!(rebuild(log, name).unwrap(), index);
    }
}

/// A bit of everything: relations, truncates, lone messages, progress, a transaction over several blocks.
fn write_mixture(writer: &mut LogWriter) {
    let mut builder = BlockBuilder::new();
    let first = transaction(START.0 + 100, 0);
    first.push_begin(&mut builder);
    let message = relation_message(16384, "id");
    builder
        .push_change(RecordKind::Relation, Oid(16384), Lsn(0), &message)
        .unwrap();
    builder
        .push_truncate([Oid(16384), Oid(99)], first.at, b"T")
        .unwrap();
    first.push_commit(&mut builder);
    let lsn = Lsn(START.0 + 300);
    builder
        .push_lone_message(lsn, lsn, PgTimestamp(5), &lone_message(lsn))
        .unwrap();
    writer.append(&mut builder).unwrap();
    writer.progress(Lsn(START.0 + 400)).unwrap();
    let large = transaction(START.0 + 1000, 0);
    builder.start(None);
    large.push_begin(&mut builder);
    for _ in 0..6 {
        large.push_rows(&mut builder, 40);
        let open = builder.open_transaction();
        writer.append(&mut builder).unwrap();
        builder.start(open);
    }
    large.push_commit(&mut builder);
    writer.append(&mut builder).unwrap();
    for n in 2..10 {
        append_all(writer, &[transaction(START.0 + n * 1000, 7)]);
    }
    writer.progress(Lsn(START.0 + 20_000)).unwrap();
}

#[test]
fn a_sealed_segment_reads_as_before() {
    for options in [SealOptions::default(), SMALL_BLOCKS] {
        let log = tempfile::tempdir().unwrap();
        let (mut writer, _) = open(log.path(), SEGMENT);
        write_mixture(&mut writer);
        writer.finish_segment().unwrap();
        append_all(&mut writer, &[transaction(START.0 + 30_000, 3)]);
        let before = read_all(log.path());
        seal_all(&mut writer, log.path(), &options);
        assert_eq!(files(log.path(), "seg").len(), 1);
        assert_eq!(files(log.path(), "idx").len(), 1);
        assert_eq!(files(log.path(), "active").len(), 1);
        assert_eq!(files(log.path(), "tmp").len(), 0);
        assert!(read_all(log.path()) == before);
        drop(writer);
        let (_, recovery) = open(log.path(), SEGMENT);
        assert_eq!(recovery.end_lsn, Lsn(START.0 + 30_048));
        assert!(recovery.catalog.relation(Oid(16384)).is_some());
        let segments = list_segments(&RealFs, log.path()).unwrap();
        assert_eq!(segments[0].state, SegmentState::Sealed);
    }
}

#[test]
fn every_position_can_be_found_in_a_sealed_segment() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    write_mixture(&mut writer);
    writer.finish_segment().unwrap();
    seal_all(&mut writer, log.path(), &SMALL_BLOCKS);
    writer.sync().unwrap();
    let reader = Log::open(log.path(), ReadOptions::default()).unwrap();
    for n in 2..10 {
        let at = Lsn(START.0 + n * 1000);
        let mut cursor = reader.cursor_at(at).unwrap();
        let block = cursor.next().unwrap().unwrap();
        assert!(block.header().last_commit_lsn >= at);
        assert!(block.header().first_commit_lsn <= at);
    }
    let mut cursor = reader.cursor_at(Lsn(START.0 + 15_000)).unwrap();
    // The last progress is part of the last block now.
    let last = cursor.next().unwrap().unwrap();
    assert!(last.header().last_commit_lsn < cursor.start());
    assert_eq!(cursor.position(), Lsn(START.0 + 20_000));
    assert!(cursor.next().unwrap().is_none());
}

#[test]
fn a_log_of_sealed_segments_only_goes_on() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    write_mixture(&mut writer);
    writer.finish_segment().unwrap();
    seal_all(&mut writer, log.path(), &SMALL_BLOCKS);
    let catalog = std::sync::Arc::clone(writer.catalog());
    let end = writer.written_lsn();
    drop(writer);
    std::fs::remove_file(&files(log.path(), "active")[0]).unwrap();
    std::fs::remove_file(log.path().join("watermark")).unwrap();
    let (writer, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, end);
    assert_eq!(recovery.catalog, catalog);
    assert_eq!(recovery.last_commit_lsn, Lsn(START.0 + 9000));
    assert_eq!(writer.active_segment().sequence, 2);
}

#[test]
fn an_unfinished_or_damaged_segment_is_not_sealed() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    write_mixture(&mut writer);
    let name = writer.active_segment();
    assert!(seal_segment(&RealFs, log.path(), name, &SMALL_BLOCKS).is_err());
    writer.finish_segment().unwrap();
    let path = &files(log.path(), "active")[0];
    let mut bytes = std::fs::read(path).unwrap();
    bytes[2000] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    let error = seal_segment(&RealFs, log.path(), name, &SMALL_BLOCKS).unwrap_err();
    assert!(matches!(error, FormatError::Damaged { .. }), "{error}");
    assert!(path.exists());
    assert_eq!(
        files(log.path(), "seg").len() + files(log.path(), "tmp").len(),
        0
    );
}

#[test]
fn a_segment_without_changes_keeps_its_progress() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let end = Lsn(START.0 + 777);
    writer.progress(Lsn(START.0 + 500)).unwrap();
    writer.progress(end).unwrap();
    writer.finish_segment().unwrap();
    let name = writer.take_finished()[0];
    let sealed = seal_segment(&RealFs, log.path(), name, &SMALL_BLOCKS)
        .unwrap()
        .unwrap();
    assert_eq!(sealed.footer.end_lsn, end);
    assert_eq!(sealed.footer.block_count, 2);
    drop(writer);
    assert_eq!(open(log.path(), SEGMENT).1.end_lsn, end);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_log_reads_the_same_after_sealing(
        shapes in prop::collection::vec((0_usize..60, 0_usize..200, any::<bool>()), 1..40),
        block_bytes in 256_usize..20_000,
    ) {
        let log = tempfile::tempdir().unwrap();
        let (mut writer, _) = open(log.path(), SEGMENT);
        let mut builder = BlockBuilder::new();
        for (n, (rows, row_len, append)) in (1_u64..).zip(shapes) {
            let mut transaction = transaction(START.0 + n * 1000, rows);
            transaction.row_len = row_len;
            transaction.push_begin(&mut builder);
            transaction.push_rows(&mut builder, rows);
            if append {
                // Splits a block that has whole transactions and the beginning of this one.
                let open = builder.open_transaction();
                writer.append(&mut builder).unwrap();
                builder.start(open);
            }
            transaction.push_commit(&mut builder);
        }
        writer.append(&mut builder).unwrap();
        writer.finish_segment().unwrap();
        let before = read_all(log.path());
        let options = SealOptions { zstd_level: 1, block_bytes };
        for name in writer.take_finished() {
            seal_segment(&RealFs, log.path(), name, &options).unwrap();
        }
        prop_assert!(read_all(log.path()) == before);
    }
}

#[test]
fn send_times_are_kept() {
    // The frames are what subscribers get: byte for byte, heads included.
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    append_all(&mut writer, &[transaction(START.0 + 1000, 1)]);
    writer.finish_segment().unwrap();
    let frames = |log: &std::path::Path| {
        let log = Log::open(log, ReadOptions::default()).unwrap();
        let mut cursor = log.cursor_at(START).unwrap();
        cursor.next().unwrap().unwrap().frames().to_vec()
    };
    let before = frames(log.path());
    assert_eq!(before[0], b'd');
    assert_eq!(before[22..30], SEND_TIME.0.to_be_bytes());
    let name = writer.take_finished()[0];
    seal_segment(&RealFs, log.path(), name, &SealOptions::default()).unwrap();
    assert_eq!(frames(log.path()), before);
}

/// Between two changes of the timeline a segment can be empty; nobody needs it, and it may go before a reader has crossed it.
#[test]
fn a_reader_crosses_an_empty_segment_that_is_gone() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), 64 << 10);
    append_all(&mut writer, &[transaction(START.0 + 1000, 5)]);
    writer.sync().unwrap();
    let reader = Log::open(log.path(), ReadOptions::default()).unwrap();
    let mut cursor = reader.cursor_at(START).unwrap();
    assert!(cursor.next().unwrap().is_some());
    writer.finish_segment().unwrap();
    let empty = writer.active_segment();
    writer.finish_segment().unwrap();
    append_all(&mut writer, &[transaction(START.0 + 2000, 5)]);
    writer.sync().unwrap();
    storage_format::delete_segment(&FaultyFs::default(), log.path(), empty).unwrap();
    let block = cursor.next().unwrap().unwrap();
    assert_eq!(block.header().first_commit_lsn, Lsn(START.0 + 2000));
}
