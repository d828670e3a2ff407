//! What the log and the registry keep of the source, and the messages that bring it.

use std::sync::Arc;
use std::time::Instant;

use decoder::catalog::{CatalogMessage, Secret, parse_state};
use decoder::registry::{NewSlot, Registry, Store};
use pg_proto::Lsn;
use simulation::store::SimulatedStore;
use storage_format::catalog::{Catalog, PublicationState, ServerParameters};
use storage_format::record::{PreparedRecord, RecordKind};

use crate::build::messages_of;

const KINDS: [RecordKind; 4] = [
    RecordKind::Relation,
    RecordKind::Type,
    RecordKind::Publications,
    RecordKind::ServerParameters,
];

/// The first byte is the kind of record.
pub(super) fn run_records(bytes: &[u8]) -> bool {
    let Some((kind, payload)) = bytes.split_first() else {
        return false;
    };
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    let mut catalog = Arc::new(Catalog::default());
    // What can't be understood is an error and changes nothing.
    let applied = Catalog::apply(&mut catalog, kind, payload, Lsn(7)).is_ok();
    let _ = PreparedRecord::decode(payload);
    if let Ok(state) = PublicationState::decode(payload) {
        let mut again = Vec::new();
        state.encode(&mut again);
        assert_eq!(PublicationState::decode(&again).as_ref(), Ok(&state));
    }
    applied
}

pub(super) fn seeds_of_records() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = messages_of("18-v1.bin")
        .into_iter()
        .filter_map(|message| match message.first()? {
            b'R' => Some([&[0], &message[..]].concat()),
            b'Y' => Some([&[1], &message[..]].concat()),
            _ => None,
        })
        .collect();
    let mut publications = vec![2];
    state().encode(&mut publications);
    seeds.push(publications);
    let mut parameters = ServerParameters::default();
    parameters.set("server_version", "18.0");
    parameters.set("server_encoding", "UTF8");
    let mut encoded = vec![3];
    parameters.encode(&mut encoded);
    seeds.push(encoded);
    seeds
}

/// As the query of `decctl init` gives it at a real server.
const STATE: &str = include_str!("../../seeds/state.json");

pub(super) fn state() -> PublicationState {
    parse_state(STATE).expect("what a server said")
}

/// A logical message with Decant's prefix: with a code that is right whatever is in it, and as it is.
pub(super) fn run_messages(bytes: &[u8]) -> bool {
    let secret = Secret::new("secret");
    let read = CatalogMessage::read(bytes, std::slice::from_ref(&secret)).is_ok();
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    if let Ok(state) = parse_state(text) {
        let written = CatalogMessage::write(7, &state, &secret).expect("what was read is written");
        let again = CatalogMessage::read(written.as_bytes(), &[secret]);
        assert!(again.is_ok(), "{again:?}");
    }
    read
}

pub(super) fn seeds_of_messages() -> Vec<Vec<u8>> {
    let message = CatalogMessage::write(7, &state(), &Secret::new("secret"));
    vec![
        STATE.as_bytes().to_vec(),
        message.expect("it can be written").into_bytes(),
    ]
}

/// The first byte is the key.
pub(super) fn run_registry(bytes: &[u8]) -> bool {
    const KEYS: [&[u8]; 6] = [
        b"slot/s",
        b"publication/p",
        b"meta/secrets",
        b"meta/created",
        b"meta/lost",
        b"meta/cut",
    ];
    let Some((key, value)) = bytes.split_first() else {
        return false;
    };
    let store = SimulatedStore::default();
    let put = store.put(KEYS[usize::from(*key) % KEYS.len()], value);
    put.expect("memory takes it");
    let Ok(registry) = Registry::with_store(Box::new(store), true, Instant::now()) else {
        return false;
    };
    let _ = (registry.list(), registry.is_lost());
    let _ = registry.secrets();
    let _ = registry.own_publications();
    true
}

pub(super) fn seeds_of_registry() -> Vec<Vec<u8>> {
    let store = SimulatedStore::default();
    let registry = Registry::with_store(Box::new(store.clone()), false, Instant::now());
    let registry = registry.expect("an empty store");
    let slot = NewSlot {
        name: "s".to_owned(),
        start_lsn: Lsn(0x100),
        two_phase: true,
        creator: "app".to_owned(),
        plugin: "pgoutput".to_owned(),
        ..NewSlot::default()
    };
    let made = registry.create(slot, Instant::now());
    made.expect("memory takes it");
    let secrets = registry.store_secrets(&[Secret::new("one"), Secret::new("two")]);
    secrets.expect("memory takes it");
    let mut seeds = Vec::new();
    for (number, prefix) in [(0, &b"slot/"[..]), (1, b"publication/"), (2, b"meta/")] {
        let pairs = store.scan(prefix).expect("memory has it");
        for (_, value) in pairs {
            seeds.push([&[number], &value[..]].concat());
        }
    }
    seeds
}
