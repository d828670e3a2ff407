//! The registry against a model that keeps the same facts in the plainest way.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use pg_proto::Lsn;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Create {
        slot: u8,
        temporary: bool,
        holder: u8,
    },
    Drop {
        slot: u8,
        holder: u8,
        force: bool,
    },
    Acquire {
        slot: u8,
        holder: u8,
    },
    Release {
        slot: u8,
        holder: u8,
        lsn: u64,
    },
    Report {
        slot: u8,
        holder: u8,
        lsn: u64,
    },
    Wait {
        millis: u64,
    },
    Stop {
        seconds: u64,
    },
    Reopen {
        persist: bool,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let (slot, holder, lsn) = (0..3u8, 0..4u8, 0..100u64);
    prop_oneof![
        3 => (slot.clone(), any::<bool>(), holder.clone())
            .prop_map(|(slot, temporary, holder)| Operation::Create { slot, temporary, holder }),
        1 => (slot.clone(), holder.clone(), any::<bool>())
            .prop_map(|(slot, holder, force)| Operation::Drop { slot, holder, force }),
        3 => (slot.clone(), holder.clone()).prop_map(|(slot, holder)| Operation::Acquire { slot, holder }),
        2 => (slot.clone(), holder.clone(), lsn.clone())
            .prop_map(|(slot, holder, lsn)| Operation::Release { slot, holder, lsn }),
        5 => (slot, holder, lsn).prop_map(|(slot, holder, lsn)| Operation::Report { slot, holder, lsn }),
        3 => (1..9_000u64).prop_map(|millis| Operation::Wait { millis }),
        1 => (4..60u64).prop_map(|seconds| Operation::Stop { seconds }),
        1 => any::<bool>().prop_map(|persist| Operation::Reopen { persist }),
    ]
}

/// Two fanouts of different names and two more processes of the first one, in the order of their incarnations.
fn holder(number: u8) -> Holder {
    let names = ["a/1", "b/1", "a/2", "a/3"];
    names[usize::from(number)].parse().unwrap()
}

fn slot_name(number: u8) -> String {
    format!("slot_{number}")
}

#[derive(Clone, Debug)]
struct Known {
    confirmed: u64,
    persisted: u64,
    temporary: bool,
    holder: Option<(Holder, Instant)>,
}

struct Model {
    slots: BTreeMap<String, Known>,
    newest_a: u64,
    now: Instant,
}

impl Model {
    /// What any request of this holder does first.
    fn admit(&mut self, holder: &Holder) -> bool {
        if holder.name != "a" {
            return true;
        }
        if holder.incarnation < self.newest_a {
            return false;
        }
        self.newest_a = holder.incarnation;
        for known in self.slots.values_mut() {
            if known
                .holder
                .as_ref()
                .is_some_and(|(held, _)| held.name == "a" && held != holder)
            {
                known.holder = None;
            }
        }
        true
    }

    fn is_free(&self, slot: &str, holder: &Holder) -> bool {
        self.slots.get(slot).is_some_and(|known| {
            known
                .holder
                .as_ref()
                .is_none_or(|(held, until)| held == holder || *until <= self.now)
        })
    }

    fn sweep(&mut self) {
        let now = self.now;
        self.slots.retain(|_, known| {
            !known.temporary || known.holder.as_ref().is_some_and(|(_, until)| *until > now)
        });
    }

    fn lease(&self, holder: &Holder) -> Option<(Holder, Instant)> {
        Some((holder.clone(), self.now + LEASE))
    }
}

fn apply(operation: &Operation, registry: &mut Option<Registry>, model: &mut Model, folder: &Path) {
    let current = registry.as_ref().unwrap();
    match operation {
        Operation::Create {
            slot,
            temporary,
            holder: number,
        } => {
            create(
                current,
                model,
                &slot_name(*slot),
                *temporary,
                &holder(*number),
            );
        }
        Operation::Drop {
            slot,
            holder: number,
            force,
        } => {
            let (name, holder) = (slot_name(*slot), holder(*number));
            let allowed = model.admit(&holder)
                && model.slots.contains_key(&name)
                && (*force || model.is_free(&name, &holder));
            let dropped = current.drop_slot(&name, Some(&holder), *force, model.now);
            assert_eq!(dropped.is_ok(), allowed, "{dropped:?}");
            if allowed {
                model.slots.remove(&name);
            }
        }
        Operation::Acquire {
            slot,
            holder: number,
        } => {
            let (name, holder) = (slot_name(*slot), holder(*number));
            let allowed = model.admit(&holder) && model.is_free(&name, &holder);
            let acquired = current.acquire(&name, &holder, model.now);
            assert_eq!(acquired.is_ok(), allowed, "{acquired:?}");
            if allowed {
                let lease = model.lease(&holder);
                model.slots.get_mut(&name).unwrap().holder = lease;
            }
        }
        Operation::Release {
            slot,
            holder: number,
            lsn,
        } => {
            release(current, model, &slot_name(*slot), &holder(*number), *lsn);
        }
        Operation::Report {
            slot,
            holder: number,
            lsn,
        } => {
            let (name, holder) = (slot_name(*slot), holder(*number));
            let allowed = model.admit(&holder) && model.is_free(&name, &holder);
            let lost = current.report(&holder, &[(name.clone(), Lsn(*lsn))], model.now);
            assert_eq!(lost.is_empty(), allowed);
            if allowed {
                let lease = model.lease(&holder);
                let known = model.slots.get_mut(&name).unwrap();
                known.confirmed = known.confirmed.max(*lsn);
                known.holder = lease;
            }
        }
        Operation::Wait { millis } => wait(current, model, Duration::from_millis(*millis)),
        Operation::Stop { seconds } => stop(current, model, Duration::from_secs(*seconds)),
        Operation::Reopen { persist } => reopen(registry, model, folder, *persist),
    }
}

fn create(registry: &Registry, model: &mut Model, name: &str, temporary: bool, holder: &Holder) {
    // Without a holder in the request nobody is admitted by it.
    let admitted = !temporary || model.admit(holder);
    let expected = admitted && !model.slots.contains_key(name);
    let new = NewSlot {
        name: name.to_owned(),
        start_lsn: Lsn(10),
        temporary,
        holder: temporary.then(|| holder.clone()),
        ..NewSlot::default()
    };
    let created = registry.create(new, model.now);
    assert_eq!(created.is_ok(), expected, "{created:?}");
    if expected {
        let known = Known {
            confirmed: 10,
            persisted: 10,
            temporary,
            holder: temporary.then(|| model.lease(holder)).flatten(),
        };
        model.slots.insert(name.to_owned(), known);
    }
}

fn release(registry: &Registry, model: &mut Model, name: &str, holder: &Holder, lsn: u64) {
    let allowed = model.admit(holder) && model.is_free(name, holder);
    let released = registry.release(name, holder, Lsn(lsn), model.now);
    assert_eq!(released.is_ok(), allowed, "{released:?}");
    if allowed {
        let known = model.slots.get_mut(name).unwrap();
        known.confirmed = known.confirmed.max(lsn);
        known.holder = None;
        if known.temporary {
            model.slots.remove(name);
        }
    }
}

/// Time passes, with a sweep every second.
fn wait(registry: &Registry, model: &mut Model, time: Duration) {
    let end = model.now + time;
    while model.now < end {
        model.now = end.min(model.now + SWEEP_INTERVAL);
        registry.sweep(model.now).unwrap();
        model.sweep();
    }
}

/// The process does not run for a while.
fn stop(registry: &Registry, model: &mut Model, time: Duration) {
    wait(registry, model, Duration::from_millis(1));
    model.now += time;
    for (_, until) in model
        .slots
        .values_mut()
        .filter_map(|known| known.holder.as_mut())
    {
        *until += time;
    }
    registry.sweep(model.now).unwrap();
    model.sweep();
}

fn reopen(registry: &mut Option<Registry>, model: &mut Model, folder: &Path, persist: bool) {
    // A sweep, so that both have removed the same.
    wait(registry.as_ref().unwrap(), model, Duration::from_millis(1));
    let before = registry.take().unwrap();
    if persist {
        before.persist().unwrap();
        for known in model.slots.values_mut() {
            known.persisted = known.confirmed;
        }
    }
    let holders: BTreeMap<String, Option<Holder>> = before
        .list()
        .into_iter()
        .map(|slot| (slot.name, slot.lease.map(|lease| lease.holder)))
        .collect();
    drop(before);
    let store = SledStore::open(folder).unwrap();
    let after = Registry::with_store(Box::new(store), true, model.now).unwrap();
    model.newest_a = 0;
    for slot in after.list() {
        let Some(known) = model.slots.get_mut(&slot.name) else {
            assert!(slot.temporary && !persist, "a dropped slot is back");
            // It would go again with the lease that it came back with.
            let dropped = after.drop_slot(&slot.name, None, true, model.now);
            dropped.unwrap();
            let held = slot.lease.map(|lease| lease.holder);
            if let Some(held) = held.filter(|held| held.name == "a") {
                model.newest_a = model.newest_a.max(held.incarnation);
            }
            continue;
        };
        assert!((known.persisted..=known.confirmed).contains(&slot.confirmed_lsn.0));
        if persist {
            assert_eq!(
                slot.lease.as_ref().map(|lease| &lease.holder),
                holders[&slot.name].as_ref()
            );
        }
        // What was not persisted may or may not be there.
        known.confirmed = slot.confirmed_lsn.0;
        known.persisted = slot.confirmed_lsn.0;
        known.holder = slot.lease.map(|lease| (lease.holder, lease.until));
        if let Some((held, _)) = known.holder.as_ref().filter(|(held, _)| held.name == "a") {
            model.newest_a = model.newest_a.max(held.incarnation);
        }
    }
    assert_eq!(after.list().len(), model.slots.len(), "a slot is lost");
    *registry = Some(after);
}

fn check(registry: &Registry, model: &Model) {
    let slots = registry.list();
    let needs: BTreeMap<String, Lsn> = registry.needs().into_iter().collect();
    let names: Vec<&String> = slots.iter().map(|slot| &slot.name).collect();
    assert_eq!(names, model.slots.keys().collect::<Vec<_>>());
    for slot in &slots {
        let known = &model.slots[&slot.name];
        assert_eq!(slot.confirmed_lsn.0, known.confirmed);
        assert_eq!(slot.restart_lsn, slot.confirmed_lsn);
        assert_eq!(needs[&slot.name].0, known.persisted);
        let lease = slot.lease.clone().map(|lease| (lease.holder, lease.until));
        assert_eq!(lease, known.holder);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn behaves_like_the_model(operations in prop::collection::vec(operation(), 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry");
        let now = Instant::now();
        let store = SledStore::open(&path).unwrap();
        let mut registry = Some(Registry::with_store(Box::new(store), false, now).unwrap());
        let mut model = Model { slots: BTreeMap::new(), newest_a: 0, now };
        for operation in &operations {
            apply(operation, &mut registry, &mut model, &path);
            check(registry.as_ref().unwrap(), &model);
        }
    }
}

fn memory() -> Registry {
    Registry::with_store(Box::<MemoryStore>::default(), false, Instant::now()).unwrap()
}

#[test]
fn a_damaged_value_is_an_error_and_not_a_slot_less() {
    let store = MemoryStore::default();
    store.put(b"slot/a", &[1, 0, 0]).unwrap();
    let opened = Registry::with_store(Box::new(store), true, Instant::now());
    let Err(RegistryError::Value { key, .. }) = opened else {
        panic!("{opened:?}");
    };
    assert_eq!(key, "slot/a");
}

#[test]
fn a_new_registry_beside_a_log_says_so_until_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry");
    assert!(Registry::open(&path, true).unwrap().is_lost());
    let registry = Registry::open(&path, true).unwrap();
    assert!(registry.is_lost());
    registry.acknowledge_loss().unwrap();
    drop(registry);
    assert!(!Registry::open(&path, true).unwrap().is_lost());
    assert!(!memory().is_lost());
}

#[test]
fn secrets_come_back_in_their_order() {
    let registry = memory();
    assert!(registry.secrets().unwrap().is_empty());
    let secrets = ["new", "old"].map(crate::catalog::Secret::new);
    registry.store_secrets(&secrets).unwrap();
    assert_eq!(registry.secrets().unwrap(), secrets);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let (registry, now) = (memory(), Instant::now());
    let new = |name: &str, temporary| NewSlot {
        name: name.to_owned(),
        temporary,
        ..NewSlot::default()
    };
    let create = |name, temporary| registry.create(new(name, temporary), now).unwrap_err();
    assert!(matches!(
        create("Bad", false),
        RegistryError::InvalidName { .. }
    ));
    assert!(matches!(
        create("a", true),
        RegistryError::HolderMissing { .. }
    ));
    registry.create(new("a", false), now).unwrap();
    assert!(matches!(create("a", false), RegistryError::Exists { .. }));
    let missing = registry.acquire("b", &holder(0), now).unwrap_err();
    assert_eq!(missing.to_string(), "replication slot \"b\" does not exist");
    registry.acquire("a", &holder(0), now).unwrap();
    let held = registry.acquire("a", &holder(1), now).unwrap_err();
    assert_eq!(
        held.to_string(),
        "replication slot \"a\" is held by a/1, for 10000 ms without a report"
    );
    registry.acquire("a", &holder(2), now).unwrap();
    let replaced = registry.acquire("a", &holder(0), now).unwrap_err();
    assert!(matches!(
        replaced,
        RegistryError::Superseded { newest: 2, .. }
    ));
}
