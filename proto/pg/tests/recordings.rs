//! Streams that real servers of each version sent: every message is decoded and comes back byte for byte, and
//! there are as many of each kind as an independent program counted.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in helper functions too"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pg_proto::pgoutput::{Framing, check, decode, encode, split_xid, tag};
use pg_proto::replication::{BackendCopy, XLogData};

/// Messages of each kind, by their first byte.
type Counts = BTreeMap<String, usize>;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

/// The recordings and what each holds, from the tables beside them.
fn recordings() -> Vec<(String, Counts)> {
    let entries = std::fs::read_dir(directory()).expect("the recordings are missing");
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "tsv") {
            let table = std::fs::read_to_string(&path).unwrap();
            found.extend(table.lines().filter(|line| !line.starts_with('#')).map(row));
        }
    }
    found.sort();
    found
}

fn row(line: &str) -> (String, Counts) {
    let columns: Vec<_> = line.split('\t').collect();
    let [file, _options, counts] = columns[..] else {
        panic!("not a row of three columns: {line}");
    };
    let count = |pair: &str| {
        let (kind, count) = pair.split_once('=').unwrap();
        (kind.to_owned(), count.parse().unwrap())
    };
    (file.to_owned(), counts.split(' ').map(count).collect())
}

fn contents(file: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(directory().join(file)).unwrap();
    let mut rest = &bytes[..];
    let mut contents = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (content, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        contents.push(content.to_vec());
        rest = after;
    }
    assert!(rest.is_empty(), "{file} ends inside a length");
    contents
}

/// Checks one message; `framing` follows the stream blocks.
fn check_message(file: &str, payload: &[u8], framing: &mut Framing) {
    let message = decode(payload, *framing)
        .unwrap_or_else(|error| panic!("{file}: {error} in {}", payload.escape_ascii()));
    let mut again = Vec::new();
    encode(&message, &mut again);
    assert_eq!(again, payload, "{file}: {message:?}");
    assert_eq!(check(payload, *framing).unwrap().tag, payload[0], "{file}");
    match payload[0] {
        tag::STREAM_START => *framing = Framing::Streamed,
        tag::STREAM_STOP => *framing = Framing::Plain,
        _ => check_plain_form(file, payload, *framing),
    }
    for length in 0..payload.len() {
        let _ = decode(&payload[..length], *framing);
    }
}

/// A message of a stream block without its transaction id is a message of protocol 1.
fn check_plain_form(file: &str, payload: &[u8], framing: Framing) {
    if framing == Framing::Streamed && payload[0] != tag::ORIGIN {
        let (_, tag, rest) = split_xid(payload).unwrap();
        let plain = [&[tag], rest].concat();
        assert_eq!(check(&plain, Framing::Plain).unwrap().xid, None, "{file}");
    }
}

#[test]
fn every_recorded_message_comes_back() {
    let recordings = recordings();
    assert!(!recordings.is_empty(), "there are no recordings");
    for (file, expected) in recordings {
        let mut counts = Counts::new();
        let mut framing = Framing::Plain;
        for content in contents(&file) {
            let mut again = Vec::new();
            let kind = match BackendCopy::decode(&content).unwrap() {
                BackendCopy::XLogData(data) => {
                    data.encode(&mut again);
                    let XLogData { payload, .. } = data;
                    check_message(&file, payload, &mut framing);
                    char::from(payload[0]).to_string()
                }
                BackendCopy::Keepalive(keepalive) => {
                    keepalive.encode(&mut again);
                    "keepalive".to_owned()
                }
            };
            assert_eq!(again, content, "{file}");
            *counts.entry(kind).or_default() += 1;
        }
        assert_eq!(framing, Framing::Plain, "{file} ends inside a stream block");
        assert_eq!(counts, expected, "{file}");
    }
}

#[test]
fn every_version_has_every_kind_that_its_protocol_has() {
    let mut seen: BTreeMap<u32, String> = BTreeMap::new();
    for (file, counts) in recordings() {
        let (version, _) = file.split_once('-').unwrap();
        let kinds = seen.entry(version.parse().unwrap()).or_default();
        kinds.extend(counts.into_keys().filter(|kind| kind.len() == 1));
    }
    for version in 14..=18 {
        let kinds = seen
            .get(&version)
            .unwrap_or_else(|| panic!("no recording of {version}"));
        let expected = if version == 14 {
            "BCDIMORTUYSEcA"
        } else {
            "BCDIMORTUYSEcAbPKrp"
        };
        for kind in expected.chars() {
            assert!(
                kinds.contains(kind),
                "version {version} has no message {kind}"
            );
        }
    }
}
