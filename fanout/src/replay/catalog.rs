//! The catalog as of the head, for those who connect.

use std::sync::Arc;

use parking_lot::Mutex;
use storage_format::catalog::Catalog;
use storage_format::log::{Cursor, Log, ReadError, Step};

use crate::error::StreamError;

/// Bytes of WAL behind the head from which on looking up the head anew is cheaper than following the log there.
const FOLLOW_BYTES_MAX: u64 = 64 << 20;
/// Blocks skipped in one step.
const RUN: usize = 4096;

/// Follows the log's catalog when somebody asks, so that a connection does not have to.
#[derive(Debug)]
pub(super) struct HeadCatalog {
    log: Arc<Log>,
    cursor: Mutex<Option<Cursor>>,
}

impl HeadCatalog {
    pub(super) fn new(log: Arc<Log>) -> Self {
        Self {
            log,
            cursor: Mutex::new(None),
        }
    }

    /// The catalog as of the head.
    pub(super) fn get(&self) -> Result<Arc<Catalog>, StreamError> {
        let mut kept = self.cursor.lock();
        // Taken out while it is used: after an error the next one begins anew.
        let taken = kept.take();
        let cursor = match self.follow(taken) {
            // What is between that cursor's place and the head was cut off, deleted, or is missing: nobody asked for that, and
            // what is there now is looked up anew.
            Err(
                StreamError::NotKept { .. }
                | StreamError::Log(ReadError::Forked { .. } | ReadError::Gap { .. }),
            ) => self.follow(None)?,
            other => other?,
        };
        let catalog = Arc::clone(cursor.catalog());
        *kept = Some(cursor);
        Ok(catalog)
    }

    /// Takes a cursor to the head, or a new one if that is nearer.
    fn follow(&self, cursor: Option<Cursor>) -> Result<Cursor, StreamError> {
        let head = self.log.head().lsn;
        let near = cursor.filter(|cursor| head.bytes_since(cursor.position()) <= FOLLOW_BYTES_MAX);
        let mut cursor = match near {
            Some(cursor) => cursor,
            None => self.log.cursor_at(head)?,
        };
        // The cursor applies what changes the catalog also in blocks that nobody wants.
        while !matches!(cursor.step_with(&|_, _| false, RUN)?, Step::Head) {}
        Ok(cursor)
    }
}
