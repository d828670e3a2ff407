//! A reader of the log, as a fanout is one, which knows what it has to find.

use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;
use storage_format::fs::Fs;
use storage_format::log::{Log, ReadOptions, Record, SeekError, Serve, TransactionIter};
use storage_format::record::RecordKind;

use crate::source::{Digest, Expected, ExpectedKind};

/// Small, so that blocks are decoded again and again.
const CACHE_BYTES: usize = 64 << 10;
/// Of an INSERT: tag, relation, tuple kind, column count, column kind, length; the value follows.
const INSERT_HEAD_LEN: usize = 1 + 4 + 1 + 2 + 1 + 4;

/// A reader with its place.
#[derive(Debug)]
pub struct Reader {
    /// The name of its slot.
    pub name: String,
    /// Where it would start again: everything that commits before was found.
    pub position: Lsn,
    /// Whether it may only be shown what is durable.
    pub durable: bool,
    serve: Serve,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    records: TransactionIter,
    /// The number of the next one that has to come.
    next: usize,
    /// The transaction that is being read.
    inside: Option<(Lsn, ExpectedKind, Digest)>,
}

/// What a log shows is not what it has to show.
pub type Wrong = String;

impl Reader {
    /// One that has read nothing.
    #[must_use]
    pub const fn new(name: String, position: Lsn, durable: bool, serve: Serve) -> Self {
        Self {
            name,
            position,
            durable,
            serve,
            open: None,
        }
    }

    /// Its process ends.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// Whether it has the log open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether it is shown what is not durable yet.
    #[must_use]
    pub fn is_served_early(&self) -> bool {
        self.serve == Serve::Written
    }

    /// Opens the log where it was. False if the log is not that far, which may be after a power loss, if it was shown
    /// what was not durable.
    pub fn open(
        &mut self,
        fs: Arc<dyn Fs>,
        log: &Path,
        expected: &[Expected],
    ) -> Result<bool, Wrong> {
        let options = ReadOptions {
            serve: self.serve,
            cache_bytes: CACHE_BYTES,
        };
        let opened = Log::open_on(fs, log, options).map_err(|error| self.wrong(&error))?;
        let cursor = match opened.cursor_at(self.position) {
            Ok(cursor) => cursor,
            Err(SeekError::Ahead { .. }) if !self.durable => return Ok(false),
            Err(error) => return Err(self.wrong(&error)),
        };
        let counts = |one: &Expected| one.counts_from(self.position);
        self.open = Some(Open {
            records: TransactionIter::new(cursor),
            next: expected.iter().position(counts).unwrap_or(expected.len()),
            inside: None,
        });
        Ok(true)
    }

    /// Reads some records; true at the head.
    pub fn read(&mut self, records: u64, expected: &[Expected]) -> Result<bool, Wrong> {
        for _ in 0..records {
            let Some(open) = &mut self.open else {
                return Ok(true);
            };
            match open.records.next_record() {
                Ok(Some(record)) => {
                    let found = open.take(&record);
                    self.check(found, expected)?;
                }
                Ok(None) => {
                    self.at_head(expected)?;
                    return Ok(true);
                }
                Err(error) => return Err(self.wrong(&error)),
            }
        }
        Ok(false)
    }

    /// How many were found or need not be.
    #[must_use]
    pub fn next(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.next)
    }

    fn check(
        &mut self,
        found: Option<(Lsn, ExpectedKind, u64)>,
        expected: &[Expected],
    ) -> Result<(), Wrong> {
        let (Some((lsn, kind, digest)), Some(open)) = (found, &mut self.open) else {
            return Ok(());
        };
        let wanted = expected.get(open.next);
        let right = wanted
            .filter(|one| (one.lsn, one.kind, one.digest) == (lsn, kind, digest))
            .copied();
        let Some(right) = right else {
            return Err(format!(
                "{} found {kind:?} at {lsn} with digest {digest:X}, and {wanted:?} had to come",
                self.name
            ));
        };
        open.next += 1;
        self.position = right.end;
        Ok(())
    }

    /// At the head the position promises that all before it was found.
    fn at_head(&mut self, expected: &[Expected]) -> Result<(), Wrong> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let position = open.records.position();
        if let Some(missing) = expected.get(open.next).filter(|one| one.end <= position) {
            return Err(format!(
                "{} is told that all before {position} was there, and {missing:?} was not",
                self.name
            ));
        }
        if open.inside.is_none() {
            self.position = self.position.max(position);
        }
        Ok(())
    }

    fn wrong(&self, error: &dyn std::error::Error) -> Wrong {
        let cause = error.source().map(|cause| format!(": {cause}"));
        format!(
            "{} at {} can't read: {error}{}",
            self.name,
            self.position,
            cause.unwrap_or_default()
        )
    }
}

impl Open {
    /// What is complete with this record.
    fn take(&mut self, record: &Record) -> Option<(Lsn, ExpectedKind, u64)> {
        let begin = |kind| Some((record.commit_lsn, kind, Digest::default()));
        match record.kind()? {
            RecordKind::Begin => self.inside = begin(ExpectedKind::Transaction),
            RecordKind::BeginPrepare => self.inside = begin(ExpectedKind::Prepared),
            RecordKind::Insert => {
                let value = record.payload().get(INSERT_HEAD_LEN..);
                if let Some((_, _, digest)) = &mut self.inside {
                    *digest = digest.add(record.start_lsn(), value.unwrap_or_default());
                }
            }
            RecordKind::Commit | RecordKind::Prepare => {
                let (lsn, kind, digest) = self.inside.take()?;
                return Some((lsn, kind, digest.0));
            }
            RecordKind::RollbackPrepared => {
                return Some((record.commit_lsn, ExpectedKind::RollbackPrepared, 0));
            }
            RecordKind::Message => return Some((record.commit_lsn, ExpectedKind::Message, 0)),
            _ => {}
        }
        None
    }
}
