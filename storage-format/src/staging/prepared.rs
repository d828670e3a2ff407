//! Transactions that are prepared and not decided.
//!
//! PREPARE tells the source that they are safe here, and COMMIT PREPARED, perhaps weeks and restarts later, brings none of
//! their records again. So each keeps its staged file, made durable, in a folder of its own, until its end is durable in
//! the log. Whatever happens to older segments meanwhile, it can be written at its commit. One that is missing all the same,
//! as when its end was cut off after a fork, is made again from what the log has at its PREPARE (`restore`).
//!
//! Behind the blocks of such a file comes a trailer: what [`Trailer`] has, its length, its checksum, a magic.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_proto::read::{ReadError, Reader};
use pg_proto::{Lsn, PgTimestamp, Xid};

use super::Aborted;
use super::file::StagedFile;
use super::mark::{MARK_LEN, Mark};
use super::transaction::{StagedHead, StagedTransaction};
use crate::block::BlockFlags;
use crate::checksum::crc32;
use crate::codec::stored_u32;
use crate::error::{Damage, FormatError};
use crate::fs::{Fs, FsFile, read_full_at, write_all_at};
use crate::record::PreparedRecord;
use crate::segment::FileWindow;

/// The folder inside a log directory.
const FOLDER: &str = "prepared";
const MAGIC: [u8; 8] = *b"DECANTPR";
/// Length, checksum and magic at the file's end.
const TAIL_LEN: usize = 16;
/// Extension of a file that is being made again.
pub(super) const UNFINISHED: &str = "new";
/// Longest trailer: a gid has at most 200 bytes, the rest are ids of subtransactions.
const TRAILER_LEN_MAX: usize = 64 << 20;

/// A transaction that is prepared and not decided.
#[derive(Debug)]
pub struct PreparedTransaction {
    staged: StagedTransaction,
    record: PreparedRecord,
}

impl PreparedTransaction {
    /// One that need not outlive the process, since the source sends it again. What is to outlive it goes to
    /// [`PreparedStore::keep`] first.
    #[must_use]
    pub const fn new(staged: StagedTransaction, record: PreparedRecord) -> Self {
        Self { staged, record }
    }

    /// Its changes.
    #[must_use]
    pub const fn staged(&self) -> &StagedTransaction {
        &self.staged
    }

    /// How it was prepared.
    #[must_use]
    pub const fn record(&self) -> &PreparedRecord {
        &self.record
    }

    /// Its end is durable in the log: the file goes when this is dropped.
    pub fn resolved(&self) {
        self.staged.file().set_kept(false);
    }
}

/// The files that a former process kept.
#[derive(Debug, Default)]
pub struct LoadedPrepared {
    /// Those that can be used.
    pub whole: Vec<PreparedTransaction>,
    /// The others, and what is wrong with them.
    pub damaged: Vec<(PathBuf, FormatError)>,
}

impl LoadedPrepared {
    /// Where the first of their prepare records begins.
    #[must_use]
    pub fn first_prepare_lsn(&self) -> Option<Lsn> {
        let whole = self.whole.iter().map(|one| one.record.prepare_lsn);
        let damaged = self.damaged.iter();
        whole
            .chain(damaged.filter_map(|(path, _)| prepare_lsn_in(path)))
            .min()
    }
}

fn prepare_lsn_in(path: &Path) -> Option<Lsn> {
    let (_, digits) = path.file_name()?.to_str()?.split_once('-')?;
    u64::from_str_radix(digits, 16).ok().map(Lsn)
}

/// The folder of prepared transactions in a log directory.
#[derive(Debug)]
pub struct PreparedStore {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
}

impl PreparedStore {
    /// That of a log directory; made if it is missing. The log's writer must be open already: it holds the lock.
    pub fn open(log: &Path, fs: Arc<dyn Fs>) -> Result<Self, FormatError> {
        let folder = log.join(FOLDER);
        fs.create_dir_all(&folder)
            .map_err(FormatError::io("create", &folder))?;
        fs.sync_dir(log).map_err(FormatError::io("fsync", log))?;
        Ok(Self { fs, folder })
    }

    /// Those that a former process kept and whose PREPARE is in the log, which ends at `log_end`; the source sends the
    /// others again, so their files are removed.
    ///
    /// A file that is not whole may not have been durable yet when the machine went down. The log, or the source, has the
    /// PREPARE then: see [`Self::restore`].
    pub fn load(&self, log_end: Lsn) -> Result<LoadedPrepared, FormatError> {
        let folder = &self.folder;
        let paths = self
            .fs
            .list(folder)
            .map_err(FormatError::io("list", folder))?;
        let mut loaded = LoadedPrepared::default();
        for path in paths {
            if path.extension().is_some_and(|end| end == UNFINISHED) {
                self.remove(&path)?;
                continue;
            }
            match self.read(&path) {
                Ok(prepared) if prepared.record.prepare_end_lsn <= log_end => {
                    loaded.whole.push(prepared);
                }
                // The file goes with it.
                Ok(prepared) => prepared.resolved(),
                // The source sends it again: it was not confirmed.
                Err(FormatError::Damaged { .. })
                    if prepare_lsn_in(&path).is_some_and(|lsn| lsn >= log_end) =>
                {
                    self.remove(&path)?;
                }
                Err(error @ FormatError::Damaged { .. }) => loaded.damaged.push((path, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(loaded)
    }

    /// Removes the file of [`LoadedPrepared::damaged`] that is of this transaction, if there is one.
    pub fn remove_damaged(
        &self,
        loaded: &mut LoadedPrepared,
        xid: Xid,
        prepare_lsn: Lsn,
    ) -> Result<(), FormatError> {
        let path = self.path_of(xid, prepare_lsn);
        let before = loaded.damaged.len();
        loaded.damaged.retain(|(damaged, _)| *damaged != path);
        if loaded.damaged.len() < before {
            self.remove(&path)?;
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), FormatError> {
        let removed = self.fs.remove(path);
        removed.map_err(FormatError::io("remove", path))
    }

    pub(super) fn path_of(&self, xid: Xid, prepare_lsn: Lsn) -> PathBuf {
        self.folder.join(format!("{xid}-{:016X}", prepare_lsn.0))
    }

    pub(super) fn fs(&self) -> Arc<dyn Fs> {
        Arc::clone(&self.fs)
    }

    /// Makes a transaction durable. After an error it may be tried again.
    pub fn keep(
        &self,
        staged: &mut StagedTransaction,
        record: &PreparedRecord,
    ) -> Result<(), FormatError> {
        let trailer = Trailer::bytes(staged, record);
        let file = staged.file_mut();
        let blocks_len = file.length;
        let path = self.path_of(record.xid, record.prepare_lsn);
        let from = file.path.clone();
        let open = file.create()?;
        write_all_at(open, &mut [IoSlice::new(&trailer)], blocks_len)
            .map_err(FormatError::io("write", &from))?;
        open.sync_all().map_err(FormatError::sync(&from))?;
        if from != path {
            self.fs
                .rename(&from, &path)
                .map_err(FormatError::io("rename", &from))?;
            file.path = path;
        }
        self.fs
            .sync_dir(&self.folder)
            .map_err(FormatError::sync(&self.folder))?;
        file.set_kept(true);
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<PreparedTransaction, FormatError> {
        let file = self.fs.open(path).map_err(FormatError::io("open", path))?;
        let length = file.length().map_err(FormatError::io("measure", path))?;
        let mut tail = [0; TAIL_LEN];
        let tail_at = length.saturating_sub(TAIL_LEN as u64);
        read_full_at(&*file, &mut tail, tail_at).map_err(FormatError::io("read", path))?;
        let damaged = |what: &str| Damage::Content(what.to_owned()).at(path, tail_at);
        let [l0, l1, l2, l3, c0, c1, c2, c3, magic @ ..] = tail;
        let trailer_len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let blocks_len = tail_at.checked_sub(trailer_len as u64);
        let Some(blocks_len) = blocks_len.filter(|_| magic == MAGIC) else {
            return Err(damaged("it does not end as a prepared transaction does"));
        };
        if trailer_len > TRAILER_LEN_MAX {
            return Err(damaged("its trailer is too long"));
        }
        let mut bytes = vec![0; trailer_len];
        read_full_at(&*file, &mut bytes, blocks_len).map_err(FormatError::io("read", path))?;
        if crc32(&[&bytes]) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(damaged("the checksum of its trailer is wrong"));
        }
        let trailer = Trailer::decode(&bytes).map_err(|error| damaged(&error.to_string()))?;
        let flags = check_blocks(&*file, path, blocks_len)?;
        let file = StagedFile::existing(Arc::clone(&self.fs), path.to_owned(), file, blocks_len);
        let staged = StagedTransaction::existing(
            trailer.head,
            flags.contains(BlockFlags::HAS_ORIGIN),
            file,
            trailer.aborted,
        );
        Ok(PreparedTransaction::new(staged, trailer.record))
    }
}

/// The bodies are copied without being looked at, so they are looked at here. The flags that any block has.
fn check_blocks(file: &dyn FsFile, path: &Path, length: u64) -> Result<BlockFlags, FormatError> {
    let mut window = FileWindow::new(file, path)?;
    let mut flags = BlockFlags::NONE;
    let mut offset = 0;
    while offset < length {
        let mark = window.bytes(offset, MARK_LEN)?;
        if Mark::begins(mark) {
            if Mark::decode(mark).is_none() {
                return Err(
                    Damage::Content("the checksum of a mark is wrong".to_owned()).at(path, offset),
                );
            }
            offset += MARK_LEN as u64;
            continue;
        }
        let block = window
            .block(offset, 0)?
            .map_err(|damage| damage.at(path, offset))?;
        flags |= block.header.flags;
        offset = block.end;
    }
    Ok(flags)
}

/// What a file has to say beside its blocks.
struct Trailer {
    head: StagedHead,
    aborted: Aborted,
    record: PreparedRecord,
}

impl Trailer {
    /// With length, checksum and magic.
    fn bytes(staged: &StagedTransaction, record: &PreparedRecord) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&staged.xid().0.to_le_bytes());
        bytes.extend_from_slice(&staged.start().0.to_le_bytes());
        bytes.extend_from_slice(&staged.send_time().0.to_le_bytes());
        bytes.push(u8::from(staged.is_streamed()));
        bytes.extend_from_slice(&stored_u32(staged.aborted().len()).to_le_bytes());
        for xid in staged.aborted() {
            bytes.extend_from_slice(&xid.0.to_le_bytes());
        }
        record.encode(&mut bytes);
        let (length, checksum) = (stored_u32(bytes.len()), crc32(&[&bytes]));
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(bytes);
        let head = StagedHead {
            xid: Xid(reader.u32("transaction id")?.swap_bytes()),
            start: Lsn(reader.u64("start")?.swap_bytes()),
            send_time: PgTimestamp(reader.u64("send time")?.swap_bytes().cast_signed()),
            streamed: reader.u8("streamed")? != 0,
        };
        let count = reader.u32("subtransactions")?.swap_bytes();
        let mut aborted = Aborted::new();
        for _ in 0..count {
            aborted.insert(Xid(reader.u32("subtransaction")?.swap_bytes()));
        }
        let record = PreparedRecord::decode(reader.rest())?;
        Ok(Self {
            head,
            aborted,
            record,
        })
    }
}
