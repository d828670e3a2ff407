//! Message for message: for every combination of options that the source's version has, a native slot and a fanout's slot
//! give the same stream of the same workload.
//!
//! What can't be equal, and is therefore put aside:
//! - where streamed transactions are cut into pieces, when the pieces come, and what is rolled back of them
//!   ([`PieceClient`] puts them together);
//! - RELATION and TYPE, since when they are repeated depends on when the walsender hears of an invalidation; in their place
//!   the schema in force is compared at each row;
//! - the content of a prepared transaction that is rolled back later ([`ROLLED_BACK`]);
//! - the name of a renamed schema in versions 14 and 15, which tell it only with the next description;
//! - Decant's own messages, and that BEGIN has the position of such a message if that is a transaction's first;
//! - the position of BEGIN of version 14, and of STREAM START: the first record of the transaction, sent or not;
//! - ORIGIN's position at the origin in a streamed or prepared transaction that the log has in another form: it is known
//!   only at the commit, and pgoutput gives 0/0 in pieces;
//! - binary values of types whose send function a fanout does not follow: it sends text, which the protocol allows.

mod workload;

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use pg_proto::pgoutput::{
    Change, ColumnValue, Framing, Message, OldTuple, Prepare, Tuple, TupleBuf, decode, encode, tag,
};
use pg_proto::{Lsn, Oid};
use tests::scale::patience;
use tests::subscriber::{Piece, PieceClient, Unit, is_schema, when_free};
use tests::{Endpoint, Session};

use self::workload::{FILTERED, GENERATED, MORE_STEPS, MORE_TABLES, ROLLED_BACK};
use super::live::Live;
use super::native::{STEPS, TABLES};
use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn every_combination_of_version_15() {
    compare_all(15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_combination_of_version_18() {
    compare_all(18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_combination_of_version_14() {
    compare_all(14).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_combination_of_version_16() {
    compare_all(16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_combination_of_version_17() {
    compare_all(17).await;
}

/// One combination, as the options of START_REPLICATION.
#[derive(Debug)]
struct Combination {
    slot: &'static str,
    options: String,
}

/// All that a version accepts.
fn combinations(major: u32) -> Vec<Combination> {
    let versions = match major {
        14 => 1..=2,
        15 => 1..=3,
        _ => 1..=4,
    };
    let bools = [false, true];
    let mut all = Vec::new();
    for proto in versions {
        let mut streamings = vec!["off"];
        streamings.extend((proto >= 2).then_some("on"));
        streamings.extend((proto >= 4).then_some("parallel"));
        for streaming in streamings {
            for two_phase in bools.into_iter().filter(|asked| proto >= 3 || !asked) {
                for none in bools.into_iter().filter(|asked| major >= 16 || !asked) {
                    for (messages, binary) in bools.into_iter().flat_map(|a| bools.map(|b| (a, b)))
                    {
                        let mut options = format!(
                            "proto_version '{proto}', publication_names 'everything', streaming '{streaming}', \
                             messages '{messages}', binary '{binary}'"
                        );
                        if major >= 15 && proto >= 3 {
                            options += &format!(", two_phase '{two_phase}'");
                        }
                        if none {
                            options += ", origin 'none'";
                        }
                        let slot = if two_phase { "two_phase" } else { "plain" };
                        if major >= 15 && !messages && !none {
                            let options = options.replace("everything", "filtered");
                            all.push(Combination { slot, options });
                        }
                        all.push(Combination { slot, options });
                    }
                }
            }
        }
    }
    all
}

async fn compare_all(major: u32) {
    let settings = [("logical_decoding_work_mem", "64kB")];
    let filtered = if major >= 15 { FILTERED } else { "" };
    let tables = format!("{TABLES};{MORE_TABLES}{filtered}");
    let mut stage = Stage::with_settings(major, &settings, 1, &tables).await;
    let fanout = stage.decant.fanout(0).endpoint();
    let source = stage.source.endpoint();
    for endpoint in [&source, &fanout] {
        let mut session = Session::connect_for_replication(endpoint).await.unwrap();
        for (slot, two_phase) in [("plain", ""), ("two_phase", "TWO_PHASE ")] {
            let two_phase = if major >= 15 { two_phase } else { "" };
            let sql = format!(
                "CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput {two_phase}NOEXPORT_SNAPSHOT"
            );
            session.run(&sql).await;
        }
    }
    let live = Live::start(major, &source, &fanout).await;
    let mut session = stage.source.session().await;
    let generated = (major >= 18).then_some([
        GENERATED,
        "insert into generated (id) values (1); update generated set id = 2",
    ]);
    for step in STEPS
        .iter()
        .chain(MORE_STEPS)
        .chain(generated.iter().flatten())
    {
        session.run(step).await;
    }
    let end = stage.settle().await;
    let all = combinations(major);
    let mut pieces_streamed = 0;
    let mut unconverted = BTreeSet::new();
    for Combination { slot, options } in &all {
        let mut native = Side::new(major);
        let mut ours = Side::new(major);
        let from_native = units(&source, slot, options, end).await;
        let from_fanout = units(&fanout, slot, options, end).await;
        pieces_streamed += from_fanout.1;
        let native = native.essence(from_native.0);
        let ours = ours.essence(from_fanout.0);
        assert_same(options, &native, &ours, &mut unconverted);
    }
    assert!(major == 14 || pieces_streamed > 0, "nothing was streamed");
    for pair in live {
        let native = Side::new(major).essence(pair.native.receive(end).await);
        let ours = Side::new(major).essence(pair.ours.receive(end).await);
        assert_same(
            &format!("live: {}", pair.options),
            &native,
            &ours,
            &mut unconverted,
        );
    }
    // inet, point, int4range, varbit; the others are types of the test's own: enums and composites.
    let known = [869, 600, 3904, 1562];
    let unknown: Vec<&Oid> = unconverted
        .iter()
        .filter(|oid| oid.0 < 16_384 && !known.contains(&oid.0))
        .collect();
    assert!(unknown.is_empty(), "not converted: {unknown:?}");
}

async fn units(to: &Endpoint, slot: &str, options: &str, end: Lsn) -> (Vec<Unit>, u64) {
    let client = when_free(|| PieceClient::start(to, slot, Lsn::INVALID, options)).await;
    let mut client = client.unwrap_or_else(|error| panic!("{options}: {error}"));
    let units = client.receive_until(end, patience()).await;
    (units, client.before_end)
}

/// What is known on one side.
struct Side {
    major: u32,
    relations: HashMap<Oid, Bytes>,
}

/// A unit without schema, and the schema in force at each row.
#[derive(Debug)]
struct Essence {
    pieces: Unit,
    schemas: Vec<Bytes>,
}

impl Side {
    fn new(major: u32) -> Self {
        Self {
            major,
            relations: HashMap::new(),
        }
    }

    fn essence(&mut self, units: Vec<Unit>) -> Vec<Essence> {
        let essences = units.into_iter().map(|unit| self.one(unit));
        // Version 14 sends empty transactions; any version sends those of which only Decant's own messages are.
        essences.filter(|one| !is_empty(&one.pieces)).collect()
    }

    fn one(&mut self, unit: Unit) -> Essence {
        let (mut pieces, mut schemas) = (Unit::new(), Vec::new());
        let mut first_was_ours = false;
        let streamed = matches!(
            unit.last().map(|piece| piece.payload[0]),
            Some(tag::STREAM_COMMIT | tag::STREAM_PREPARE)
        );
        for mut piece in unit {
            match decode(&piece.payload, Framing::Plain).unwrap() {
                Message::Relation(mut relation) => {
                    if self.major < 16 {
                        relation.namespace = b"";
                    }
                    let mut schema = Vec::new();
                    encode(&Message::Relation(relation.clone()), &mut schema);
                    self.relations.insert(relation.oid, schema.into());
                }
                Message::Change(change) => {
                    let known = self.relations.get(&change.relation());
                    schemas.push(known.expect("the schema comes first").clone());
                }
                Message::LogicalMessage(message) if message.prefix == b"decant" => {
                    first_was_ours |= pieces.iter().all(is_opening);
                    continue;
                }
                Message::Origin(origin) if !streamed => {
                    // The log has 0/0 if the source streamed it.
                    let name = origin.name.to_vec();
                    piece.payload = Bytes::from([&[tag::ORIGIN][..], &name].concat());
                }
                _ => {}
            }
            if piece.payload[0] == tag::BEGIN && self.major == 14 {
                piece.start = Lsn::INVALID;
            }
            if is_schema(&piece.payload) {
                continue;
            }
            if std::mem::take(&mut first_was_ours)
                && self.major > 14
                && let Some(opening) = pieces.last_mut()
            {
                opening.start = piece.start;
            }
            pieces.push(piece);
        }
        Essence { pieces, schemas }
    }
}

fn is_opening(piece: &Piece) -> bool {
    matches!(piece.payload[0], tag::BEGIN | tag::ORIGIN)
}

fn is_empty(unit: &[Piece]) -> bool {
    match unit.first().map(|piece| piece.payload[0]) {
        None => true,
        Some(tag::BEGIN) => unit.len() == 2,
        Some(_) => false,
    }
}

fn assert_same(what: &str, native: &[Essence], ours: &[Essence], unconverted: &mut BTreeSet<Oid>) {
    for (number, (native, ours)) in native.iter().zip(ours).enumerate() {
        let at = || format!("{what}: unit {number}");
        if let Some(rolled_back) = rolled_back(&native.pieces) {
            // Nor need both have it in pieces, or both whole.
            assert_eq!(
                Some(rolled_back),
                self::rolled_back(&ours.pieces),
                "{}",
                at()
            );
            continue;
        }
        assert_eq!(
            native.pieces.len(),
            ours.pieces.len(),
            "{}:\nnative {:?}\nfanout {:?}",
            at(),
            shown(&native.pieces),
            shown(&ours.pieces)
        );
        assert_eq!(native.schemas, ours.schemas, "{}", at());
        let mut schemas = native.schemas.iter();
        for (native, ours) in native.pieces.iter().zip(&ours.pieces) {
            let is_row = matches!(native.payload[0], tag::INSERT | tag::UPDATE | tag::DELETE);
            let schema = if is_row { schemas.next() } else { None };
            if native == ours {
                continue;
            }
            let expected = schema.map_or_else(
                || native.payload.clone(),
                |schema| with_text_of(&native.payload, &ours.payload, schema, unconverted),
            );
            let expected = Piece {
                payload: expected,
                ..native.clone()
            };
            assert_eq!(&expected, ours, "{}", at());
        }
    }
    assert_eq!(native.len(), ours.len(), "{what}: number of units");
}

/// How it was prepared, if it is one of [`ROLLED_BACK`].
fn rolled_back(unit: &[Piece]) -> Option<Prepare<'_>> {
    let prepare = match decode(&unit.last()?.payload, Framing::Plain) {
        Ok(Message::Prepare(prepare) | Message::StreamPrepare(prepare)) => prepare,
        _ => return None,
    };
    ROLLED_BACK.contains(&prepare.gid).then_some(prepare)
}

fn shown(unit: &[Piece]) -> Vec<&Piece> {
    unit.iter()
        .take(5)
        .chain(unit.iter().rev().take(2))
        .collect()
}

/// The native row with the text of `ours` where that has text and it has binary.
fn with_text_of(
    native: &[u8],
    ours: &[u8],
    schema: &[u8],
    unconverted: &mut BTreeSet<Oid>,
) -> Bytes {
    let (Ok(Message::Change(native)), Ok(Message::Change(ours))) =
        (decode(native, Framing::Plain), decode(ours, Framing::Plain))
    else {
        return Bytes::copy_from_slice(native);
    };
    let Ok(Message::Relation(relation)) = decode(schema, Framing::Plain) else {
        panic!("a schema is a RELATION");
    };
    let types: Vec<Oid> = relation.columns.iter().map(|one| one.type_oid).collect();
    let (mut old, mut new) = (TupleBuf::new(), TupleBuf::new());
    let mut merge = |native: Option<Tuple<'_>>, ours: Option<Tuple<'_>>, buf: &mut TupleBuf| {
        let (Some(native), Some(ours)) = (native, ours) else {
            return;
        };
        for (place, (native, ours)) in native.columns().zip(ours.columns()).enumerate() {
            let text_instead = matches!(
                (native, ours),
                (ColumnValue::Binary(_), ColumnValue::Text(_))
            );
            if text_instead {
                unconverted.insert(types[place]);
            }
            buf.push(if text_instead { ours } else { native });
        }
    };
    merge(old_of(&native), old_of(&ours), &mut old);
    merge(new_of(&native), new_of(&ours), &mut new);
    let old_tuple = |before: OldTuple<'_>| match before {
        OldTuple::Key(_) => OldTuple::Key(old.as_tuple()),
        OldTuple::Full(_) => OldTuple::Full(old.as_tuple()),
    };
    let merged = match native {
        Change::Insert { xid, relation, .. } => Change::Insert {
            xid,
            relation,
            new: new.as_tuple(),
        },
        Change::Update {
            xid,
            relation,
            old: before,
            ..
        } => Change::Update {
            xid,
            relation,
            old: before.map(old_tuple),
            new: new.as_tuple(),
        },
        Change::Delete {
            xid,
            relation,
            old: before,
        } => Change::Delete {
            xid,
            relation,
            old: old_tuple(before),
        },
    };
    let mut bytes = Vec::new();
    encode(&Message::Change(merged), &mut bytes);
    bytes.into()
}

fn old_of<'a>(change: &Change<'a>) -> Option<Tuple<'a>> {
    let old = match change {
        Change::Insert { .. } => None,
        Change::Update { old, .. } => *old,
        Change::Delete { old, .. } => Some(*old),
    };
    old.map(|old| match old {
        OldTuple::Key(tuple) | OldTuple::Full(tuple) => tuple,
    })
}

const fn new_of<'a>(change: &Change<'a>) -> Option<Tuple<'a>> {
    match change {
        Change::Insert { new, .. } | Change::Update { new, .. } => Some(*new),
        Change::Delete { .. } => None,
    }
}
