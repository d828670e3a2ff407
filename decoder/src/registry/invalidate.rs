//! Ending what a slot stands for: it stays as a name that says why, until somebody drops it.

use super::error::RegistryError;
use super::operations::{Registry, key};
use super::slot::{Invalidation, Slot};
use super::value;

impl Registry {
    /// Invalidates the slots for which `reason` has one; durable when this returns. Their leases end. Returns them.
    pub fn invalidate(
        &self,
        reason: impl Fn(&Slot) -> Option<Invalidation>,
    ) -> Result<Vec<Slot>, RegistryError> {
        self.change(|slot| {
            let reason = reason(slot).filter(|_| slot.invalidation.is_none());
            if reason.is_some() {
                slot.invalidation = reason;
                slot.lease = None;
            }
            reason.is_some()
        })
    }

    /// Changes the slots for which `change` is true; durable when this returns. Returns them.
    pub(super) fn change(
        &self,
        change: impl Fn(&mut Slot) -> bool,
    ) -> Result<Vec<Slot>, RegistryError> {
        let _flushing = self.flushing.lock();
        let mut before = Vec::new();
        let mut changed = Vec::new();
        let put = {
            let mut table = self.table.lock();
            table.slots.values_mut().try_for_each(|entry| {
                let mut slot = entry.slot.clone();
                if !change(&mut slot) {
                    return Ok(());
                }
                before.push(std::mem::replace(&mut entry.slot, slot.clone()));
                changed.push(slot.clone());
                self.store.put(&key(&slot.name), &value::encode(&slot))
            })
        };
        if changed.is_empty() {
            return Ok(changed);
        }
        if let Err(error) = put.and_then(|()| self.store.flush()) {
            let mut table = self.table.lock();
            for slot in before {
                if let Some(entry) = table.slots.get_mut(&slot.name) {
                    entry.slot = slot;
                    entry.dirty = true;
                }
            }
            return Err(error.into());
        }
        self.note_durable(&changed);
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use pg_proto::Lsn;
    use storage_format::watermark::Cut;

    use super::*;
    use crate::registry::{Holder, MemoryStore, NewSlot, SlotChange};

    fn registry() -> Registry {
        let registry =
            Registry::with_store(Box::<MemoryStore>::default(), false, Instant::now()).unwrap();
        for lsn in [10, 20, 30] {
            let new = NewSlot {
                name: format!("slot_{lsn}"),
                start_lsn: Lsn(lsn),
                ..NewSlot::default()
            };
            registry.create(new, Instant::now()).unwrap();
        }
        registry
    }

    #[test]
    fn what_is_invalid_is_refused_until_it_is_dropped() {
        let (registry, now) = (registry(), Instant::now());
        let holder: Holder = "fanout-1/7".parse().unwrap();
        registry.acquire("slot_10", &holder, now).unwrap();
        let behind = |slot: &Slot| (slot.restart_lsn < Lsn(15)).then_some(Invalidation::WalRemoved);
        let invalid = registry.invalidate(behind).unwrap();
        assert_eq!(invalid.len(), 1);
        assert_eq!(registry.invalidate(behind).unwrap(), []);
        let lost = registry.report(&holder, &[("slot_10".to_owned(), Lsn(40))], now);
        assert_eq!(lost, ["slot_10"]);
        registry.release("slot_10", &holder, Lsn(40), now).unwrap();
        assert_eq!(registry.get("slot_10").unwrap().confirmed_lsn, Lsn(10));
        for refused in [
            registry.acquire("slot_10", &holder, now),
            registry.alter("slot_10", None, SlotChange::default(), now),
        ] {
            let invalidated = matches!(refused, Err(RegistryError::Invalidated { .. }));
            assert!(invalidated, "{refused:?}");
        }
        registry.acquire("slot_20", &holder, now).unwrap();
        registry.drop_slot("slot_10", None, false, now).unwrap();
    }

    #[test]
    fn a_cut_ends_the_slots_that_have_something_of_it_and_takes_back_the_others() {
        let registry = registry();
        let cut = Cut {
            lsn: Lsn(15),
            epoch: 3,
            first_commit_lsn: Some(Lsn(25)),
        };
        let ended = registry.note_cut(cut).unwrap();
        let names: Vec<&str> = ended.iter().map(|slot| slot.name.as_str()).collect();
        assert_eq!(names, ["slot_30"]);
        assert_eq!(ended[0].invalidation, Some(Invalidation::Forked));
        assert_eq!(registry.get("slot_20").unwrap().confirmed_lsn, Lsn(15));
        assert_eq!(registry.get("slot_10").unwrap().confirmed_lsn, Lsn(10));
        // Once: afterwards a slot may well be there.
        let holder: Holder = "fanout-1/7".parse().unwrap();
        let now = Instant::now();
        registry.acquire("slot_20", &holder, now).unwrap();
        let none = registry.report(&holder, &[("slot_20".to_owned(), Lsn(40))], now);
        assert_eq!(none, [""; 0]);
        assert_eq!(registry.note_cut(cut).unwrap(), []);
        assert_eq!(registry.get("slot_20").unwrap().confirmed_lsn, Lsn(40));
    }
}
