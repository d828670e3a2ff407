//! Record by record through whole transactions, for tools and tests.

use std::sync::Arc;

use pg_proto::{Lsn, Oid};

use super::{Cursor, ReadError};
use crate::block::{Block, BlockFlags, Entry};
use crate::catalog::Catalog;
use crate::error::FormatError;
use crate::record::RecordKind;

/// A record with its place.
#[derive(Clone, Debug)]
pub struct Record {
    /// The block that it is in.
    pub block: Arc<Block>,
    /// Its entry there.
    pub entry: Entry,
    /// Commit LSN of its transaction; of a logical message that stands alone, its own position; `0/0` for a record of
    /// Decant's own between transactions.
    pub commit_lsn: Lsn,
    /// Its number among the events of its transaction, if it is one.
    pub ordinal: Option<u64>,
}

impl Record {
    /// Its kind, if this build knows it.
    #[must_use]
    pub const fn kind(&self) -> Option<RecordKind> {
        self.entry.kind()
    }

    /// Its message, or the content of a record of Decant's own.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.block.payload(&self.entry)
    }

    /// The position in the head of its frame, `0/0` without one.
    #[must_use]
    pub fn start_lsn(&self) -> Lsn {
        self.block.start_lsn(&self.entry)
    }

    /// Its relation, if it has exactly one.
    #[must_use]
    pub fn relation(&self) -> Option<Oid> {
        self.block.relation(&self.entry)
    }
}

/// Walks a cursor record by record, and leaves out the transactions before the position that was asked for. One
/// block is in memory at a time, however large a transaction is.
#[derive(Debug)]
pub struct TransactionIter {
    cursor: Cursor,
    block: Option<Arc<Block>>,
    next_entry: usize,
    catalog: Arc<Catalog>,
    /// Commit LSN of the open transaction.
    open: Option<Lsn>,
    ordinal: u64,
}

impl TransactionIter {
    /// From where the cursor stands.
    #[must_use]
    pub fn new(cursor: Cursor) -> Self {
        Self {
            catalog: Arc::clone(cursor.catalog()),
            cursor,
            block: None,
            next_entry: 0,
            open: None,
            ordinal: 0,
        }
    }

    /// The catalog in force behind the record last returned.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The log's position behind the blocks that were begun, see [`Cursor::position`].
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.cursor.position()
    }

    /// The next record; `None` at the head, where it may be asked again later.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            let Some(block) = self.block.clone() else {
                if !self.next_block()? {
                    return Ok(None);
                }
                continue;
            };
            let Some(entry) = block.entry(self.next_entry) else {
                self.block = None;
                continue;
            };
            self.next_entry += 1;
            let record = self.place(block, entry)?;
            if self.is_wanted(&record) {
                return Ok(Some(record));
            }
        }
    }

    fn next_block(&mut self) -> Result<bool, ReadError> {
        let Some(block) = self.cursor.next()? else {
            return Ok(false);
        };
        self.catalog = Arc::clone(self.cursor.catalog());
        self.next_entry = 0;
        if block.header().flags.contains(BlockFlags::CONTINUES) {
            self.open = Some(block.header().first_commit_lsn);
            self.ordinal = block.header().first_ordinal;
        }
        self.block = Some(block);
        Ok(true)
    }

    /// Gives a record its place, and keeps up with transaction and catalog.
    fn place(&mut self, block: Arc<Block>, entry: Entry) -> Result<Record, ReadError> {
        let kind = entry.kind();
        let payload = block.payload(&entry);
        if let Some(kind) = kind.filter(|kind| block.header().flags.apply(*kind)) {
            let commit_lsn = self.open.unwrap_or(Lsn::INVALID);
            Catalog::apply(&mut self.catalog, kind, payload, commit_lsn)
                .map_err(FormatError::from)?;
        }
        let lone = self.open.is_none();
        if matches!(kind, Some(RecordKind::Begin | RecordKind::BeginPrepare)) {
            self.open = Some(lsn_at(payload, FINAL_LSN_OFFSET));
            self.ordinal = 0;
        }
        let commit_lsn = match (self.open, kind) {
            (Some(open), _) => open,
            (None, Some(RecordKind::Message)) => lsn_at(payload, MESSAGE_LSN_OFFSET),
            (None, Some(RecordKind::RollbackPrepared)) => lsn_at(payload, ROLLBACK_END_OFFSET),
            (None, _) => Lsn::INVALID,
        };
        let ordinal = match kind {
            Some(RecordKind::Message) if lone => Some(0),
            Some(kind) if kind.is_event() => Some(self.ordinal),
            _ => None,
        };
        if ordinal.is_some() {
            self.ordinal += 1;
        }
        if kind.is_some_and(ends_transaction) {
            self.open = None;
        }
        Ok(Record {
            block,
            entry,
            commit_lsn,
            ordinal,
        })
    }

    /// The rule of [`Cursor::start`].
    fn is_wanted(&self, record: &Record) -> bool {
        let start = self.cursor.start();
        let lone = self.open.is_none() && !record.kind().is_some_and(ends_transaction);
        let counts_at_its_end = matches!(
            record.kind(),
            Some(RecordKind::Message | RecordKind::RollbackPrepared)
        );
        if lone && counts_at_its_end {
            return record.commit_lsn > start;
        }
        lone || record.commit_lsn >= start
    }
}

impl Iterator for TransactionIter {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

/// `final_lsn` of BEGIN, behind its tag.
const FINAL_LSN_OFFSET: usize = 1;
/// The position of a logical message, behind tag and flags.
const MESSAGE_LSN_OFFSET: usize = 2;
/// The end of ROLLBACK PREPARED, behind tag, flags and the prepare record's end.
const ROLLBACK_END_OFFSET: usize = 10;

const fn ends_transaction(kind: RecordKind) -> bool {
    matches!(kind, RecordKind::Commit | RecordKind::Prepare)
}

fn lsn_at(payload: &[u8], offset: usize) -> Lsn {
    let field = payload.get(offset..).and_then(<[u8]>::first_chunk);
    field.map_or(Lsn::INVALID, |bytes| Lsn(u64::from_be_bytes(*bytes)))
}
