//! What the writer does when all goes well.

use std::sync::Arc;

use pg_proto::{Lsn, Oid};
use storage_format::block::BlockBuilder;
use storage_format::catalog::ServerParameters;
use storage_format::fs::RealFs;
use storage_format::record::RecordKind;
use storage_format::watermark::WatermarkReader;
use storage_format::{FormatError, LogWriter, SealOptions, seal_segment};

use crate::support::{
    START, append_all, files, filled, identity, open, open_with, options, read_all,
    relation_message, transaction,
};

const SEGMENT: u64 = 64 << 10;

#[test]
fn a_new_log_begins_where_it_is_told() {
    let log = tempfile::tempdir().unwrap();
    let (writer, recovery) = open(log.path(), SEGMENT);
    assert!(recovery.created);
    assert_eq!(recovery.end_lsn, START);
    assert_eq!(recovery.writer_epoch, 1);
    assert_eq!(writer.durable_lsn(), START);
    assert_eq!(files(log.path(), "active").len(), 1);
    assert_eq!(files(log.path(), "tmp").len(), 0);
}

#[test]
fn what_was_appended_is_found_again() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let transactions: Vec<_> = (1..=5)
        .map(|n| transaction(START.0 + n * 1000, 10))
        .collect();
    append_all(&mut writer, &transactions);
    let end = transactions[4].end();
    assert_eq!(writer.written_lsn(), end);
    assert_eq!(writer.durable_lsn(), START);
    assert_eq!(writer.sync().unwrap(), end);
    writer.progress(Lsn(end.0 + 500)).unwrap();
    drop(writer);

    let (writer, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, Lsn(end.0 + 500));
    assert_eq!(recovery.last_commit_lsn, transactions[4].at);
    assert_eq!(recovery.writer_epoch, 2);
    assert_eq!(recovery.cut, None);
    assert!(!recovery.created);
    assert_eq!(writer.durable_lsn(), recovery.end_lsn);
}

#[test]
fn the_watermark_shows_whole_transactions_only() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let watermark = WatermarkReader::open(log.path()).unwrap();
    let first = transaction(START.0 + 100, 1);
    let second = transaction(START.0 + 1000, 4);
    let mut builder = filled(&[first]);
    second.push_begin(&mut builder);
    second.push_rows(&mut builder, 2);
    let open = builder.open_transaction();
    writer.append(&mut builder).unwrap();
    assert_eq!(watermark.read().unwrap().written.lsn, first.end());
    let offset = watermark.read().unwrap().written.offset;
    assert_eq!(writer.sync().unwrap(), first.end());

    builder.start(open);
    second.push_rows(&mut builder, 2);
    second.push_commit(&mut builder);
    writer.append(&mut builder).unwrap();
    let state = watermark.read().unwrap();
    assert_eq!(state.written.lsn, second.end());
    assert!(state.written.offset > offset);
    assert_eq!(state.durable.offset, offset);
}

#[test]
fn segments_roll_over_between_transactions_and_large_ones_outgrow_them() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let large = transaction(START.0 + 5000, 0);
    append_all(&mut writer, &[transaction(START.0 + 100, 100)]);
    let mut builder = BlockBuilder::new();
    large.push_begin(&mut builder);
    for _ in 0..30 {
        large.push_rows(&mut builder, 100);
        let open = builder.open_transaction();
        writer.append(&mut builder).unwrap();
        builder.start(open);
    }
    large.push_commit(&mut builder);
    writer.append(&mut builder).unwrap();
    assert_eq!(files(log.path(), "active").len(), 1);
    append_all(&mut writer, &[transaction(START.0 + 9000, 1)]);
    let active = files(log.path(), "active");
    assert_eq!(active.len(), 2);
    assert!(active[0].metadata().unwrap().len() > SEGMENT);
    assert_eq!(writer.take_finished().len(), 1);
    let name = active[1].file_name().unwrap().to_str().unwrap();
    assert_eq!(
        name,
        format!("0000000000000002-{:016X}.active", large.end().0)
    );
    drop(writer);
    let (_, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.unsealed.len(), 1);
    assert_eq!(recovery.last_commit_lsn, Lsn(START.0 + 9000));
}

#[test]
fn the_catalog_follows_whole_transactions_and_survives() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let mut parameters = ServerParameters::default();
    parameters.set("server_version", "15.4");
    let mut payload = Vec::new();
    parameters.encode(&mut payload);
    let mut builder = BlockBuilder::new();
    builder
        .push_aux(RecordKind::ServerParameters, &payload)
        .unwrap();
    let first = transaction(START.0 + 100, 1);
    first.push_begin(&mut builder);
    let message = relation_message(16384, "id");
    builder
        .push_change(RecordKind::Relation, Oid(16384), Lsn(0), &message)
        .unwrap();
    let open_tx = builder.open_transaction();
    writer.append(&mut builder).unwrap();
    assert!(writer.catalog().relation(Oid(16384)).is_none());
    assert_eq!(
        writer.catalog().parameters().get("server_version"),
        Some("15.4")
    );
    builder.start(open_tx);
    first.push_commit(&mut builder);
    writer.append(&mut builder).unwrap();
    assert!(writer.catalog().relation(Oid(16384)).is_some());
    writer.finish_segment().unwrap();
    let catalog = Arc::clone(writer.catalog());
    drop(writer);
    let (_, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.catalog, catalog);
    assert_eq!(recovery.last_commit_lsn, first.at);
}

#[test]
fn an_abandoned_transaction_leaves_nothing_behind() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let first = transaction(START.0 + 100, 3);
    append_all(&mut writer, &[first]);
    let lost = transaction(START.0 + 1000, 50);
    let mut builder = BlockBuilder::new();
    lost.push_begin(&mut builder);
    for _ in 0..3 {
        lost.push_rows(&mut builder, 50);
        let open = builder.open_transaction();
        writer.append(&mut builder).unwrap();
        builder.start(open);
    }
    writer.abandon_open_transaction().unwrap();
    let again = transaction(START.0 + 1000, 2);
    append_all(&mut writer, &[again]);
    assert_eq!(writer.written_lsn(), again.end());
    drop(writer);
    // Its remains follow the last block and are not taken for a continuation.
    let (_, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, again.end());
}

#[test]
fn what_does_not_continue_the_log_is_refused() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    append_all(&mut writer, &[transaction(START.0 + 1000, 1)]);
    let before = writer.written_lsn();
    let error = writer
        .append(&mut filled(&[transaction(START.0 + 500, 1)]))
        .unwrap_err();
    assert!(matches!(error, FormatError::Order { .. }), "{error}");
    let mut builder = BlockBuilder::new();
    transaction(START.0 + 5000, 1).push_begin(&mut builder);
    let open = builder.open_transaction();
    builder.start(open);
    transaction(START.0 + 5000, 1).push_rows(&mut builder, 1);
    let error = writer.append(&mut builder).unwrap_err();
    assert!(matches!(error, FormatError::State { .. }), "{error}");
    let mut builder = BlockBuilder::new();
    transaction(START.0 + 5000, 1).push_begin(&mut builder);
    builder
        .push_change(RecordKind::Relation, Oid(1), Lsn(0), b"R\0")
        .unwrap();
    assert!(writer.append(&mut builder).is_err());
    assert_eq!(writer.written_lsn(), before);
    append_all(&mut writer, &[transaction(START.0 + 5000, 1)]);
}

#[test]
fn only_one_writer_at_a_time() {
    let log = tempfile::tempdir().unwrap();
    let (writer, _) = open(log.path(), SEGMENT);
    let second = open_with(log.path(), SEGMENT, Arc::new(RealFs));
    assert!(matches!(second, Err(FormatError::Locked { .. })));
    drop(writer);
    open(log.path(), SEGMENT);
}

#[test]
fn another_source_is_refused() {
    let log = tempfile::tempdir().unwrap();
    drop(open(log.path(), SEGMENT));
    let other = storage_format::Identity {
        database: "other".to_owned(),
        ..identity()
    };
    let refused = LogWriter::open(log.path(), options(SEGMENT), other, Arc::new(RealFs));
    assert!(matches!(
        refused,
        Err(FormatError::Identity {
            field: "database",
            ..
        })
    ));
}

#[test]
fn a_large_catalog_is_stored_in_several_blocks() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let first = transaction(START.0 + 100, 0);
    let mut builder = BlockBuilder::new();
    first.push_begin(&mut builder);
    for oid in 1..=4000 {
        let message = relation_message(oid, &format!("column_{oid:0>200}"));
        builder
            .push_change(RecordKind::Relation, Oid(oid), Lsn(0), &message)
            .unwrap();
    }
    first.push_commit(&mut builder);
    writer.append(&mut builder).unwrap();
    writer.finish_segment().unwrap();
    let catalog = Arc::clone(writer.catalog());
    append_all(&mut writer, &[transaction(START.0 + 1000, 1)]);
    writer.finish_segment().unwrap();
    let names = writer.take_finished();
    drop(writer);
    let bytes = std::fs::read(&files(log.path(), "active")[1]).unwrap();
    let blocks = bytes.windows(4).filter(|bytes| *bytes == b"DBLK").count();
    assert!(blocks > 4);
    let (_, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.catalog, catalog);
    assert_eq!(read_all(log.path()).len(), 4000 + 2 + 3);
    let options = SealOptions::default();
    for name in names {
        seal_segment(&RealFs, log.path(), name, &options).unwrap();
    }
    assert_eq!(read_all(log.path()).len(), 4000 + 2 + 3);
    std::fs::remove_file(&files(log.path(), "active")[0]).unwrap();
    std::fs::remove_file(log.path().join("watermark")).unwrap();
    let (_, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.catalog, catalog);
}
