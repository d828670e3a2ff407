//! Opening a log directory for writing: lock, recovery, the first block to come.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;

use super::active::ActiveFile;
use super::create::SegmentFolder;
use super::history::check_history;
use super::leftovers::remove_leftovers;
use super::log_writer::LogWriter;
use super::options::{Cut, Recovery, WriterOptions};
use super::recover::{ScannedSegment, scan_segment};
use super::state::LogState;
use crate::block::BlockBuilder;
use crate::catalog::Catalog;
use crate::error::FormatError;
use crate::fs::{Fs, FsFile, read_full_at, write_all_at};
use crate::identity::Identity;
use crate::segment::{
    SegmentHeader, SegmentInfo, SegmentName, SegmentState, list_segments, write_names,
};
use crate::watermark::{LogPoint, WatermarkPublisher, WatermarkState};

/// Name of the lock file in the log directory.
const LOCK_FILE: &str = "LOCK";
/// Bytes read and written at once during recovery.
const CHUNK_LEN: usize = 64 << 10;
/// The first segment's sequence number.
const FIRST_SEQUENCE: u64 = 1;

impl LogWriter {
    /// Opens the log in `directory` for writing, or makes it. `identity` says whose log it must be; its epoch is
    /// ignored, the writer takes the next one.
    ///
    /// A torn tail of the last segment and an incomplete transaction there are cut off and reported. Damage
    /// anywhere else, a log of another source, or one that another process has open is an error, and no segment
    /// is changed then.
    pub fn open(
        directory: &Path,
        options: WriterOptions,
        identity: Identity,
        fs: Arc<dyn Fs>,
    ) -> Result<(Self, Recovery), FormatError> {
        let options = WriterOptions {
            segment_bytes: options.segment_bytes.max(WriterOptions::MIN_SEGMENT_BYTES),
            ..options
        };
        let lock = prepare_directory(&*fs, directory)?;
        let watermark = WatermarkPublisher::open(&*fs, directory)?;
        let mut opening = Opening {
            directory,
            options,
            identity,
            fs: &*fs,
            last: watermark.last(),
            cut: None,
        };
        let segments = opening.segments()?;
        let (active, state) = opening.last_segment(&segments)?;
        opening.write_names(&segments, active.name);
        let Opening { identity, cut, .. } = opening;
        let recovery = Recovery {
            end_lsn: state.end_lsn,
            last_commit_lsn: state.last_commit_lsn,
            catalog: Arc::clone(&state.catalog),
            writer_epoch: identity.writer_epoch,
            created: segments.is_empty(),
            cut,
            unsealed: unsealed(&segments, active.name),
        };
        let mut writer = Self {
            directory: directory.to_owned(),
            fs,
            options,
            identity,
            complete: active.tip,
            active,
            state,
            open: None,
            durable: LogPoint::default(),
            watermark,
            unpublished: false,
            finished: Vec::new(),
            poisoned: None,
            prefix: Vec::new(),
            rest: BlockBuilder::new(),
            _lock: lock,
        };
        writer.made_durable();
        writer.usable()?;
        Ok((writer, recovery))
    }
}

fn prepare_directory(fs: &dyn Fs, directory: &Path) -> Result<Box<dyn FsFile>, FormatError> {
    let folder = SegmentName::folder(directory);
    fs.create_dir_all(&folder)
        .map_err(FormatError::io("create", &folder))?;
    fs.sync_dir(directory)
        .map_err(FormatError::io("fsync", directory))?;
    if list_segments(fs, directory)?.is_empty() {
        sync_way(fs, directory)?;
    }
    lock(fs, directory)
}

/// Before there is a log: makes the names of the folders durable in which it will be, since any of them may have been
/// made just now, or by a start that did not come further. One that may not be opened is somebody else's, and was there.
fn sync_way(fs: &dyn Fs, directory: &Path) -> Result<(), FormatError> {
    for folder in directory.ancestors().skip(1) {
        let here = folder.as_os_str().is_empty();
        let folder = if here { Path::new(".") } else { folder };
        match fs.sync_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(FormatError::io("fsync", folder))?,
        }
    }
    Ok(())
}

/// Locks a log that is there, for work on it without a decoder.
pub(crate) fn lock_existing(fs: &dyn Fs, directory: &Path) -> Result<Box<dyn FsFile>, FormatError> {
    let folder = SegmentName::folder(directory);
    fs.list(&folder).map_err(FormatError::io("list", &folder))?;
    lock(fs, directory)
}

fn lock(fs: &dyn Fs, directory: &Path) -> Result<Box<dyn FsFile>, FormatError> {
    let path = directory.join(LOCK_FILE);
    let locked = fs.lock(&path).map_err(FormatError::io("lock", &path))?;
    locked.ok_or_else(|| {
        let holder = holder(fs, &path);
        FormatError::Locked { path, holder }
    })
}

/// Which process has the lock, as that has written there.
fn holder(fs: &dyn Fs, path: &Path) -> Option<u32> {
    let mut text = [0; 10];
    let file = fs.open_to_read(path).ok()?;
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.parse().ok()
}

/// Finished segments that are not sealed.
fn unsealed(segments: &[SegmentInfo], active: SegmentName) -> Vec<SegmentName> {
    segments
        .iter()
        .filter(|segment| segment.state == SegmentState::Active && segment.name != active)
        .map(|segment| segment.name)
        .collect()
}

struct Opening<'a> {
    directory: &'a Path,
    options: WriterOptions,
    identity: Identity,
    fs: &'a dyn Fs,
    /// What a former writer published last.
    last: Option<WatermarkState>,
    cut: Option<Cut>,
}

impl Opening<'_> {
    fn segments(&self) -> Result<Vec<SegmentInfo>, FormatError> {
        // A former writer may have ended between giving a file its name and making that durable. What is built on it
        // now, and what is removed because of it, must not outlast it.
        let folder = SegmentName::folder(self.directory);
        self.fs
            .sync_dir(&folder)
            .map_err(FormatError::io("fsync", &folder))?;
        let segments = list_segments(self.fs, self.directory)?;
        check_history(self.fs, &segments, &self.identity)?;
        remove_leftovers(self.fs, self.directory)?;
        Ok(segments)
    }

    /// The file to append to, and the log's state at its end.
    fn last_segment(
        &mut self,
        segments: &[SegmentInfo],
    ) -> Result<(ActiveFile, LogState), FormatError> {
        let Some(last) = segments.last() else {
            return self.first_segment();
        };
        let file = self
            .fs
            .open(&last.path)
            .map_err(FormatError::io("open", &last.path))?;
        let durable_offset = self
            .last
            .filter(|state| state.durable.sequence == last.name.sequence)
            .map_or(0, |state| state.durable.offset);
        let active = last.state == SegmentState::Active;
        let scanned = scan_segment(&*file, last, if active { durable_offset } else { 0 })?;
        self.identity
            .check_same_log(&scanned.header.identity, &last.path)?;
        self.check_not_lost(scanned.state.end_lsn)?;
        self.next_epoch(scanned.header.identity.writer_epoch);
        if active {
            self.settle(&*file, last, &scanned, durable_offset)?;
        }
        if scanned.ended {
            let name = last.name.next(scanned.state.end_lsn);
            return self.new_segment(name, scanned.state);
        }
        let active = ActiveFile {
            file,
            path: last.path.clone(),
            name: last.name,
            tip: scanned.complete,
            allocated: scanned.file_len,
            synced_offset: scanned.complete.offset,
        };
        Ok((active, scanned.state))
    }

    /// Whatever became of the file while another build or nobody wrote the log: before the watermark is published, it is what
    /// the folder has.
    fn write_names(&self, segments: &[SegmentInfo], active: SegmentName) {
        let before = segments.iter().map(|segment| segment.name);
        let before = before.filter(|name| *name != active);
        let names: Vec<SegmentName> = before.chain([active]).collect();
        write_names(self.fs, self.directory, &names);
    }

    fn first_segment(&mut self) -> Result<(ActiveFile, LogState), FormatError> {
        self.check_not_lost(Lsn::INVALID)?;
        self.next_epoch(0);
        let name = SegmentName {
            sequence: FIRST_SEQUENCE,
            first_lsn: self.options.start_lsn,
        };
        let catalog = Arc::new(Catalog::default());
        let state = LogState::new(self.options.start_lsn, Lsn::INVALID, catalog);
        self.new_segment(name, state)
    }

    fn new_segment(
        &self,
        name: SegmentName,
        state: LogState,
    ) -> Result<(ActiveFile, LogState), FormatError> {
        let folder = SegmentFolder {
            fs: self.fs,
            log: self.directory,
            segment_bytes: self.options.segment_bytes,
        };
        let header = SegmentHeader {
            identity: self.identity.clone(),
            name,
            sealed: false,
            last_commit_lsn: state.last_commit_lsn,
        };
        let mut active = folder.prepare(&header, &state.catalog)?;
        folder.publish(&mut active)?;
        Ok((active, state))
    }

    /// Makes durable what was found: after a crash of the process alone it may be in memory only. It is written once
    /// more before it is synced, since after a failed sync the kernel may hold it as if it were on the disk.
    /// What is cut off is zeroed, so that nobody takes it for a part of the log.
    fn settle(
        &mut self,
        file: &dyn FsFile,
        segment: &SegmentInfo,
        scanned: &ScannedSegment,
        durable_offset: u64,
    ) -> Result<(), FormatError> {
        rewrite(file, &segment.path, durable_offset..scanned.complete.offset)?;
        if let Some(reason) = &scanned.cut {
            let offset = scanned.complete.offset;
            zero_behind(file, &segment.path, offset)?;
            self.cut = Some(Cut {
                path: segment.path.clone(),
                offset,
                reason: reason.clone(),
            });
        }
        file.sync_all().map_err(FormatError::sync(&segment.path))
    }

    fn check_not_lost(&self, end_lsn: Lsn) -> Result<(), FormatError> {
        match self.last {
            Some(state) if state.durable.lsn > end_lsn => Err(FormatError::Lost {
                path: self.directory.to_owned(),
                end_lsn,
                durable_lsn: state.durable.lsn,
            }),
            _ => Ok(()),
        }
    }

    fn next_epoch(&mut self, in_header: u64) {
        let published = self.last.map_or(0, |state| state.epoch);
        self.identity.writer_epoch = in_header.max(published) + 1;
    }
}

/// Writes the bytes that are there.
fn rewrite(file: &dyn FsFile, path: &Path, range: Range<u64>) -> Result<(), FormatError> {
    let mut chunk = vec![0; CHUNK_LEN];
    let mut offset = range.start;
    while offset < range.end {
        let left = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        chunk.resize(left.min(CHUNK_LEN), 0);
        let read = read_full_at(file, &mut chunk, offset).map_err(FormatError::io("read", path))?;
        chunk.truncate(read);
        if chunk.is_empty() {
            break;
        }
        write_all_at(file, &mut [IoSlice::new(&chunk)], offset)
            .map_err(FormatError::io("write", path))?;
        offset += read as u64;
    }
    Ok(())
}

/// Zeroes what is written behind `offset`. The file keeps its length: a reader may have it mapped.
fn zero_behind(file: &dyn FsFile, path: &Path, mut offset: u64) -> Result<(), FormatError> {
    static ZEROS: [u8; CHUNK_LEN] = [0; CHUNK_LEN];
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        let length =
            read_full_at(file, &mut chunk, offset).map_err(FormatError::io("read", path))?;
        let read = chunk.get(..length).unwrap_or_default();
        if read.is_empty() {
            return Ok(());
        }
        if read.iter().any(|&byte| byte != 0) {
            let zeros = ZEROS.get(..length).unwrap_or_default();
            write_all_at(file, &mut [IoSlice::new(zeros)], offset)
                .map_err(FormatError::io("write", path))?;
        }
        offset += length as u64;
    }
}
