//! The registry's store in sled.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use storage_format::failpoint::hit;

use super::store::{Pairs, Store, StoreError};

/// The registry is small: a few hundred bytes a slot.
const CACHE_BYTES: u64 = 8 << 20;
/// How often, and after how long, a database that is in use is tried again.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// A sled database. One process has it open at a time.
///
/// After a failed write sled refuses everything for good, also when its disk has room again. So what was put since the
/// last flush is kept here, and a database that has failed is opened anew at the next flush.
#[derive(Debug)]
pub struct SledStore {
    folder: PathBuf,
    /// Held while it is flushed.
    database: Mutex<Option<sled::Db>>,
    pending: Mutex<Pending>,
}

/// What is not durable yet, newest last.
#[derive(Debug, Default)]
struct Pending {
    flushing: Changes,
    new: Changes,
}

/// Keys with their new values; `None`: removed.
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

impl SledStore {
    /// Opens or creates the database in `folder`.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let database = open(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            database: Mutex::new(Some(database)),
            pending: Mutex::default(),
        })
    }

    fn change(&self, key: &[u8], value: Option<&[u8]>) {
        let mut pending = self.pending.lock();
        pending.new.insert(key.to_vec(), value.map(<[u8]>::to_vec));
    }

    /// With the database, which is opened if it has failed before; closed, if this fails.
    fn with<T>(
        &self,
        work: impl FnOnce(&sled::Db) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut place = self.database.lock();
        let database = match place.take() {
            Some(database) => database,
            None => open(&self.folder)?,
        };
        let worked = work(&database);
        if worked.is_ok() {
            *place = Some(database);
        } else {
            close(database);
        }
        worked
    }

    /// What is to be written now. What a flush that failed had is written again.
    fn begin_flush(&self) -> Changes {
        let mut pending = self.pending.lock();
        let Pending { flushing, new } = &mut *pending;
        flushing.append(new);
        flushing.clone()
    }
}

/// sled syncs its file when it is closed, and panics where that fails, as on a disk that turned read-only. What is not
/// flushed is not relied on.
fn close(database: sled::Db) {
    if catch_unwind(AssertUnwindSafe(|| drop(database))).is_err() {
        tracing::error!("closing the registry failed");
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        if let Some(database) = self.database.get_mut().take() {
            close(database);
        }
    }
}

/// A database that was dropped is let go of by sled's own threads, a little later.
fn open(folder: &Path) -> Result<sled::Db, StoreError> {
    let mut tries = LOCK_TRIES;
    loop {
        let opened = sled::Config::new()
            .path(folder)
            .cache_capacity(CACHE_BYTES)
            // Flushed explicitly, so that it is known what is durable.
            .flush_every_ms(None)
            .open()
            .map_err(|error| open_error(folder, error));
        tries -= 1;
        if tries == 0 || !matches!(opened, Err(StoreError::Locked { .. })) {
            return opened;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// sled tells a lock that is taken from other errors by its text only.
fn open_error(folder: &Path, error: sled::Error) -> StoreError {
    match &error {
        sled::Error::Io(io) if io.to_string().contains("could not acquire lock") => {
            StoreError::Locked {
                folder: folder.display().to_string(),
            }
        }
        _ => failed("open")(error),
    }
}

fn failed(action: &'static str) -> impl Fn(sled::Error) -> StoreError {
    move |source| StoreError::Failed {
        action,
        source: Box::new(source),
    }
}

fn write(database: &sled::Db, changes: &Changes) -> Result<(), StoreError> {
    for (key, value) in changes {
        let written = match value {
            Some(value) => database.insert(key.as_slice(), value.as_slice()),
            None => database.remove(key.as_slice()),
        };
        written.map_err(failed("write"))?;
    }
    database.flush().map(drop).map_err(failed("flush"))
}

impl Store for SledStore {
    fn scan(&self, prefix: &[u8]) -> Result<Pairs, StoreError> {
        let stored: sled::Result<Vec<_>> = self.with(|database| {
            let pairs = database.scan_prefix(prefix);
            Ok(pairs.collect())
        })?;
        let stored = stored.map_err(failed("read"))?;
        let stored = stored.into_iter();
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> = stored
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect();
        let pending = self.pending.lock();
        for (key, value) in pending.flushing.iter().chain(&pending.new) {
            match value {
                _ if !key.starts_with(prefix) => {}
                Some(value) => drop(found.insert(key.clone(), value.clone())),
                None => drop(found.remove(key)),
            }
        }
        Ok(found.into_iter().collect())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.change(key, Some(value));
        Ok(())
    }

    fn remove(&self, key: &[u8]) -> Result<(), StoreError> {
        self.change(key, None);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        hit("registry.before_flush");
        self.with(|database| {
            // Behind the lock of the database, so that what is written later is also newer.
            write(database, &self.begin_flush())?;
            self.pending.lock().flushing.clear();
            Ok(())
        })?;
        hit("registry.flushed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_flushed_and_is_open_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry");
        let store = SledStore::open(&path).unwrap();
        store.put(b"a/1", b"one").unwrap();
        store.put(b"a/2", b"two").unwrap();
        store.put(b"b/1", b"other").unwrap();
        store.remove(b"a/2").unwrap();
        store.flush().unwrap();
        assert!(matches!(
            SledStore::open(&path),
            Err(StoreError::Locked { .. })
        ));
        drop(store);
        let store = SledStore::open(&path).unwrap();
        assert_eq!(
            store.scan(b"a/").unwrap(),
            [(b"a/1".to_vec(), b"one".to_vec())]
        );
    }

    /// As on a disk that was full for a while: sled itself would refuse everything from then on.
    #[test]
    fn goes_on_after_a_database_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry");
        let store = SledStore::open(&path).unwrap();
        store.put(b"a/1", b"one").unwrap();
        store.flush().unwrap();
        store.put(b"a/2", b"two").unwrap();
        store.remove(b"a/1").unwrap();
        let failing = store.with(|database| -> Result<(), _> {
            write(database, &store.begin_flush()).unwrap();
            Err(failed("flush")(sled::Error::Unsupported(
                "a test".to_owned(),
            )))
        });
        failing.unwrap_err();
        let expected = [(b"a/2".to_vec(), b"two".to_vec())];
        assert_eq!(store.scan(b"a/").unwrap(), expected);
        store.put(b"a/2", b"newer").unwrap();
        assert_eq!(store.scan(b"a/").unwrap()[0].1, b"newer");
        store.flush().unwrap();
        drop(store);
        let store = SledStore::open(&path).unwrap();
        let expected = [(b"a/2".to_vec(), b"newer".to_vec())];
        assert_eq!(store.scan(b"a/").unwrap(), expected);
    }
}
