//! Transactions that the source streams before they are decided.
//!
//! Each has a file of blocks in the log's own format, with places left open for what only the commit tells: the
//! commit LSN, the ordinals, the chain. A block holds records of one subtransaction, so that a rolled back one is
//! dropped block by block. At commit [`LogWriter::append_staged`](crate::LogWriter::append_staged) writes new
//! headers and has the file system copy the bodies.
//!
//! RELATION and TYPE messages are put down to the top-level transaction, so they stay when the subtransaction that
//! they came with is rolled back: the source sends each only once in a streamed transaction, and what follows
//! may rely on it.
//!
//! Nothing here is durable, or has to be: after a crash or a lost connection the source streams the transaction
//! again from its start.
//!
//! Other processes read such a file while it grows, with [`StagedReader`]: it begins with a mark, has one where a
//! subtransaction is rolled back, and one at its end. A file that goes away without that was given up.

mod file;
mod mark;
mod prepared;
mod reader;
mod restore;
mod transaction;
mod two_phase;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_proto::{Lsn, PgTimestamp, Xid};

use crate::block::BlockBuilder;
use crate::error::FormatError;
use crate::fs::Fs;
use crate::record::RecordKind;
use file::StagedFile;
use mark::MarkKind;
pub(crate) use mark::{MARK_LEN, Mark};
pub use prepared::{LoadedPrepared, PreparedStore, PreparedTransaction};
pub use reader::{StagedItem, StagedReader, StagedStep};
pub use transaction::StagedTransaction;
use transaction::{StagedHead, StagedWriter};
pub(crate) use two_phase::event_of;
pub use two_phase::{PreparedId, TwoPhaseEvent, two_phase_events};

/// The folder of staged transactions inside a log directory.
const FOLDER: &str = "staging";

/// All transactions that are streamed and not decided.
#[derive(Debug)]
pub struct Staging {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
    memory_bytes_max: usize,
    memory_bytes: usize,
    open: BTreeMap<Xid, StagedWriter>,
    /// Makes file names unique: transaction ids come again after a reconnect.
    files: u64,
    /// Everything that commits below this came before what is staged now.
    position: Lsn,
}

/// How a staged transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagedEnd {
    /// It commits here.
    Committed(Lsn),
    /// It is prepared here.
    Prepared(Lsn),
    /// It is rolled back, at a position and time if they are known.
    RolledBack(Rollback),
}

/// Where and when something was rolled back; zero where the source does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollback {
    /// Of the abort record.
    pub lsn: Lsn,
    /// When.
    pub time: PgTimestamp,
}

impl Staging {
    /// The staging of a log directory, emptied. All transactions together hold about `memory_bytes_max` bytes in
    /// memory and the rest in files. The log's writer must be open already: it holds the lock.
    pub fn open(log: &Path, memory_bytes_max: usize, fs: Arc<dyn Fs>) -> Result<Self, FormatError> {
        let folder = log.join(FOLDER);
        fs.create_dir_all(&folder)
            .map_err(FormatError::io("create", &folder))?;
        let files = fs.list(&folder).map_err(FormatError::io("list", &folder))?;
        for path in files {
            fs.remove(&path).map_err(FormatError::io("remove", &path))?;
        }
        Ok(Self {
            fs,
            folder,
            memory_bytes_max,
            memory_bytes: 0,
            open: BTreeMap::new(),
            files: 0,
            position: Lsn::INVALID,
        })
    }

    /// Begins a transaction that comes in pieces; one with the same id is discarded. `start` and `send_time` are those
    /// of its first STREAM START.
    pub fn begin(&mut self, xid: Xid, start: Lsn, send_time: PgTimestamp) {
        self.begin_with(StagedHead {
            xid,
            start,
            send_time,
            streamed: true,
        });
    }

    /// Begins a transaction that comes whole. `start` and `send_time` are those of its BEGIN PREPARE.
    pub fn begin_whole(&mut self, xid: Xid, start: Lsn, send_time: PgTimestamp) {
        self.begin_with(StagedHead {
            xid,
            start,
            send_time,
            streamed: false,
        });
    }

    fn begin_with(&mut self, head: StagedHead) {
        let xid = head.xid;
        self.discard(xid);
        self.files += 1;
        let path = self.folder.join(format!("{xid}-{}.staged", self.files));
        let file = StagedFile::new(Arc::clone(&self.fs), path);
        self.open.insert(xid, StagedWriter::new(head, file));
    }

    /// Everything that commits below `position` came before what is staged from here on: its readers are to have that
    /// first.
    pub const fn set_position(&mut self, position: Lsn) {
        self.position = position;
    }

    /// Whether the transaction has begun.
    #[must_use]
    pub fn contains(&self, xid: Xid) -> bool {
        self.open.contains_key(&xid)
    }

    /// Transactions that are staged now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Bytes held in memory.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The block to which the next record goes, one of `kind` that belongs to the subtransaction `subxid` of `xid`
    /// (the same as `xid` for the top level): add that record, and no other, with the builder's own methods.
    pub fn builder(
        &mut self,
        xid: Xid,
        subxid: Xid,
        kind: RecordKind,
    ) -> Result<&mut BlockBuilder, FormatError> {
        self.make_room(xid, subxid, kind)?;
        self.current(xid)
    }

    /// The part of [`Self::builder`] that can find the disk full, and may be repeated then.
    pub fn make_room(
        &mut self,
        xid: Xid,
        subxid: Xid,
        kind: RecordKind,
    ) -> Result<(), FormatError> {
        if self.memory_bytes > self.memory_bytes_max {
            self.flush_largest()?;
        }
        let Some(writer) = self.open.get_mut(&xid) else {
            return Err(not_begun());
        };
        let before = writer.accounted();
        let prepared = writer.prepare(subxid, kind, self.position);
        self.memory_bytes = self.memory_bytes - before + writer.accounted();
        prepared
    }

    /// The block for which [`Self::make_room`] has made room.
    pub fn current(&mut self, xid: Xid) -> Result<&mut BlockBuilder, FormatError> {
        let writer = self.open.get_mut(&xid).ok_or_else(not_begun)?;
        Ok(writer.builder())
    }

    /// A subtransaction is rolled back. Those nested in it are rolled back each on its own by the source.
    /// After an error the call may be repeated.
    pub fn abort_subtransaction(
        &mut self,
        xid: Xid,
        subxid: Xid,
        at: Rollback,
    ) -> Result<(), FormatError> {
        let mark = Mark {
            kind: MarkKind::Aborted,
            xid: subxid,
            lsn: at.lsn,
            time: at.time,
            position: self.position,
        };
        self.write(xid, |writer| writer.abort(&mark))
    }

    /// Puts into the file what is in memory of the transaction, so that others can read it.
    pub fn flush(&mut self, xid: Xid) -> Result<(), FormatError> {
        let position = self.position;
        self.write(xid, |writer| writer.flush(position))
    }

    /// Tells those who read the file how the transaction ends. After an error the call may be repeated;
    /// [`Self::finish`] or [`Self::discard`] comes next.
    pub fn end(&mut self, xid: Xid, end: StagedEnd) -> Result<(), FormatError> {
        let none = PgTimestamp(0);
        let (kind, lsn, time) = match end {
            StagedEnd::Committed(lsn) => (MarkKind::Committed, lsn, none),
            StagedEnd::Prepared(lsn) => (MarkKind::Prepared, lsn, none),
            StagedEnd::RolledBack(at) => (MarkKind::RolledBack, at.lsn, at.time),
        };
        let mark = Mark {
            kind,
            xid,
            lsn,
            time,
            position: self.position,
        };
        self.write(xid, |writer| writer.mark(&mark))
    }

    fn write(
        &mut self,
        xid: Xid,
        write: impl FnOnce(&mut StagedWriter) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let Some(writer) = self.open.get_mut(&xid) else {
            return Ok(());
        };
        let before = writer.accounted();
        let written = write(writer);
        self.memory_bytes = self.memory_bytes - before + writer.account();
        written
    }

    /// The transaction commits: what there is of it. After an error it is still staged, so that the call can be
    /// repeated when a full disk has room again.
    pub fn finish(&mut self, xid: Xid) -> Result<StagedTransaction, FormatError> {
        let Some(mut writer) = self.open.remove(&xid) else {
            return Err(FormatError::State {
                call: "Staging::finish",
                problem: "the transaction has not begun",
            });
        };
        let before = writer.accounted();
        if let Err(error) = writer.flush(self.position) {
            self.open.insert(xid, writer);
            return Err(error);
        }
        self.memory_bytes -= before;
        Ok(writer.into_transaction())
    }

    /// The transaction is rolled back.
    pub fn discard(&mut self, xid: Xid) {
        if let Some(writer) = self.open.remove(&xid) {
            self.memory_bytes -= writer.accounted();
        }
    }

    /// The connection is lost: everything will be streamed again.
    pub fn discard_all(&mut self) {
        self.open.clear();
        self.memory_bytes = 0;
    }

    fn flush_largest(&mut self) -> Result<(), FormatError> {
        // What the last record added is counted only now.
        self.memory_bytes = self.open.values_mut().map(StagedWriter::account).sum();
        let largest = self
            .open
            .values_mut()
            .max_by_key(|writer| writer.accounted());
        if let Some(writer) = largest {
            let before = writer.accounted();
            writer.flush(self.position)?;
            self.memory_bytes = self.memory_bytes - before + writer.accounted();
        }
        Ok(())
    }
}

const fn not_begun() -> FormatError {
    FormatError::State {
        call: "Staging::builder",
        problem: "the transaction has not begun",
    }
}

/// Subtransactions that were rolled back.
type Aborted = HashSet<Xid>;
