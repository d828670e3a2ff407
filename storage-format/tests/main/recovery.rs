//! What a writer makes of files that were not left as it would have left them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_proto::Lsn;
use storage_format::block::{BLOCK_HEADER_LEN, BlockBuilder};
use storage_format::fs::RealFs;
use storage_format::watermark::WatermarkReader;
use storage_format::write::CutReason;
use storage_format::{FormatError, SealOptions, seal_segment};

use crate::faulty_fs::FaultyFs;
use crate::support::{START, append_all, files, filled, open, open_with, read_all, transaction};

const SEGMENT: u64 = 64 << 10;

fn try_open(log: &Path) -> Result<Lsn, FormatError> {
    open_with(log, SEGMENT, Arc::new(FaultyFs::default())).map(|(_, recovery)| recovery.end_lsn)
}

/// A log of three transactions, the last `unsynced` of them not durable; its file, and the end of each.
fn small_log(log: &Path, unsynced: usize) -> (PathBuf, Vec<u64>) {
    let (mut writer, _) = open(log, SEGMENT);
    let watermark = WatermarkReader::open(log).unwrap();
    let mut ends = vec![watermark.read().unwrap().written.offset];
    for n in 1..=3 {
        append_all(&mut writer, &[transaction(START.0 + n as u64 * 1000, 3)]);
        ends.push(watermark.read().unwrap().written.offset);
        if n + unsynced == 3 {
            writer.sync().unwrap();
        }
    }
    (files(log, "active").remove(0), ends)
}

/// Puts a segment and its watermark in the place of what is there.
struct Template {
    log: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    watermark: Vec<u8>,
    ends: Vec<u64>,
}

impl Template {
    fn new(unsynced: usize) -> Self {
        let log = tempfile::tempdir().unwrap();
        let (path, ends) = small_log(log.path(), unsynced);
        Self {
            bytes: std::fs::read(&path).unwrap(),
            watermark: std::fs::read(log.path().join("watermark")).unwrap(),
            log,
            path,
            ends,
        }
    }

    /// The log with the segment's bytes changed.
    fn restore(&self, change: impl FnOnce(&mut Vec<u8>)) -> &Path {
        let mut bytes = self.bytes.clone();
        change(&mut bytes);
        std::fs::write(&self.path, bytes).unwrap();
        std::fs::write(self.log.path().join("watermark"), &self.watermark).unwrap();
        self.log.path()
    }
}

/// Where the log ends if its first `count` transactions are left.
fn end_of(count: usize) -> Lsn {
    match count {
        0 => START,
        count => transaction(START.0 + count as u64 * 1000, 0).end(),
    }
}

fn with_bytes(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn offset(at: u64) -> usize {
    usize::try_from(at).unwrap()
}

#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let template = Template::new(1);
    for at in offset(template.ends[2])..offset(template.ends[3]) {
        // What was written up to here; the preallocated zeros behind it.
        let log = template.restore(|bytes| bytes[at..].fill(0));
        if template.bytes[at..].iter().all(|&byte| byte == 0) {
            break; // what is missing of the block is zeros, too
        }
        let (mut writer, recovery) = open(log, SEGMENT);
        assert_eq!(recovery.end_lsn, end_of(2), "torn at {at}");
        let blank = at == offset(template.ends[2]);
        assert_eq!(recovery.cut.is_some(), !blank, "torn at {at}");
        append_all(&mut writer, &[transaction(START.0 + 7000, 1)]);
        drop(writer);
        let (_, recovery) = open(log, SEGMENT);
        assert_eq!(recovery.cut, None);
        assert_eq!(recovery.end_lsn, Lsn(START.0 + 7048));
    }
}

#[test]
fn any_changed_byte_of_what_is_not_durable_is_cut() {
    let template = Template::new(2);
    let ends = &template.ends;
    for at in offset(ends[1])..offset(ends[3]) {
        let log = template.restore(|bytes| bytes[at] ^= 0x20);
        let left = if at < offset(ends[2]) { 1 } else { 2 };
        assert_eq!(try_open(log).unwrap(), end_of(left), "byte {at}");
    }
}

#[test]
fn any_changed_byte_of_what_is_durable_is_an_error() {
    let template = Template::new(0);
    for at in 0..offset(template.ends[3]) {
        let log = template.restore(|bytes| bytes[at] ^= 0x20);
        let bad = std::fs::read(&template.path).unwrap();
        let error = try_open(log).unwrap_err();
        let named = match &error {
            FormatError::Damaged { path: named, .. } | FormatError::Version { path: named, .. } => {
                named
            }
            other => panic!("byte {at}: {other}"),
        };
        assert_eq!(named, &template.path);
        let after = std::fs::read(&template.path).unwrap();
        assert!(after == bad, "nothing is changed");
    }
}

#[test]
fn without_a_watermark_later_blocks_prove_damage() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    for n in 1..=3 {
        append_all(&mut writer, &[transaction(START.0 + n * 1000, 3)]);
        writer.sync().unwrap();
    }
    drop(writer);
    let end = WatermarkReader::open(log.path()).unwrap().read().unwrap();
    let path = files(log.path(), "active").remove(0);
    let second = std::fs::read(&path).unwrap();
    let blocks: Vec<usize> = second
        .windows(4)
        .enumerate()
        .filter(|(_, bytes)| *bytes == b"DBLK")
        .map(|(at, _)| at)
        .collect();
    std::fs::remove_file(log.path().join("watermark")).unwrap();
    // The header and the body of the first transaction's block; the next block was written after its sync.
    for at in [blocks[1] + 8, blocks[1] + BLOCK_HEADER_LEN + 40] {
        with_bytes(&path, |bytes| bytes[at] ^= 1);
        let error = try_open(log.path()).unwrap_err();
        let FormatError::Damaged { offset: found, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(found, blocks[1] as u64);
        with_bytes(&path, |bytes| bytes[at] ^= 1);
    }
    // Of the last block nobody knows that it was durable.
    with_bytes(&path, |bytes| bytes[blocks[3] + 8] ^= 1);
    assert_eq!(try_open(log.path()).unwrap(), end_of(2));
    assert!(end.durable.offset > blocks[3] as u64);
}

#[test]
fn an_incomplete_transaction_is_cut() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    append_all(&mut writer, &[transaction(START.0 + 1000, 3)]);
    let large = transaction(START.0 + 2000, 0);
    let mut builder = BlockBuilder::new();
    large.push_begin(&mut builder);
    for _ in 0..3 {
        large.push_rows(&mut builder, 20);
        let open = builder.open_transaction();
        writer.append(&mut builder).unwrap();
        builder.start(open);
    }
    drop(writer);
    let (writer, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, end_of(1));
    let cut = recovery.cut.unwrap();
    assert_eq!(cut.reason, CutReason::OpenTransaction);
    drop(writer);
    assert_eq!(open(log.path(), SEGMENT).1.cut, None);
}

#[test]
fn a_log_that_lost_its_end_is_an_error() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    append_all(&mut writer, &[transaction(START.0 + 1000, 3)]);
    writer.finish_segment().unwrap();
    append_all(&mut writer, &[transaction(START.0 + 2000, 3)]);
    writer.sync().unwrap();
    drop(writer);
    let active = files(log.path(), "active");
    std::fs::rename(&active[1], log.path().join("aside")).unwrap();
    let error = try_open(log.path()).unwrap_err();
    assert!(matches!(error, FormatError::Lost { .. }), "{error}");
    std::fs::remove_file(&active[0]).unwrap();
    let error = try_open(log.path()).unwrap_err();
    assert!(matches!(error, FormatError::Lost { .. }), "{error}");
}

#[test]
fn a_missing_or_damaged_segment_in_the_middle_is_an_error() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    for n in 1..=3 {
        append_all(&mut writer, &[transaction(START.0 + n * 1000, 3)]);
        writer.finish_segment().unwrap();
    }
    let names = writer.take_finished();
    drop(writer);
    seal_segment(&RealFs, log.path(), names[1], &SealOptions::default()).unwrap();
    let sealed = files(log.path(), "seg").remove(0);
    let bytes = std::fs::read(&sealed).unwrap();
    for at in [100, bytes.len() - 3, bytes.len() - 12, bytes.len() - 60] {
        with_bytes(&sealed, |bytes| bytes[at] ^= 1);
        let error = try_open(log.path()).unwrap_err();
        assert!(
            matches!(error, FormatError::Damaged { .. }),
            "{at}: {error}"
        );
        with_bytes(&sealed, |bytes| bytes[at] ^= 1);
    }
    for length in 0..bytes.len() {
        std::fs::write(&sealed, &bytes[..length]).unwrap();
        assert!(try_open(log.path()).is_err(), "{length}");
    }
    std::fs::write(&sealed, &bytes).unwrap();
    try_open(log.path()).unwrap();
    std::fs::remove_file(&sealed).unwrap();
    let error = try_open(log.path()).unwrap_err();
    assert!(
        matches!(error, FormatError::MissingSegment { sequence: 1, .. }),
        "{error}"
    );
}

#[test]
fn leftovers_are_removed() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    append_all(&mut writer, &[transaction(START.0 + 1000, 3)]);
    writer.finish_segment().unwrap();
    let name = writer.take_finished()[0];
    drop(writer);
    let active = files(log.path(), "active");
    let raw = std::fs::read(&active[0]).unwrap();
    seal_segment(&RealFs, log.path(), name, &SealOptions::default()).unwrap();
    std::fs::write(&active[0], raw).unwrap();
    std::fs::write(active[0].with_extension("seg.tmp"), b"half").unwrap();
    std::fs::write(active[1].with_extension("tmp"), b"half").unwrap();
    std::fs::write(active[1].with_extension("idx"), b"nobody's").unwrap();
    std::fs::write(log.path().join("segments/README"), b"somebody's").unwrap();
    let before = read_all(log.path());
    open(log.path(), SEGMENT);
    assert_eq!(files(log.path(), "tmp").len(), 0);
    assert_eq!(files(log.path(), "active").len(), 1);
    assert_eq!(files(log.path(), "seg").len(), 1);
    assert_eq!(files(log.path(), "idx").len(), 1);
    assert!(log.path().join("segments/README").exists());
    assert!(read_all(log.path()) == before);
}

#[test]
fn a_segment_that_ended_without_a_next_one_is_followed_by_one() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    append_all(&mut writer, &[transaction(START.0 + 1000, 3)]);
    writer.finish_segment().unwrap();
    drop(writer);
    // As if the crash came between the end of one and the name of the next.
    let active = files(log.path(), "active");
    std::fs::rename(&active[1], active[1].with_extension("tmp")).unwrap();
    let (writer, recovery) = open(log.path(), SEGMENT);
    assert_eq!(recovery.end_lsn, end_of(1));
    assert_eq!(writer.active_segment().sequence, 2);
    assert_eq!(recovery.unsealed.len(), 1);
}

#[test]
fn a_row_that_looks_like_a_block_is_no_block() {
    let log = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(log.path(), SEGMENT);
    let at = transaction(START.0 + 1000, 0);
    let mut builder = BlockBuilder::new();
    at.push_begin(&mut builder);
    let row = b"DBLK".repeat(400);
    builder
        .push_other(storage_format::record::RecordKind::Message, at.at, &row)
        .unwrap();
    at.push_commit(&mut builder);
    writer.append(&mut builder).unwrap();
    writer
        .append(&mut filled(&[transaction(START.0 + 2000, 1)]))
        .unwrap();
    drop(writer);
    let path = files(log.path(), "active").remove(0);
    let end = std::fs::read(&path).unwrap().len();
    with_bytes(&path, |bytes| {
        let at = bytes
            .windows(8)
            .position(|bytes| bytes == b"DBLKDBLK")
            .unwrap();
        bytes[at] ^= 1;
    });
    assert!(end > 1600);
    assert_eq!(try_open(log.path()).unwrap(), START);
}
