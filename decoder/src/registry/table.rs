//! The slots in memory: who may do what with which.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use pg_proto::{Lsn, PgTimestamp};

use super::error::RegistryError;
use super::operations::{LEASE, SLOTS_MAX, SWEEP_INTERVAL};
use super::slot::{Holder, Lease, NewSlot, Slot};

/// Names of holders that are remembered although they hold nothing.
const INCARNATIONS_MAX: usize = 1_000;

/// All slots.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) slots: BTreeMap<String, Entry>,
    /// What slots need that were dropped, until that is durable: after a crash before it they are there again.
    pub(super) leaving: BTreeMap<String, Option<Lsn>>,
    /// Newest incarnation seen of each holder's name.
    incarnations: HashMap<String, u64>,
    pub(super) lost: bool,
    swept_at: Instant,
}

/// A slot, and how it differs from the store.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) slot: Slot,
    /// Whether the store has an older value.
    pub(super) dirty: bool,
    /// What the durable value needs; `None` if it needs nothing.
    durable: Option<Lsn>,
}

impl Table {
    pub(super) fn new(slots: impl IntoIterator<Item = Slot>, lost: bool, now: Instant) -> Self {
        let mut table = Self {
            slots: BTreeMap::new(),
            leaving: BTreeMap::new(),
            incarnations: HashMap::new(),
            lost,
            swept_at: now,
        };
        for slot in slots {
            if let Some(lease) = &slot.lease {
                table.note_incarnation(&lease.holder);
            }
            let name = slot.name.clone();
            table.slots.insert(name, Entry::durable(slot));
        }
        table.end_leases_of_superseded();
        table
    }

    /// What was stored of one slot may be older than what was stored of another one of the same holder.
    fn end_leases_of_superseded(&mut self) {
        for entry in self.slots.values_mut() {
            let held = entry.slot.lease.as_ref().map(|lease| &lease.holder);
            if held.is_some_and(|held| self.incarnations[&held.name] > held.incarnation) {
                entry.slot.lease = None;
                entry.dirty = true;
            }
        }
    }

    pub(super) fn entry(&mut self, name: &str) -> Result<&mut Entry, RegistryError> {
        self.slots
            .get_mut(name)
            .ok_or_else(|| RegistryError::NotFound {
                name: name.chars().take(64).collect(),
            })
    }

    pub(super) fn insert(&mut self, new: NewSlot, now: Instant) -> Result<Slot, RegistryError> {
        if let Some(holder) = &new.holder {
            self.admit(holder)?;
        } else if new.temporary {
            return Err(RegistryError::HolderMissing { name: new.name });
        }
        if self.slots.contains_key(&new.name) {
            return Err(RegistryError::Exists { name: new.name });
        }
        if self.slots.len() >= SLOTS_MAX {
            return Err(RegistryError::TooMany {
                count: self.slots.len(),
            });
        }
        let slot = Slot {
            name: new.name,
            confirmed_lsn: new.start_lsn,
            restart_lsn: new.start_lsn,
            temporary: new.temporary,
            two_phase: new.two_phase,
            two_phase_at: if new.two_phase {
                new.start_lsn
            } else {
                Lsn::INVALID
            },
            failover: new.failover,
            creator: new.creator,
            plugin: new.plugin,
            created_at: PgTimestamp::now(),
            lease: new.holder.map(|holder| Lease {
                holder,
                until: now + LEASE,
                pid: 0,
            }),
            invalidation: None,
        };
        let entry = Entry::durable(slot.clone());
        self.slots.insert(slot.name.clone(), entry);
        Ok(slot)
    }

    /// Refuses a holder of which a newer incarnation was seen; takes from older ones what they held.
    pub(super) fn admit(&mut self, holder: &Holder) -> Result<(), RegistryError> {
        let newest = self.incarnations.get(&holder.name).copied();
        if let Some(newest) = newest.filter(|newest| *newest > holder.incarnation) {
            return Err(RegistryError::Superseded {
                holder: holder.clone(),
                newest,
            });
        }
        if newest != Some(holder.incarnation) {
            self.note_incarnation(holder);
            self.end_leases_of_older(holder);
        }
        Ok(())
    }

    fn note_incarnation(&mut self, holder: &Holder) {
        let newest = self.incarnations.entry(holder.name.clone()).or_default();
        *newest = holder.incarnation.max(*newest);
    }

    /// Temporary slots go with the next sweep.
    fn end_leases_of_older(&mut self, holder: &Holder) {
        for entry in self.slots.values_mut() {
            let held = entry.slot.lease.as_ref().map(|lease| &lease.holder);
            if held.is_some_and(|held| held.name == holder.name && held != holder) {
                entry.slot.lease = None;
                entry.dirty = true;
            }
        }
    }

    /// Removes a slot that the store will not have after the next flush.
    pub(super) fn leave(&mut self, name: &str) {
        if let Some(entry) = self.slots.remove(name) {
            self.leaving.insert(name.to_owned(), entry.needs());
        }
    }

    /// Removes and returns the temporary slots whose lease has ended.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<String> {
        let away = now.saturating_duration_since(self.swept_at);
        self.swept_at = now;
        if away > SWEEP_INTERVAL * 3 {
            let entries = self.slots.values_mut();
            let leases = entries.filter_map(|entry| entry.slot.lease.as_mut());
            leases.for_each(|lease| lease.until += away);
        }
        let ended = |entry: &Entry| entry.slot.temporary && entry.slot.lease_at(now).is_none();
        let found = self.slots.iter().filter(|(_, entry)| ended(entry));
        let names: Vec<String> = found.map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.leave(name);
        }
        self.forget_incarnations();
        names
    }

    fn forget_incarnations(&mut self) {
        if self.incarnations.len() > INCARNATIONS_MAX {
            let leases = self
                .slots
                .values()
                .filter_map(|entry| entry.slot.lease.as_ref());
            let holding: Vec<&str> = leases.map(|lease| lease.holder.name.as_str()).collect();
            self.incarnations
                .retain(|name, _| holding.contains(&name.as_str()));
        }
    }
}

impl Entry {
    /// One that the store has as it is, or will have before anybody learns of it.
    fn durable(slot: Slot) -> Self {
        Self {
            durable: slot.needs(),
            dirty: false,
            slot,
        }
    }

    /// A value of it has become durable.
    pub(super) fn note_durable(&mut self, slot: &Slot) {
        self.durable = slot.needs();
    }

    /// The lowest position that must be kept for it, also if this process dies now.
    pub(super) fn needs(&self) -> Option<Lsn> {
        [self.slot.needs(), self.durable]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn renew(&mut self, holder: &Holder, now: Instant) {
        let before = self.slot.lease.take();
        let same = before.filter(|lease| lease.holder == *holder);
        self.dirty |= same.is_none();
        self.slot.lease = Some(Lease {
            holder: holder.clone(),
            until: now + LEASE,
            pid: same.map_or(0, |lease| lease.pid),
        });
    }

    /// Fails if it was invalidated.
    pub(super) fn check_valid(&self) -> Result<(), RegistryError> {
        match self.slot.invalidation {
            None => Ok(()),
            Some(reason) => Err(RegistryError::Invalidated {
                name: self.slot.name.clone(),
                reason,
            }),
        }
    }

    /// Fails if somebody else than `holder` has a lease in force.
    pub(super) fn check_free(
        &self,
        holder: Option<&Holder>,
        now: Instant,
    ) -> Result<(), RegistryError> {
        match self.slot.lease_at(now) {
            Some(lease) if Some(&lease.holder) != holder => Err(RegistryError::Held {
                name: self.slot.name.clone(),
                holder: lease.holder.clone(),
                pid: lease.pid,
                left: lease.until.saturating_duration_since(now),
            }),
            _ => Ok(()),
        }
    }
}
