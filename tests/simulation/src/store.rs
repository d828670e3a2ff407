//! The registry's store: what was put is there while the machine is, and durable after a flush.

use std::collections::BTreeMap;
use std::sync::Arc;

use decoder::registry::{Pairs, Store, StoreError};
use parking_lot::Mutex;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Clones are the same store.
#[derive(Clone, Debug, Default)]
pub struct SimulatedStore(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    now: Content,
    durable: Content,
}

impl SimulatedStore {
    /// What was not flushed is gone.
    pub fn lose_power(&self) {
        let mut contents = self.0.lock();
        contents.now = contents.durable.clone();
    }
}

impl Store for SimulatedStore {
    fn scan(&self, prefix: &[u8]) -> Result<Pairs, StoreError> {
        let contents = self.0.lock();
        let found = contents.now.range(prefix.to_vec()..);
        Ok(found
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.0.lock().now.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn remove(&self, key: &[u8]) -> Result<(), StoreError> {
        self.0.lock().now.remove(key);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        let mut contents = self.0.lock();
        contents.durable = contents.now.clone();
        Ok(())
    }
}
