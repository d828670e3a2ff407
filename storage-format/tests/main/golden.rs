//! Files of format version 1, kept as they were written: every later build reads them, and this build writes them
//! byte for byte.
//!
//! `DECANT_APPROVE_GOLDEN=1 cargo test -p storage-format golden` writes them anew. That is a change of the format:
//! it needs a new version and an entry in the history in `FORMAT.md`, unless no release has the old one. A new
//! release of zstd may compress differently; then only the sealed file and its index change, and the list of
//! records stays.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::block::BlockBuilder;
use storage_format::catalog::{
    Publication, PublicationActions, PublicationTable, RowFilterText, ServerParameters,
    encode_publications,
};
use storage_format::fs::RealFs;
use storage_format::record::RecordKind;
use storage_format::segment::NAMES_FILE;
use storage_format::staging::Rollback;
use storage_format::{LogWriter, SealOptions, Staging, seal_segment};

use tempfile::TempDir;

use crate::support::{
    SEND_TIME, START, append_all, lone_message, open, read_all, relation_message, transaction,
};

const SEGMENT: u64 = 64 << 10;
const RECORDS: &str = "records.txt";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

fn catalog_records() -> [(RecordKind, Vec<u8>); 2] {
    let mut parameters = ServerParameters::default();
    parameters.set("server_version", "15.18");
    parameters.set("server_encoding", "UTF8");
    let publication = Publication {
        oid: Oid(16500),
        name: "shop".to_owned(),
        schemas: vec!["public".to_owned()],
        actions: PublicationActions::ALL,
        tables: vec![PublicationTable {
            relation: Oid(16384),
            schema: "public".to_owned(),
            name: "t".to_owned(),
            columns: Some(vec!["id".to_owned()]),
            row_filter: Some(RowFilterText {
                sql: "(id > 0)".to_owned(),
                tree: String::new(),
            }),
            ..PublicationTable::default()
        }],
        ..Publication::default()
    };
    let mut records = [
        (RecordKind::ServerParameters, Vec::new()),
        (RecordKind::Publications, Vec::new()),
    ];
    parameters.encode(&mut records[0].1);
    encode_publications(&[publication], &mut records[1].1);
    records
}

/// A transaction with one record of every kind, and one over three blocks.
fn write_records(writer: &mut LogWriter) {
    let mut builder = BlockBuilder::new();
    let [parameters, publications] = catalog_records();
    builder.push_aux(parameters.0, &parameters.1).unwrap();
    let first = transaction(START.0 + 100, 2);
    first.push_begin(&mut builder);
    builder
        .push_other(RecordKind::Origin, first.at, b"O-origin")
        .unwrap();
    let relation = relation_message(16384, "id");
    builder
        .push_change(RecordKind::Relation, Oid(16384), Lsn(0), &relation)
        .unwrap();
    builder
        .push_other(RecordKind::Type, Lsn(0), b"Y\0\0\x40\x01public\0mood\0")
        .unwrap();
    builder.push_aux(publications.0, &publications.1).unwrap();
    first.push_rows(&mut builder, 2);
    for kind in [RecordKind::Update, RecordKind::Delete] {
        builder
            .push_change(kind, Oid(16385), Lsn(first.at.0 + 8), b"row")
            .unwrap();
    }
    builder
        .push_truncate([Oid(16384), Oid(16386)], first.at, b"T-truncate")
        .unwrap();
    builder
        .push_other(RecordKind::Message, first.at, b"M-message")
        .unwrap();
    first.push_commit(&mut builder);
    let alone = Lsn(START.0 + 500);
    builder
        .push_lone_message(alone, alone, PgTimestamp(7), &lone_message(alone))
        .unwrap();
    writer.append(&mut builder).unwrap();
    let large = transaction(START.0 + 1000, 0);
    builder.start(None);
    large.push_begin(&mut builder);
    for _ in 0..2 {
        large.push_rows(&mut builder, 5);
        let open = builder.open_transaction();
        writer.append(&mut builder).unwrap();
        builder.start(open);
    }
    large.push_commit(&mut builder);
    writer.append(&mut builder).unwrap();
}

fn write_staged(writer: &mut LogWriter, log: &Path) {
    let fs = std::sync::Arc::new(RealFs);
    let mut staging = Staging::open(log, 1 << 20, fs).unwrap();
    staging.begin(Xid(9), Lsn(START.0 + 2000), SEND_TIME);
    for (subxid, row) in [(9, b"kept"), (10, b"lost"), (9, b"more")] {
        staging
            .builder(Xid(9), Xid(subxid), RecordKind::Insert)
            .unwrap()
            .push_change(RecordKind::Insert, Oid(16384), START, row)
            .unwrap();
    }
    staging
        .abort_subtransaction(Xid(9), Xid(10), Rollback::default())
        .unwrap();
    let staged = staging.finish(Xid(9)).unwrap();
    let commit = transaction(START.0 + 3000, 0).commit();
    writer.append_staged(&staged, &commit).unwrap();
}

/// A sealed segment, its index, an active segment with several blocks, the watermark, and the segments' names.
fn write_log(log: &Path) {
    let (mut writer, _) = open(log, SEGMENT);
    write_records(&mut writer);
    writer.progress(Lsn(START.0 + 1500)).unwrap();
    writer.finish_segment().unwrap();
    let name = writer.take_finished()[0];
    let options = SealOptions {
        zstd_level: 3,
        block_bytes: 1 << 10,
    };
    seal_segment(&RealFs, log, name, &options).unwrap();
    append_all(&mut writer, &[transaction(START.0 + 1700, 1)]);
    writer.sync().unwrap();
    write_staged(&mut writer, log);
    writer.progress(Lsn(START.0 + 4000)).unwrap();
}

/// One line per record.
fn describe(log: &Path) -> String {
    let mut text = String::new();
    for (commit_lsn, ordinal, kind, relation, payload) in read_all(log) {
        let ordinal = ordinal.map_or("-".to_owned(), |ordinal| ordinal.to_string());
        let relation = relation.map_or("-".to_owned(), |relation| relation.to_string());
        write!(text, "{commit_lsn} {ordinal} {kind} {relation} ").unwrap();
        for byte in payload {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

/// Relative paths of the files, and their content without preallocated zeros.
fn content(log: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let segments = std::fs::read_dir(log.join("segments")).unwrap();
    let mut paths: Vec<PathBuf> = segments.map(|entry| entry.unwrap().path()).collect();
    paths.extend(["watermark", NAMES_FILE].map(|name| log.join(name)));
    paths.sort();
    let trimmed = |path: PathBuf| {
        let mut bytes = std::fs::read(&path).unwrap();
        if path
            .extension()
            .is_some_and(|extension| extension == "active")
        {
            let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
            bytes.truncate(end + 1);
        }
        (path.strip_prefix(log).unwrap().to_owned(), bytes)
    };
    paths.into_iter().map(trimmed).collect()
}

#[test]
fn golden_files_are_written_byte_for_byte() {
    let log = tempfile::tempdir().unwrap();
    write_log(log.path());
    let written = content(log.path());
    if std::env::var_os("DECANT_APPROVE_GOLDEN").is_some() {
        std::fs::create_dir_all(golden().join("segments")).unwrap();
        for (path, bytes) in &written {
            std::fs::write(golden().join(path), bytes).unwrap();
        }
        std::fs::write(golden().join(RECORDS), describe(log.path())).unwrap();
    }
    let kept = content(&golden());
    let names = |files: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
        files.iter().map(|(path, _)| path.clone()).collect()
    };
    assert_eq!(names(&written), names(&kept));
    for ((path, written), (_, kept)) in written.iter().zip(&kept) {
        assert!(written == kept, "{} differs", path.display());
    }
}

/// A segment with a gap between two transactions, raw and sealed.
#[test]
fn a_gap_is_written_byte_for_byte() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    append_all(&mut writer, &[transaction(START.0 + 100, 1)]);
    writer.sync().unwrap();
    writer.gap(Lsn(START.0 + 5000)).unwrap();
    append_all(&mut writer, &[transaction(START.0 + 6000, 1)]);
    writer.finish_segment().unwrap();
    let name = writer.take_finished()[0];
    let mut written = content(log.path());
    seal_segment(&RealFs, log.path(), name, &SealOptions::default()).unwrap();
    written.extend(content(log.path()));
    written.retain(|(path, _)| path.to_string_lossy().contains(&name.to_string()));
    let kept = golden().join("gap");
    for (path, bytes) in &written {
        let path = kept.join(path.file_name().unwrap());
        if std::env::var_os("DECANT_APPROVE_GOLDEN").is_some() {
            std::fs::create_dir_all(&kept).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        assert!(
            std::fs::read(&path).unwrap() == *bytes,
            "{}",
            path.display()
        );
    }
    assert_eq!(written.len(), 3, "raw, sealed, index");
}

/// The golden files as a log.
fn golden_log() -> TempDir {
    let log = tempfile::tempdir().unwrap();
    std::fs::create_dir(log.path().join("segments")).unwrap();
    for (path, mut bytes) in content(&golden()) {
        if path
            .extension()
            .is_some_and(|extension| extension == "active")
        {
            bytes.resize(64 << 10, 0);
        }
        std::fs::write(log.path().join(path), bytes).unwrap();
    }
    log
}

/// The sealed segment as builds wrote it that did not know columns.
#[test]
fn bodies_that_are_no_columns_are_read() {
    let log = golden_log();
    for file in std::fs::read_dir(golden().join("zstd")).unwrap() {
        let file = file.unwrap();
        let newer = log.path().join("segments").join(file.file_name());
        assert_ne!(
            std::fs::read(&newer).unwrap(),
            std::fs::read(file.path()).unwrap()
        );
        std::fs::copy(file.path(), newer).unwrap();
    }
    let expected = std::fs::read_to_string(golden().join(RECORDS)).unwrap();
    assert_eq!(describe(log.path()), expected);
}

#[test]
fn golden_files_are_read() {
    let log = golden_log();
    let expected = std::fs::read_to_string(golden().join(RECORDS)).unwrap();
    assert_eq!(describe(log.path()), expected);
    let (writer, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, Lsn(START.0 + 4000));
    assert_eq!(recovery.last_commit_lsn, Lsn(START.0 + 3000));
    assert_eq!(recovery.cut, None);
    assert_eq!(recovery.writer_epoch, 2);
    let catalog = writer.catalog();
    assert_eq!(catalog.parameters().get("server_version"), Some("15.18"));
    assert_eq!(catalog.publications()[0].name, "shop");
    assert_eq!(catalog.relation(Oid(16384)).unwrap().columns[0].name, "id");
    assert_eq!(catalog.type_name(Oid(16385)).unwrap().name, "mood");
}
