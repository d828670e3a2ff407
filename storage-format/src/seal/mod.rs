//! Sealing: a finished segment becomes an immutable one.
//!
//! Small raw blocks are merged into large compressed ones, stored as columns; the records, their order and their positions stay. The
//! result is made under a temporary name, made durable, read back and compared record by record with what it was
//! made from; only then it gets its name, and the raw file is removed. Readers keep the file that they have open.

mod body;
mod digest;
mod output;
mod verify;

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use pg_proto::Oid;

use crate::block::{BlockFlags, BlockKind, Sections, raw_body};
use crate::codec::Fields;
use crate::error::{Damage, FormatError};
use crate::failpoint::hit;
use crate::fs::{Fs, remove_if_there, write_all_at};
use crate::segment::{
    FileWindow, Footer, FoundBlock, SEGMENT_HEADER_LEN, SegmentExtension, SegmentHeader,
    SegmentName,
};
use digest::RecordDigest;
pub(crate) use output::{SealedOutput, tally};
use verify::verify;

/// How to seal.
#[derive(Clone, Copy, Debug)]
pub struct SealOptions {
    /// zstd's level, 1 to 22; higher is slower. Columns gain little by it.
    pub zstd_level: i32,
    /// Blocks are merged up to this many bytes before compression. Larger ones compress better, and are
    /// decompressed whole for whatever is needed of them.
    pub block_bytes: usize,
}

impl Default for SealOptions {
    fn default() -> Self {
        Self {
            zstd_level: 1,
            block_bytes: 512 << 10,
        }
    }
}

/// A segment that was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// Which one.
    pub name: SegmentName,
    /// Its totals.
    pub footer: Footer,
    /// Bytes of the raw blocks that it was made from.
    pub active_bytes: u64,
    /// Bytes of the sealed file.
    pub sealed_bytes: u64,
}

/// Seals a finished segment; `None` if it is sealed already. If it fails, the raw file is as it was and the call
/// may be repeated.
pub fn seal_segment(
    fs: &dyn Fs,
    log: &Path,
    name: SegmentName,
    options: &SealOptions,
) -> Result<Option<SealedSegment>, FormatError> {
    let active = name.path(log, SegmentExtension::Active);
    let file = match fs.open(&active) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return already_sealed(fs, log, name);
        }
        Err(error) => return Err(FormatError::io("open", &active)(error)),
    };
    let sealed = name.path(log, SegmentExtension::Sealed);
    let temporary = temporary(&sealed);
    remove_if_there(fs, &temporary)?;
    let window = FileWindow::new(&*file, &active)?;
    hit("seal.begin");
    let done = rewrite(fs, window, name, &temporary, options)
        .inspect(|_| hit("seal.written"))
        .and_then(|made| publish(fs, log, name, &made.index, &temporary).map(|()| made.segment));
    if done.is_err() {
        // The error that is reported is the first one; what stays is removed at the next start.
        let _ = fs.remove(&temporary);
        return done.map(Some);
    }
    remove_if_there(fs, &active)?;
    hit("seal.raw_removed");
    done.map(Some)
}

struct Made {
    segment: SealedSegment,
    index: Vec<u8>,
}

/// Writes the sealed file under its temporary name and proves it.
fn rewrite(
    fs: &dyn Fs,
    mut window: FileWindow<'_>,
    name: SegmentName,
    temporary: &Path,
    options: &SealOptions,
) -> Result<Made, FormatError> {
    let path = window.path().to_owned();
    let start = window.bytes(0, SEGMENT_HEADER_LEN)?;
    let (header, chain) = SegmentHeader::decode_file(start, &path, name, false)?;
    let mut output = SealedOutput::create(fs, temporary, &header, options)?;
    let mut digest = RecordDigest::default();
    let active_bytes = feed(&mut window, chain, &mut digest, &mut output)?;
    let finished = output.finish()?;
    verify(
        &*finished.file,
        temporary,
        &finished.header,
        &finished.footer,
        &digest,
    )?;
    Ok(Made {
        segment: SealedSegment {
            name,
            footer: finished.footer,
            active_bytes,
            sealed_bytes: finished.length,
        },
        index: finished.index,
    })
}

/// Gives every block of the finished file to `output`; returns where it ends.
fn feed(
    window: &mut FileWindow<'_>,
    chain: u32,
    digest: &mut RecordDigest,
    output: &mut SealedOutput<'_>,
) -> Result<u64, FormatError> {
    let path = window.path().to_owned();
    let mut offset = SEGMENT_HEADER_LEN as u64;
    let mut chain = chain;
    loop {
        let block = window
            .block(offset, chain)?
            .map_err(|damage| damage.at(&path, offset))?;
        offset = block.end;
        chain = block.crc;
        match block.header.kind {
            BlockKind::SegmentEnd => {
                output.progress(block.header.end_lsn)?;
                return Ok(offset);
            }
            BlockKind::Data | BlockKind::Snapshot => {
                with_records(window, &block, |relations, sections| {
                    digest.add(relations, sections)
                })?;
                feed_one(window, &block, output)?;
            }
            _ => feed_one(window, &block, output)?,
        }
    }
}

/// Gives one sound block of an active file to `output`.
pub(crate) fn feed_one(
    window: &mut FileWindow<'_>,
    block: &FoundBlock,
    output: &mut SealedOutput<'_>,
) -> Result<(), FormatError> {
    match block.header.kind {
        BlockKind::Progress | BlockKind::SegmentEnd => {
            return output.progress(block.header.end_lsn);
        }
        BlockKind::Gap => return output.gap(block.header.end_lsn),
        BlockKind::Data | BlockKind::Snapshot | BlockKind::Footer => {}
    }
    output.make_room(&block.header)?;
    with_records(window, block, |relations, sections| {
        output.absorb(&block.header, relations, sections)
    })?;
    if block.header.kind != BlockKind::Data {
        debug_assert!(!block.header.flags.contains(BlockFlags::HAS_MESSAGES));
        output.flush()?;
    }
    Ok(())
}

/// Calls `each` with the relation set and the records of a block.
fn with_records(
    window: &mut FileWindow<'_>,
    block: &FoundBlock,
    each: impl FnOnce(&[Oid], Sections<'_>) -> Result<(), Damage>,
) -> Result<(), FormatError> {
    let path = window.path().to_owned();
    let mut set = Fields::new(window.relations(block)?);
    let relations: Vec<Oid> = (0..block.header.relation_count)
        .map(|_| Oid(set.u32()))
        .collect();
    let mut buffer = Bytes::new();
    raw_body(&block.header, window.stored_body(block)?, &mut buffer)
        .and_then(|body| Sections::split(&block.header, body))
        .and_then(|sections| each(&relations, sections))
        .map_err(|damage| damage.at(&path, block.offset))
}

/// Index first: who sees the sealed file finds its index, too.
pub(crate) fn publish(
    fs: &dyn Fs,
    log: &Path,
    name: SegmentName,
    index: &[u8],
    temporary_segment: &Path,
) -> Result<(), FormatError> {
    publish_index(fs, log, name, index)?;
    let sealed = name.path(log, SegmentExtension::Sealed);
    fs.rename(temporary_segment, &sealed)
        .map_err(FormatError::io("rename", temporary_segment))?;
    hit("seal.renamed");
    let folder = SegmentName::folder(log);
    fs.sync_dir(&folder)
        .map_err(FormatError::io("fsync", &folder))?;
    hit("seal.directory_synced");
    Ok(())
}

/// Writes a segment's index under a temporary name and gives it its own.
pub(crate) fn publish_index(
    fs: &dyn Fs,
    log: &Path,
    name: SegmentName,
    index: &[u8],
) -> Result<(), FormatError> {
    let path = name.path(log, SegmentExtension::Index);
    let temporary_index = temporary(&path);
    remove_if_there(fs, &temporary_index)?;
    let file = fs
        .create_new(&temporary_index)
        .map_err(FormatError::io("create", &temporary_index))?;
    write_all_at(&*file, &mut [IoSlice::new(index)], 0)
        .and_then(|()| file.sync_all())
        .inspect(|()| hit("index.written"))
        .and_then(|()| fs.rename(&temporary_index, &path))
        .map_err(FormatError::io("write", &temporary_index))?;
    hit("index.renamed");
    Ok(())
}

fn already_sealed(
    fs: &dyn Fs,
    log: &Path,
    name: SegmentName,
) -> Result<Option<SealedSegment>, FormatError> {
    let path = name.path(log, SegmentExtension::Sealed);
    fs.open(&path)
        .map(|_| None)
        .map_err(FormatError::io("open", &path))
}

/// A name that no reader looks at and that the next start removes.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(SegmentExtension::Temporary.as_str());
    name.into()
}
