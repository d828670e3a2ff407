//! What the registry needs of its store.

#[cfg(test)]
use std::collections::BTreeMap;
use std::fmt;

#[cfg(test)]
use parking_lot::Mutex;

/// The store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error(
        "the registry in {folder} is in use by another process: one log directory has one decoder"
    )]
    Locked {
        /// Where it is.
        folder: String,
    },
    /// An operation failed.
    #[error("cannot {action} the registry")]
    Failed {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Keys and their values.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys and values. What was put is durable after a flush.
pub trait Store: fmt::Debug + Send + Sync {
    /// All pairs whose key begins with `prefix`, in the order of their keys.
    fn scan(&self, prefix: &[u8]) -> Result<Pairs, StoreError>;
    /// Sets a value.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;
    /// Removes a key.
    fn remove(&self, key: &[u8]) -> Result<(), StoreError>;
    /// Makes everything durable.
    fn flush(&self) -> Result<(), StoreError>;
}

/// A store without durability.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct MemoryStore(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

#[cfg(test)]
impl Store for MemoryStore {
    fn scan(&self, prefix: &[u8]) -> Result<Pairs, StoreError> {
        let pairs = self.0.lock();
        let found = pairs.range(prefix.to_vec()..);
        Ok(found
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.0.lock().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn remove(&self, key: &[u8]) -> Result<(), StoreError> {
        self.0.lock().remove(key);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
