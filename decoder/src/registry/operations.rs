//! What may be done with slots.

use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pg_proto::Lsn;

use super::error::RegistryError;
use super::sled_store::SledStore;
use super::slot::{Holder, NewSlot, Slot, SlotChange, check_name};
use super::store::Store;
use super::table::Table;
use super::{meta, value};

/// How long a lease holds without a report. Fanouts report every second.
pub const LEASE: Duration = Duration::from_secs(10);

/// How often [`Registry::sweep`] is to be called.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Most slots that there can be.
pub const SLOTS_MAX: usize = 10_000;

const SLOT_PREFIX: &str = "slot/";

/// The slots. All methods may be called from any thread; those that flush block on the disk.
#[derive(Debug)]
pub struct Registry {
    pub(super) store: Box<dyn Store>,
    /// Also held while the store is changed, so that both change in the same order; never while it is flushed.
    pub(super) table: Mutex<Table>,
    /// Held from a change that is to be durable until it is, so that what is known to be durable changes in the same order;
    /// taken before the table.
    pub(super) flushing: Mutex<()>,
}

impl Registry {
    /// Opens the registry in `folder`, or makes a new one. `log_exists` says whether there are segments already: a new
    /// registry beside an old log has lost its slots.
    pub fn open(folder: &Path, log_exists: bool) -> Result<Self, RegistryError> {
        let store = SledStore::open(folder)?;
        Self::with_store(Box::new(store), log_exists, Instant::now())
    }

    /// The same over another store.
    pub fn with_store(
        store: Box<dyn Store>,
        log_exists: bool,
        now: Instant,
    ) -> Result<Self, RegistryError> {
        let lost = meta::found(store.as_ref(), log_exists)?;
        let slots = load(store.as_ref(), now + LEASE)?;
        Ok(Self {
            store,
            table: Mutex::new(Table::new(slots, lost, now)),
            flushing: Mutex::new(()),
        })
    }

    /// All slots, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Slot> {
        let table = self.table.lock();
        let entries = table.slots.values();
        entries.map(|entry| entry.slot.clone()).collect()
    }

    /// The lowest position that must be kept for each slot which needs one. Unlike [`Slot::restart_lsn`] it is durable:
    /// what was deleted for a position that a crash takes back would be missing afterwards.
    #[must_use]
    pub fn needs(&self) -> Vec<(String, Lsn)> {
        let table = self.table.lock();
        let slots = table.slots.iter();
        let slots = slots.filter_map(|(name, entry)| Some((name.clone(), entry.needs()?)));
        let leaving = table.leaving.iter();
        let leaving = leaving.filter_map(|(name, lsn)| Some((name.clone(), (*lsn)?)));
        slots.chain(leaving).collect()
    }

    /// One slot.
    pub fn get(&self, name: &str) -> Result<Slot, RegistryError> {
        Ok(self.table.lock().entry(name)?.slot.clone())
    }

    /// Makes a slot; durable when this returns.
    pub fn create(&self, new: NewSlot, now: Instant) -> Result<Slot, RegistryError> {
        check_name(&new.name)?;
        let _flushing = self.flushing.lock();
        let (slot, put) = {
            let mut table = self.table.lock();
            let slot = table.insert(new, now)?;
            let put = self.store.put(&key(&slot.name), &value::encode(&slot));
            (slot, put)
        };
        if let Err(error) = put.and_then(|()| self.store.flush()) {
            let mut table = self.table.lock();
            table.slots.remove(&slot.name);
            // What was put may become durable later; what was answered must hold then, too.
            let _ = self.store.remove(&key(&slot.name));
            return Err(error.into());
        }
        // One of the same name that had not left yet is overwritten.
        self.table.lock().leaving.remove(&slot.name);
        Ok(slot)
    }

    /// Drops a slot; durable when this returns. One whose lease another than `holder` has only with `force`.
    pub fn drop_slot(
        &self,
        name: &str,
        holder: Option<&Holder>,
        force: bool,
        now: Instant,
    ) -> Result<(), RegistryError> {
        let _flushing = self.flushing.lock();
        {
            let mut table = self.table.lock();
            if let Some(holder) = holder {
                table.admit(holder)?;
            }
            let entry = table.entry(name)?;
            if !force {
                entry.check_free(holder, now)?;
            }
            self.store.remove(&key(name))?;
            table.leave(name);
        }
        self.store.flush()?;
        self.table.lock().leaving.remove(name);
        Ok(())
    }

    /// Changes a slot that nobody but `holder` has; durable when this returns. A position may also be one further back: it
    /// is for the caller to know that it is kept.
    pub fn alter(
        &self,
        name: &str,
        holder: Option<&Holder>,
        change: SlotChange,
        now: Instant,
    ) -> Result<Slot, RegistryError> {
        let _flushing = self.flushing.lock();
        let (before, slot, put) = {
            let mut table = self.table.lock();
            if let Some(holder) = holder {
                table.admit(holder)?;
            }
            let entry = table.entry(name)?;
            entry.check_valid()?;
            entry.check_free(holder, now)?;
            let before = entry.slot.clone();
            change.apply(&mut entry.slot);
            let slot = entry.slot.clone();
            let put = self.store.put(&key(name), &value::encode(&slot));
            (before, slot, put)
        };
        if let Err(error) = put.and_then(|()| self.store.flush()) {
            if let Some(entry) = self.table.lock().slots.get_mut(name) {
                entry.slot = before;
                entry.dirty = true;
            }
            return Err(error.into());
        }
        self.note_durable([&slot]);
        Ok(slot)
    }

    /// Takes or renews the lease.
    pub fn acquire(
        &self,
        name: &str,
        holder: &Holder,
        now: Instant,
    ) -> Result<Slot, RegistryError> {
        let mut table = self.table.lock();
        table.admit(holder)?;
        let entry = table.entry(name)?;
        entry.check_valid()?;
        entry.check_free(Some(holder), now)?;
        entry.renew(holder, now);
        Ok(entry.slot.clone())
    }

    /// Notes by which number the session goes that uses a slot at its holder, for others to see.
    pub fn note_pid(&self, name: &str, holder: &Holder, pid: u32) {
        let mut table = self.table.lock();
        let lease = table.slots.get_mut(name);
        let lease = lease.and_then(|entry| entry.slot.lease.as_mut());
        if let Some(lease) = lease.filter(|lease| lease.holder == *holder) {
            lease.pid = pid;
        }
    }

    /// Gives the lease back, with the last confirmed position. A temporary slot ends with it.
    pub fn release(
        &self,
        name: &str,
        holder: &Holder,
        confirmed: Lsn,
        now: Instant,
    ) -> Result<(), RegistryError> {
        let mut table = self.table.lock();
        table.admit(holder)?;
        let entry = table.entry(name)?;
        entry.check_free(Some(holder), now)?;
        if entry.slot.invalidation.is_none() {
            entry.slot.confirm(confirmed);
        }
        entry.slot.lease = None;
        entry.dirty = true;
        if entry.slot.temporary {
            self.store.remove(&key(name))?;
            table.leave(name);
        }
        Ok(())
    }

    /// Takes the positions that a holder reports for its slots and renews its leases. Returns the slots that it no
    /// longer has.
    #[must_use]
    pub fn report(
        &self,
        holder: &Holder,
        positions: &[(String, Lsn)],
        now: Instant,
    ) -> Vec<String> {
        let mut table = self.table.lock();
        let gone = table.admit(holder).is_err();
        let mut lost = Vec::new();
        for (name, confirmed) in positions {
            let entry = table.slots.get_mut(name);
            let entry = entry.filter(|entry| {
                !gone && entry.check_valid().is_ok() && entry.check_free(Some(holder), now).is_ok()
            });
            match entry {
                Some(entry) => {
                    entry.dirty |= entry.slot.confirm(*confirmed);
                    entry.renew(holder, now);
                }
                None => lost.push(name.clone()),
            }
        }
        lost
    }

    /// Ends temporary slots whose lease has ended. To be called every [`SWEEP_INTERVAL`]; if it was not, this process
    /// was stopped and could not hear reports: leases are extended by that time.
    pub fn sweep(&self, now: Instant) -> Result<Vec<String>, RegistryError> {
        let mut table = self.table.lock();
        let ended = table.sweep(now);
        for name in &ended {
            self.store.remove(&key(name))?;
        }
        Ok(ended)
    }

    /// Makes the positions and holders of now durable.
    pub fn persist(&self) -> Result<(), RegistryError> {
        let _flushing = self.flushing.lock();
        let mut written = Vec::new();
        let left: Vec<String>;
        let put = {
            let mut table = self.table.lock();
            left = table.leaving.keys().cloned().collect();
            let mut dirty = table.slots.iter_mut().filter(|(_, entry)| entry.dirty);
            let put = dirty.try_for_each(|(name, entry)| {
                self.store.put(&key(name), &value::encode(&entry.slot))?;
                entry.dirty = false;
                written.push(entry.slot.clone());
                Ok(())
            });
            if written.is_empty() && put.is_ok() && left.is_empty() {
                return Ok(());
            }
            put
        };
        if let Err(error) = put.and_then(|()| self.store.flush()) {
            let mut table = self.table.lock();
            for slot in &written {
                if let Some(entry) = table.slots.get_mut(&slot.name) {
                    entry.dirty = true;
                }
            }
            return Err(error.into());
        }
        self.note_durable(&written);
        let mut table = self.table.lock();
        table.leaving.retain(|name, _| !left.contains(name));
        Ok(())
    }

    /// After a flush of these values.
    pub(super) fn note_durable<'a>(&self, slots: impl IntoIterator<Item = &'a Slot>) {
        let mut table = self.table.lock();
        for slot in slots {
            if let Some(entry) = table.slots.get_mut(&slot.name) {
                entry.note_durable(slot);
            }
        }
    }
}

pub(super) fn key(name: &str) -> Vec<u8> {
    format!("{SLOT_PREFIX}{name}").into_bytes()
}

fn load(store: &dyn Store, lease_until: std::time::Instant) -> Result<Vec<Slot>, RegistryError> {
    let stored = store.scan(SLOT_PREFIX.as_bytes())?;
    let slots = stored.into_iter().map(|(key, stored)| {
        let key = String::from_utf8_lossy(&key).into_owned();
        let name = key.strip_prefix(SLOT_PREFIX).unwrap_or(&key);
        value::decode(name, &stored, lease_until)
            .map_err(|source| RegistryError::Value { key, source })
    });
    slots.collect()
}
