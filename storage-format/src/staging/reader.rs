//! Reading a staged file while it grows.
//!
//! What is there is what its checksums say: bytes behind the last sound block or mark are not there yet. Nothing that
//! is read here is durable. So nothing of it may be acted upon for good before the log has the transaction's end.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pg_proto::{Lsn, PgTimestamp, Xid};

use super::mark::{MARK_LEN, Mark, MarkKind};
use super::{FOLDER, Rollback, StagedEnd};
use crate::block::{BLOCK_HEADER_LEN, Block, BlockHeader};
use crate::codec::index;
use crate::error::FormatError;

/// The block last read is kept for others who read the same file, unless it is larger than this.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// An open staged file. Several may read it, each at an offset of its own.
#[derive(Debug)]
pub struct StagedReader {
    path: PathBuf,
    file: File,
    inode: u64,
    begin: Mark,
    /// How far headers have been walked, and the end if it was found.
    walked: Mutex<(u64, Option<StagedEnd>)>,
    last: Mutex<Option<(u64, Arc<Block>)>>,
}

/// What comes next in a staged file.
#[derive(Clone, Debug)]
pub enum StagedItem {
    /// Records of one subtransaction. The block says that it goes on with a transaction and ends inside it, but not
    /// which: the commit LSN is zero. Its end LSN is the log's position when it was written.
    Block(Arc<Block>),
    /// A subtransaction is rolled back.
    Aborted(Xid, Rollback),
    /// Nothing follows.
    End(StagedEnd),
}

/// An item with its place.
#[derive(Clone, Debug)]
pub struct StagedStep {
    /// What it is.
    pub item: StagedItem,
    /// Everything that commits below this came before it.
    pub position: Lsn,
    /// Where to read on.
    pub next: u64,
}

/// What stands at an offset, as far as its header says.
enum Found {
    Mark(Mark),
    Block { header: Vec<u8>, end: u64 },
}

impl StagedReader {
    /// Where to read first.
    pub const START: u64 = MARK_LEN as u64;

    /// Where the files of a log are.
    #[must_use]
    pub fn folder(log: &Path) -> PathBuf {
        log.join(FOLDER)
    }

    /// The files that are there now, with their inodes.
    pub fn list(log: &Path) -> Result<Vec<(PathBuf, u64)>, FormatError> {
        let folder = Self::folder(log);
        let failed = |error| FormatError::io("list", &folder)(error);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            match entry.metadata() {
                Ok(metadata) => files.push((entry.path(), metadata.ino())),
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(files)
    }

    /// Opens one; `None` if it is gone, has nothing to read yet, or is of a transaction that comes whole.
    pub fn open(path: &Path) -> Result<Option<Self>, FormatError> {
        let failed = |error| FormatError::io("open", path)(error);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let inode = file.metadata().map_err(failed)?.ino();
        let mut bytes = [0; MARK_LEN];
        let read = read_at(&file, &mut bytes, 0).map_err(failed)?;
        let mark = Mark::decode(bytes.get(..read).unwrap_or_default());
        Ok(mark
            .filter(|mark| mark.kind == MarkKind::Begin)
            .map(|begin| Self {
                path: path.to_owned(),
                file,
                inode,
                begin,
                walked: Mutex::new((Self::START, None)),
                last: Mutex::new(None),
            }))
    }

    /// The transaction.
    #[must_use]
    pub const fn xid(&self) -> Xid {
        self.begin.xid
    }

    /// Position of its first STREAM START.
    #[must_use]
    pub const fn start(&self) -> Lsn {
        self.begin.lsn
    }

    /// The time in the heads of all its frames.
    #[must_use]
    pub const fn send_time(&self) -> PgTimestamp {
        self.begin.time
    }

    /// Which file it is, whatever its name. Not used again for another one as long as this is open.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Bytes in the file now.
    pub fn length(&self) -> Result<u64, FormatError> {
        Ok(self.metadata()?.len())
    }

    /// Whether its name is gone: nothing is written to it any more, and what was written is there.
    pub fn is_removed(&self) -> Result<bool, FormatError> {
        Ok(self.metadata()?.nlink() == 0)
    }

    /// How the transaction ended, if that is in the file now. What is asked for again is walked from where the last walk
    /// ended; bodies are not read.
    pub fn end(&self) -> Result<Option<StagedEnd>, FormatError> {
        let mut walked = self.walked.lock();
        let length = self.length()?;
        while walked.1.is_none() {
            match self.found(walked.0, length)? {
                None => break,
                Some(Found::Block { end, .. }) => walked.0 = end,
                Some(Found::Mark(mark)) => {
                    walked.0 += Self::START;
                    walked.1 = end_of(&mark);
                }
            }
        }
        Ok(walked.1)
    }

    /// What stands at `offset`; `None` if that is not there yet.
    pub fn read(&self, offset: u64) -> Result<Option<StagedStep>, FormatError> {
        let length = self.length()?;
        let (header, end) = match self.found(offset, length)? {
            None => return Ok(None),
            Some(Found::Mark(mark)) => return Ok(step_of(&mark, offset)),
            Some(Found::Block { header, end }) => (header, end),
        };
        let block = match self.kept(offset) {
            Some(block) => block,
            None => match self.block(offset, &header)? {
                Some(block) => block,
                None => return Ok(None),
            },
        };
        Ok(Some(StagedStep {
            position: block.header().end_lsn,
            item: StagedItem::Block(block),
            next: end,
        }))
    }

    fn kept(&self, offset: u64) -> Option<Arc<Block>> {
        let last = self.last.lock();
        let (at, block) = last.as_ref()?;
        (*at == offset).then(|| Arc::clone(block))
    }

    fn block(&self, offset: u64, header: &[u8]) -> Result<Option<Arc<Block>>, FormatError> {
        let Ok(decoded) = BlockHeader::decode(header) else {
            return Ok(None);
        };
        let mut body = vec![0; index(decoded.header.stored_len)];
        let at = offset + decoded.prefix_len as u64;
        let read = read_at(&self.file, &mut body, at).map_err(|error| self.failed(error))?;
        if read < body.len() {
            return Ok(None);
        }
        // A body that is not what its checksum says is one that is being written.
        let Ok(block) = Block::decode(&decoded, Bytes::from(body)) else {
            return Ok(None);
        };
        let block = Arc::new(block);
        if block.weight() <= KEPT_BYTES_MAX {
            *self.last.lock() = Some((offset, Arc::clone(&block)));
        }
        Ok(Some(block))
    }

    /// What a sound header or mark at `offset` says, if all of it lies within `length`.
    fn found(&self, offset: u64, length: u64) -> Result<Option<Found>, FormatError> {
        let mut head = vec![0; BLOCK_HEADER_LEN];
        let read = read_at(&self.file, &mut head, offset).map_err(|error| self.failed(error))?;
        head.truncate(read);
        if Mark::begins(&head) {
            return Ok(Mark::decode(&head).map(Found::Mark));
        }
        let Ok(prefix_len) = BlockHeader::prefix_len(&head) else {
            return Ok(None);
        };
        if let Some(more) = prefix_len.checked_sub(read).filter(|more| *more > 0) {
            head.resize(read + more, 0);
            let rest = head.get_mut(read..).unwrap_or_default();
            let at = offset + read as u64;
            let got = read_at(&self.file, rest, at).map_err(|error| self.failed(error))?;
            head.truncate(read + got);
        }
        let Ok(decoded) = BlockHeader::decode(&head) else {
            return Ok(None);
        };
        let end = offset + decoded.block_len();
        Ok((end <= length).then_some(Found::Block { header: head, end }))
    }

    fn metadata(&self) -> Result<std::fs::Metadata, FormatError> {
        self.file.metadata().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> FormatError {
        FormatError::io("read", &self.path)(error)
    }
}

fn step_of(mark: &Mark, offset: u64) -> Option<StagedStep> {
    let at = Rollback {
        lsn: mark.lsn,
        time: mark.time,
    };
    let item = match (mark.kind, end_of(mark)) {
        (MarkKind::Aborted, _) => StagedItem::Aborted(mark.xid, at),
        (_, Some(end)) => StagedItem::End(end),
        (_, None) => return None,
    };
    Some(StagedStep {
        item,
        position: mark.position,
        next: offset + MARK_LEN as u64,
    })
}

const fn end_of(mark: &Mark) -> Option<StagedEnd> {
    match mark.kind {
        MarkKind::Begin | MarkKind::Aborted => None,
        MarkKind::Committed => Some(StagedEnd::Committed(mark.lsn)),
        MarkKind::Prepared => Some(StagedEnd::Prepared(mark.lsn)),
        MarkKind::RolledBack => Some(StagedEnd::RolledBack(Rollback {
            lsn: mark.lsn,
            time: mark.time,
        })),
    }
}

/// As many bytes as there are.
fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = into.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
