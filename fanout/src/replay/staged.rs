//! The files of transactions that the source streams before their end, as far as somebody wants them.
//!
//! The decoder writes them below the log's folder `staging`, and tells with the head that there is something new. Who
//! follows them has them open: what the decoder removes stays readable to the end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use storage_format::FormatError;
use storage_format::log::Log;
use storage_format::staging::StagedReader;
use tokio::sync::watch;

/// One file; its number is never used again.
#[derive(Debug)]
pub(super) struct StagedFile {
    pub(super) number: u64,
    pub(super) reader: StagedReader,
}

/// The files that are there, and a number that is another one whenever something happened to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) files: Arc<[Arc<StagedFile>]>,
    changes: u64,
}

/// Looks at the folder for all streams of this process. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct StagedFiles {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Arc<Log>,
    listing: watch::Sender<Listing>,
    known: Mutex<Known>,
    sending: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    /// By inode: the file, and its length when it was last looked at.
    files: HashMap<u64, (Arc<StagedFile>, u64)>,
    count: u64,
    failed: bool,
}

/// How much is sent before its transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyCounts {
    /// Transactions of which a subscriber has a part now; one counts for each of its subscribers.
    pub transactions: u64,
    /// Bytes of staged blocks that subscribers were given.
    pub bytes: u64,
}

/// Counts one transaction that a subscriber has a part of.
#[derive(Debug)]
pub(super) struct Sending(Arc<Shared>);

impl StagedFiles {
    pub(crate) fn new(log: Arc<Log>) -> Self {
        Self {
            shared: Arc::new(Shared {
                log,
                listing: watch::Sender::default(),
                known: Mutex::default(),
                sending: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
            }),
        }
    }

    /// The files from now on.
    pub(super) fn follow(&self) -> watch::Receiver<Listing> {
        let receiver = self.shared.listing.subscribe();
        self.look();
        receiver
    }

    /// Looks whether anything has changed, if that matters to anybody, and tells them.
    pub(crate) fn look(&self) {
        if self.shared.listing.receiver_count() == 0 {
            return;
        }
        let mut known = self.shared.known.lock();
        match known.look(&self.shared.log) {
            Ok(false) => known.failed = false,
            Ok(true) => {
                known.failed = false;
                let files = known.files.values().map(|(file, _)| Arc::clone(file));
                let files = files.collect();
                self.shared.listing.send_modify(|listing| {
                    listing.files = files;
                    listing.changes += 1;
                });
            }
            // Transactions come when they have committed.
            Err(error) if !known.failed => {
                known.failed = true;
                tracing::warn!(
                    error = service::cli::causes(&error),
                    "can't look at transactions that are streamed before their end"
                );
            }
            Err(_) => {}
        }
    }

    /// What is sent now.
    pub(crate) fn counts(&self) -> EarlyCounts {
        EarlyCounts {
            transactions: self.shared.sending.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn sending(&self) -> Sending {
        self.shared.sending.fetch_add(1, Ordering::Relaxed);
        Sending(Arc::clone(&self.shared))
    }

    pub(super) fn count_bytes(&self, bytes: u64) {
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Known {
    /// True if anything is other than at the last look.
    fn look(&mut self, log: &Log) -> Result<bool, FormatError> {
        let mut before = std::mem::take(&mut self.files);
        let mut changed = false;
        for (path, inode) in StagedReader::list(log.directory())? {
            // As long as a file is open here its inode is no other's.
            let (file, length) = match before.remove(&inode) {
                Some(known) => known,
                None => match StagedReader::open(&path)? {
                    None => continue,
                    Some(reader) => {
                        self.count += 1;
                        let number = self.count;
                        (Arc::new(StagedFile { number, reader }), 0)
                    }
                },
            };
            let now = file.reader.length()?;
            changed |= now != length;
            self.files.insert(file.reader.inode(), (file, now));
        }
        Ok(changed || !before.is_empty())
    }
}
