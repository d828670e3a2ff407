//! The files of the log. Each input is tried as it is, and once more with its checksums set right, since otherwise
//! nearly nothing would get past them.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pg_proto::Lsn;
use storage_format::block::BlockHeader;
use storage_format::catalog::{
    Catalog, OWN_VERSIONS_FILE, OwnTimeline, OwnVersion, OwnVersions, PublicationState,
    read_own_versions, write_own_versions,
};
use storage_format::fs::Fs;
use storage_format::index::Index;
use storage_format::log::{Log, ReadOptions, Serve, TransactionIter};
use storage_format::segment::{
    NAMES_FILE, SEGMENT_HEADER_LEN, SegmentExtension, SegmentHeader, SegmentName,
};
use storage_format::watermark::{WATERMARK_FILE, WatermarkReader};
use storage_format::{LogWriter, PreparedStore, WriterOptions, delete_segment};

use crate::build::{LOG, Machine, identity};

/// `FORMAT.md`: where the checksums are.
const SEGMENT_CRC: usize = SEGMENT_HEADER_LEN - 4;
const BLOCK_HEADER_LEN: usize = 128;
const CHAIN: usize = 96;
const BODY_CRC: usize = 100;
const HEADER_CRC: usize = 124;
const STORED_LEN: usize = 16;

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn crc(pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize()
}

/// Sets the checksums of blocks right, from `offset` on; `chained`: also what each says of the one before it.
fn right_blocks(bytes: &mut [u8], mut offset: usize, chained: bool) {
    let mut chain = bytes.get(..SEGMENT_CRC).map_or(0, |head| crc(&[head]));
    while let Some(rest) = bytes.get_mut(offset..) {
        let Ok(prefix_len) = BlockHeader::prefix_len(rest) else {
            return;
        };
        let stored = rest.get(STORED_LEN..).and_then(|bytes| bytes.first_chunk());
        let stored = u32::from_le_bytes(stored.copied().unwrap_or_default()) as usize;
        let Some(body) = rest.get(prefix_len..prefix_len.saturating_add(stored)) else {
            return;
        };
        let body_crc = crc(&[body]);
        put_u32(rest, BODY_CRC, body_crc);
        if chained {
            put_u32(rest, CHAIN, chain);
        }
        let behind = rest.get(BLOCK_HEADER_LEN..prefix_len).unwrap_or_default();
        chain = crc(&[&rest[..HEADER_CRC], behind]);
        put_u32(rest, HEADER_CRC, chain);
        offset += prefix_len + stored;
    }
}

fn right_segment(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(head) = bytes.get(..SEGMENT_CRC) {
        let sum = crc(&[head]);
        put_u32(&mut bytes, SEGMENT_CRC, sum);
    }
    right_blocks(&mut bytes, SEGMENT_HEADER_LEN, true);
    bytes
}

/// A log whose only segment the bytes are: recovered, and read from its start.
fn run_segment(bytes: &[u8], extension: SegmentExtension) -> bool {
    let Ok((header, _)) = SegmentHeader::decode(bytes) else {
        return false;
    };
    let machine = Machine::new();
    let log = Path::new(LOG);
    machine.put(&header.name.path(log, extension), bytes);
    let fs: Arc<dyn Fs> = machine.fs;
    let options = WriterOptions {
        segment_bytes: 0,
        start_lsn: Lsn(1),
    };
    // A damaged log is an error.
    let Ok((writer, recovery)) = LogWriter::open(log, options, header.identity, Arc::clone(&fs))
    else {
        return false;
    };
    let options = ReadOptions {
        serve: Serve::Durable,
        cache_bytes: 1 << 20,
    };
    let Ok(log) = Log::open_on(fs, log, options) else {
        return false;
    };
    let records = read(&log, header.name.first_lsn);
    read(&log, recovery.end_lsn);
    drop(writer);
    records > 0
}

/// How many records there are.
fn read(log: &Arc<Log>, start: Lsn) -> usize {
    let Ok(cursor) = log.cursor_at(start) else {
        return 0;
    };
    // Ends with the first error, as every reader does.
    let records = TransactionIter::new(cursor).map_while(Result::ok);
    let looked_at = records.inspect(|record| {
        let _ = record.payload().len();
        let _ = (record.kind(), record.relation(), record.start_lsn());
    });
    looked_at.count()
}

pub(super) fn run_active(bytes: &[u8]) -> bool {
    let right = right_segment(bytes);
    run_segment(&right, SegmentExtension::Active);
    run_segment(bytes, SegmentExtension::Active)
}

pub(super) fn seeds_of_active() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for recording in [
        "18-v1-filtered.bin",
        "18-v1-generated.bin",
        "15-v3-two-phase.bin",
    ] {
        let machine = Machine::with_log(recording, false);
        for mut file in machine.files("segments", "active") {
            // Not what was only preallocated.
            let end = file.iter().rposition(|byte| *byte != 0).unwrap_or_default();
            file.truncate(end + 1);
            seeds.push(file);
        }
    }
    seeds
}

pub(super) fn run_sealed(bytes: &[u8]) -> bool {
    let right = right_segment(bytes);
    run_segment(&right, SegmentExtension::Sealed);
    run_segment(bytes, SegmentExtension::Sealed)
}

pub(super) fn seeds_of_sealed() -> Vec<Vec<u8>> {
    sealed().files("segments", "seg")
}

fn sealed() -> Machine {
    Machine::with_log("15-v3-two-phase.bin", true)
}

fn index_name() -> SegmentName {
    let seeds = seeds_of_sealed();
    let header = seeds.first().map(|segment| SegmentHeader::decode(segment));
    let header = header.and_then(Result::ok);
    header.expect("a segment was sealed").0.name
}

/// The first 8 bytes are the length of its segment.
pub(super) fn run_index(bytes: &[u8]) -> bool {
    static NAME: std::sync::OnceLock<SegmentName> = std::sync::OnceLock::new();
    let Some((length, index)) = bytes.split_first_chunk() else {
        return false;
    };
    let name = *NAME.get_or_init(index_name);
    let mut right = index.to_vec();
    if let Some((head, entries)) = index.split_at_checked(64) {
        put_u32(&mut right, 48, crc(&[entries]));
        let sum = right.get(..head.len() - 4).map(|head| crc(&[head]));
        put_u32(&mut right, 60, sum.unwrap_or_default());
    }
    let mut understood = false;
    for bytes in [index.to_vec(), right] {
        let decoded = Index::decode(Bytes::from(bytes), name, u64::from_le_bytes(*length));
        if let Ok(index) = decoded {
            let _ = index.entries().count();
            understood = true;
        }
    }
    understood
}

pub(super) fn seeds_of_index() -> Vec<Vec<u8>> {
    let machine = sealed();
    let lengths = machine.files("segments", "seg");
    let lengths = lengths.iter().map(|segment| segment.len() as u64);
    let indexes = machine.files("segments", "idx");
    let both = lengths.zip(indexes);
    both.map(|(length, index)| [&length.to_le_bytes()[..], &index].concat())
        .collect()
}

/// Segments of the log beside the names.
const NAMED: u64 = 6;
/// Where the first of them begins, and how long each is.
const NAMED_STEP: u64 = 64;

/// A log of segments that have nothing in them, the oldest of which was deleted.
fn named() -> Machine {
    let machine = Machine::new();
    let log = Path::new(LOG);
    let options = WriterOptions {
        segment_bytes: 0,
        start_lsn: Lsn(NAMED_STEP),
    };
    let fs: Arc<dyn Fs> = Arc::clone(&machine.fs) as Arc<dyn Fs>;
    let opened = LogWriter::open(log, options, identity(), Arc::clone(&fs));
    let (mut writer, _) = opened.expect("a disk that never fails");
    let first = writer.active_segment();
    for number in 2..=NAMED {
        let moved = writer.progress(Lsn(number * NAMED_STEP));
        let ended = moved.and_then(|()| writer.finish_segment());
        ended.expect("a disk that never fails");
    }
    delete_segment(&*fs, log, first).expect("a disk that never fails");
    machine
}

/// The names of a log's segments: whatever they say, it is read as without them.
pub(super) fn run_names(bytes: &[u8]) -> bool {
    let mut right = bytes.to_vec();
    let first = bytes.get(16..24).and_then(|bytes| bytes.first_chunk());
    let first = u64::from_le_bytes(first.copied().unwrap_or_default());
    if let Some((header, entries)) = right.split_at_mut_checked(64) {
        let fixed = crc(&[&header[..28]]);
        put_u32(header, 28, fixed);
        let oldest = crc(&[&header[32..40]]);
        put_u32(header, 40, oldest);
        for (number, entry) in (0..).zip(entries.chunks_exact_mut(16)) {
            let sequence = first.wrapping_add(number).to_le_bytes();
            let sum = crc(&[&sequence, &entry[..8]]);
            put_u32(entry, 8, sum);
            put_u32(entry, 12, 0);
        }
    }
    run_names_file(&right);
    run_names_file(bytes)
}

fn run_names_file(bytes: &[u8]) -> bool {
    let machine = named();
    let path = Path::new(LOG).join(NAMES_FILE);
    let understood = machine.get(&path) == bytes;
    let removed = machine.fs.remove(&path);
    removed.expect("the writer has made it");
    machine.put(&path, bytes);
    let fs = Arc::clone(&machine.fs) as Arc<dyn Fs>;
    let options = ReadOptions {
        serve: Serve::Durable,
        cache_bytes: 1 << 20,
    };
    let log = Log::open_on(fs, Path::new(LOG), options).expect("a sound log");
    let kept = log.kept().expect("a sound log");
    // Who lies about one segment with the right checksum can hide it from this answer, and from no other.
    assert!(kept.oldest >= Lsn(2 * NAMED_STEP) && kept.oldest <= kept.newest);
    assert_eq!(kept.newest, Lsn(NAMED * NAMED_STEP));
    for lsn in (1..=NAMED).map(|number| Lsn(number * NAMED_STEP)) {
        assert_eq!(log.cursor_at(lsn).is_ok(), lsn >= Lsn(2 * NAMED_STEP));
    }
    understood
}

pub(super) fn seeds_of_names() -> Vec<Vec<u8>> {
    vec![named().get(&Path::new(LOG).join(NAMES_FILE))]
}

pub(super) fn run_watermark(bytes: &[u8]) -> bool {
    let machine = Machine::new();
    let log = Path::new(LOG);
    machine.put(&log.join(WATERMARK_FILE), bytes);
    let Ok(watermark) = WatermarkReader::open_on(&*machine.fs, log) else {
        return false;
    };
    let _ = (watermark.fence(), watermark.cut(), watermark.heartbeat());
    watermark.read().is_ok()
}

pub(super) fn seeds_of_watermark() -> Vec<Vec<u8>> {
    let machine = Machine::with_log("18-v1-filtered.bin", false);
    vec![machine.get(&Path::new(LOG).join(WATERMARK_FILE))]
}

/// The file of a prepared transaction.
pub(super) fn run_prepared(bytes: &[u8]) -> bool {
    let mut right = bytes.to_vec();
    right_blocks(&mut right, 0, false);
    // Length of the trailer, its checksum, magic.
    let tail_at = right.len().saturating_sub(16);
    let length = right.get(tail_at..).and_then(|tail| tail.first_chunk());
    let length = u32::from_le_bytes(length.copied().unwrap_or_default()) as usize;
    let trailer = tail_at
        .checked_sub(length)
        .and_then(|at| right.get(at..tail_at));
    if let Some(sum) = trailer.map(|trailer| crc(&[trailer])) {
        put_u32(&mut right, tail_at + 4, sum);
    }
    run_prepared_file(&right);
    run_prepared_file(bytes)
}

fn run_prepared_file(bytes: &[u8]) -> bool {
    let machine = Machine::new();
    let log = Path::new(LOG);
    machine.put(&log.join("prepared").join("7-0000000000000100"), bytes);
    let store = PreparedStore::open(log, Arc::clone(&machine.fs) as Arc<dyn Fs>);
    let loaded = store.and_then(|store| store.load(Lsn(u64::MAX)));
    loaded.is_ok_and(|loaded| !loaded.whole.is_empty())
}

pub(super) fn seeds_of_prepared() -> Vec<Vec<u8>> {
    Machine::with_prepared()
}

/// Versions of Decant's own publications.
pub(super) fn run_versions(bytes: &[u8]) -> bool {
    let mut right = bytes.to_vec();
    if let Some((_, body)) = bytes.split_at_checked(64) {
        put_u32(
            &mut right,
            24,
            u32::try_from(body.len()).unwrap_or_default(),
        );
        put_u32(&mut right, 32, crc(&[body]));
        let sum = right.get(..60).map(|head| crc(&[head]));
        put_u32(&mut right, 60, sum.unwrap_or_default());
    }
    run_versions_file(&right);
    run_versions_file(bytes)
}

fn run_versions_file(bytes: &[u8]) -> bool {
    let machine = Machine::new();
    let log = Path::new(LOG);
    machine.put(&log.join(OWN_VERSIONS_FILE), bytes);
    let Ok(versions) = read_own_versions(&*machine.fs, log) else {
        return false;
    };
    let bounds = versions.all().iter().flat_map(|one| [one.from, one.stated]);
    let bounds: Vec<Lsn> = bounds.collect();
    let timeline = OwnTimeline::new(Arc::new(versions.clone()), |_| true);
    for lsn in bounds {
        let part = timeline.part(lsn);
        let _ = timeline.in_force(part, &PublicationState::default(), &Catalog::default());
    }
    let written = write_own_versions(&*machine.fs, log, &versions);
    written.expect("what was read is written");
    let again = read_own_versions(&*machine.fs, log);
    assert_eq!(again.expect("what was written is read"), versions);
    true
}

pub(super) fn seeds_of_versions() -> Vec<Vec<u8>> {
    let machine = Machine::new();
    let log = Path::new(LOG);
    let mut versions = OwnVersions::default();
    for (from, definition) in [
        (10, Some("FOR TABLE t")),
        (20, None),
        (30, Some("FOR TABLE u")),
    ] {
        versions.put(OwnVersion {
            name: "p".to_owned(),
            from: Lsn(from),
            stated: Lsn(40),
            definition: definition.map(str::to_owned),
            state: super::catalog::state().alone("p").unwrap_or_default(),
        });
    }
    let made = machine.fs.create_dir_all(log);
    made.expect("a disk that never fails");
    let written = write_own_versions(&*machine.fs, log, &versions);
    written.expect("a disk that never fails");
    vec![machine.get(&log.join(OWN_VERSIONS_FILE))]
}
