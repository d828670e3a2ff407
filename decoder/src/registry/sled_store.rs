//! The registry's store in sled.

use std::path::Path;

use storage_format::failpoint::hit;

use super::store::{Pairs, Store, StoreError};

/// The registry is small: a few hundred bytes a slot.
const CACHE_BYTES: u64 = 8 << 20;

/// A sled database. One process has it open at a time.
#[derive(Debug)]
pub struct SledStore(sled::Db);

impl SledStore {
    /// Opens or creates the database in `folder`.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        sled::Config::new()
            .path(folder)
            .cache_capacity(CACHE_BYTES)
            // Flushed explicitly, so that it is known what is durable.
            .flush_every_ms(None)
            .open()
            .map(Self)
            .map_err(|error| open_error(folder, error))
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

impl Store for SledStore {
    fn scan(&self, prefix: &[u8]) -> Result<Pairs, StoreError> {
        self.0
            .scan_prefix(prefix)
            .map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .collect::<Result<_, _>>()
            .map_err(failed("read"))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.0.insert(key, value).map(drop).map_err(failed("write"))
    }

    fn remove(&self, key: &[u8]) -> Result<(), StoreError> {
        self.0.remove(key).map(drop).map_err(failed("write"))
    }

    fn flush(&self) -> Result<(), StoreError> {
        hit("registry.before_flush");
        self.0.flush().map_err(failed("flush"))?;
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
}
