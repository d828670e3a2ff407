//! What the registry keeps beside the slots.

use pg_proto::read::Reader;
use storage_format::watermark::Cut;

use super::error::RegistryError;
use super::operations::Registry;
use super::slot::{Invalidation, Slot};
use super::store::{Store, StoreError};
use super::value::{put_str, take_str};
use crate::catalog::Secret;

const CREATED_KEY: &[u8] = b"meta/created";
const LOST_KEY: &[u8] = b"meta/lost";
/// The cut of the log that was heeded last: its number, 8 bytes.
const CUT_KEY: &[u8] = b"meta/cut";
const SECRETS_KEY: &str = "meta/secrets";

/// Notes that the registry exists. True if slots of an earlier one were lost, now or before, and nobody has said
/// that this is all right.
pub(super) fn found(store: &dyn Store, log_exists: bool) -> Result<bool, StoreError> {
    if store.scan(CREATED_KEY)?.is_empty() {
        if log_exists {
            store.put(LOST_KEY, b"1")?;
        }
        store.put(CREATED_KEY, b"1")?;
        store.flush()?;
    }
    Ok(!store.scan(LOST_KEY)?.is_empty())
}

impl Registry {
    /// Whether slots that there once were may be unknown.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.table.lock().lost
    }

    /// An operator has seen that slots were lost, and goes on without them.
    pub fn acknowledge_loss(&self) -> Result<(), RegistryError> {
        self.table.lock().lost = false;
        self.store.remove(LOST_KEY)?;
        self.store.flush()?;
        Ok(())
    }

    /// Invalidates the slots whose subscribers have something that was cut off the log, and takes back to the cut those that are
    /// past it without having any of that; once for each cut, since later on a slot may well be past that position. Durable
    /// when this returns. Returns the slots that are invalid now.
    pub fn note_cut(&self, cut: Cut) -> Result<Vec<Slot>, RegistryError> {
        let known = self.store.scan(CUT_KEY)?.pop();
        let known = known.and_then(|(_, value)| value.first_chunk().copied());
        if known.map_or(0, u64::from_be_bytes) >= cut.epoch {
            return Ok(Vec::new());
        }
        let concerned = |slot: &Slot| {
            cut.concerns(slot.confirmed_lsn)
                .then_some(Invalidation::Forked)
        };
        let ended = self.invalidate(concerned)?;
        self.change(|slot| {
            let past = slot.invalidation.is_none() && slot.confirmed_lsn > cut.lsn;
            if past {
                slot.confirmed_lsn = cut.lsn;
                slot.restart_lsn = cut.lsn;
            }
            past
        })?;
        self.store.put(CUT_KEY, &cut.epoch.to_be_bytes())?;
        self.store.flush()?;
        Ok(ended)
    }

    /// The secrets that prove messages of the source, newest first.
    pub fn secrets(&self) -> Result<Vec<Secret>, RegistryError> {
        let Some((_, value)) = self.store.scan(SECRETS_KEY.as_bytes())?.pop() else {
            return Ok(Vec::new());
        };
        let mut reader = Reader::new(&value);
        let mut secrets = Vec::new();
        while !reader.is_empty() {
            let secret =
                take_str(&mut reader, "secret").map_err(|source| RegistryError::Value {
                    key: SECRETS_KEY.to_owned(),
                    source,
                })?;
            secrets.push(Secret::new(secret));
        }
        Ok(secrets)
    }

    /// Stores them; durable when this returns.
    pub fn store_secrets(&self, secrets: &[Secret]) -> Result<(), RegistryError> {
        let mut value = Vec::new();
        for secret in secrets {
            put_str(&mut value, secret.expose());
        }
        self.store.put(SECRETS_KEY.as_bytes(), &value)?;
        self.store.flush()?;
        Ok(())
    }
}
