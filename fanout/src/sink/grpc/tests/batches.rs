//! The protobuf that is written without being built, and who shares it.

use pg_proto::pgoutput::{self, ColumnValue, OldTuple, TupleBuf};
use pg_proto::{Lsn, Oid};
use proptest::prelude::*;
use prost::Message as _;
use proto::v1;
use storage_format::record::RecordKind;

use super::super::batch::Batcher;
use super::super::encode::{Change, Rows};
use super::super::message::{BatchWriter, Message};
use crate::emit::EmitOptions;
use crate::replay::{Advance, Replay, StreamOptions};
use crate::testing::TestLog;

/// What a client makes of a message.
fn received(message: &Message) -> v1::SubscribeResponse {
    let (prefix, content) = message.bytes.split_at(5);
    assert_eq!(prefix[0], 0);
    let len = u32::from_be_bytes(prefix[1..].try_into().unwrap());
    assert_eq!(len as usize, content.len());
    v1::SubscribeResponse::decode(content).unwrap()
}

fn parts(messages: &[Message]) -> Vec<v1::TransactionPart> {
    let batches = messages.iter().map(|one| match received(one).kind {
        Some(v1::subscribe_response::Kind::Batch(batch)) => batch.parts,
        other => panic!("{other:?}"),
    });
    batches.flatten().collect()
}

/// Values of all kinds, with lengths on both sides of where a varint grows.
fn row() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let length = prop_oneof![0..4_usize, 120..135_usize, 16_370..16_390_usize];
    let value = (0..4_u8, length).prop_map(|(kind, length)| (kind, vec![kind; length]));
    prop::collection::vec(value, 0..6)
}

fn tuple(row: &[(u8, Vec<u8>)]) -> TupleBuf {
    let mut tuple = TupleBuf::new();
    tuple.extend(row.iter().map(|(kind, bytes)| match kind {
        0 => ColumnValue::Null,
        1 => ColumnValue::UnchangedToast,
        2 => ColumnValue::Text(bytes),
        _ => ColumnValue::Binary(bytes),
    }));
    tuple
}

fn built(row: &[(u8, Vec<u8>)]) -> v1::Row {
    use v1::value::Kind;
    let values = row.iter().map(|(kind, bytes)| {
        let kind = match kind {
            0 => Kind::Null(v1::Null {}),
            1 => Kind::UnchangedToast(v1::UnchangedToast {}),
            2 => Kind::Text(bytes.clone().into()),
            _ => Kind::Binary(bytes.clone().into()),
        };
        v1::Value { kind: Some(kind) }
    });
    v1::Row {
        values: values.collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_client_reads_what_was_written(
        rows in prop::collection::vec((row(), row(), 0..4_u8, any::<bool>()), 1..5),
        numbers in prop::array::uniform3(prop_oneof![Just(0), 1..200_u64, any::<u64>()]),
    ) {
        let [relation, ordinal, lsn] = numbers;
        let relation = u32::try_from(relation >> 32).unwrap();
        let mut writer = BatchWriter::default();
        let mut expected = Vec::new();
        let begin = v1::Begin { commit_lsn: lsn, xid: 7, ..v1::Begin::default() };
        writer.begin(&begin);
        for (new, old, shape, raw) in &rows {
            let (new_row, old_row) = (tuple(new), tuple(old));
            let (new_row, old_row) = (new_row.as_tuple(), old_row.as_tuple());
            let (xid, relation) = (None, Oid(relation));
            let change = match shape {
                0 => pgoutput::Change::Insert { xid, relation, new: new_row },
                1 => pgoutput::Change::Update { xid, relation, old: None, new: new_row },
                2 => {
                    let old = Some(OldTuple::Full(old_row));
                    pgoutput::Change::Update { xid, relation, old, new: new_row }
                }
                _ => pgoutput::Change::Delete { xid, relation, old: OldTuple::Key(old_row) },
            };
            let (kind, relation, columns) = Rows::of(&change);
            let message = vec![b'I'; new.len() * 100];
            let rows = if *raw { Rows::Raw(&message) } else { columns };
            Change { kind, relation, ordinal, lsn: Lsn(lsn), rows }.put(writer.events());
            let mut model = v1::Change {
                kind: kind.into(),
                relation_oid: relation.0,
                ordinal,
                lsn,
                ..v1::Change::default()
            };
            if *raw {
                model.raw = message.into();
            } else {
                model.new = (*shape < 3).then(|| built(new));
                model.old = (*shape > 1).then(|| built(old));
                model.old_is_key = *shape == 3;
            }
            expected.push(v1::Event { kind: Some(v1::event::Kind::Change(model)) });
        }
        let commit = v1::Commit { commit_lsn: lsn, end_lsn: 99, commit_time: -1 };
        writer.commit(&commit);
        let part = v1::TransactionPart { begin: Some(begin), events: expected, commit: Some(commit) };
        let message = writer.finish().unwrap();
        prop_assert_eq!(message.end, Some(Lsn(99)));
        prop_assert_eq!(parts(&[message]), [part]);
        prop_assert!(writer.finish().is_none());
    }
}

fn read(replay: &Replay, batcher: &mut Batcher) -> Vec<Message> {
    let options = StreamOptions {
        emit: EmitOptions {
            start: replay.kept().unwrap().oldest,
            ..EmitOptions::default()
        },
        form: batcher.form(),
        ..StreamOptions::default()
    };
    let mut stream = replay.open(options).unwrap();
    while let Advance::Moved(_) = stream.advance(batcher).unwrap() {}
    batcher.flush();
    std::iter::from_fn(|| batcher.pop()).collect()
}

#[test]
fn who_asked_for_the_same_is_given_the_same_memory() {
    const BATCH_BYTES: u32 = 2048;
    let mut log = TestLog::new();
    // Blocks that pass whole, and such as begin and end inside a transaction.
    for number in 0..12 {
        log.begin(200);
        if number == 0 {
            log.relation(0, 1);
        }
        for id in 0..200 {
            log.row(RecordKind::Insert, 0, id);
            if number % 3 == 2 && id == 100 {
                log.cut();
            }
        }
        log.commit();
        log.cut();
    }
    let replay = log.replay();
    let alone = read(&replay, &mut Batcher::new(BATCH_BYTES, false));
    // Somebody else of the same family is there all the time.
    let member = Batcher::new(BATCH_BYTES, false);
    let options = StreamOptions {
        form: member.form(),
        ..StreamOptions::default()
    };
    let options = StreamOptions {
        emit: EmitOptions {
            start: replay.kept().unwrap().oldest,
            ..EmitOptions::default()
        },
        ..options
    };
    let _member = replay.open(options).unwrap();
    let first = read(&replay, &mut Batcher::new(BATCH_BYTES, false));
    let second = read(&replay, &mut Batcher::new(BATCH_BYTES, false));
    let raw = read(&replay, &mut Batcher::new(BATCH_BYTES, true));
    let events = |messages: &[Message]| -> Vec<v1::Event> {
        let parts = parts(messages).into_iter();
        parts.flat_map(|part| part.events).collect()
    };
    assert_eq!(events(&first), events(&alone));
    assert_eq!(parts(&second), parts(&first));
    let ends = |messages: &[Message]| messages.iter().filter_map(|one| one.end).max();
    assert_eq!(ends(&second), ends(&alone));
    let memory = |messages: &[Message]| -> Vec<*const u8> {
        messages.iter().map(|one| one.bytes.as_ptr()).collect()
    };
    let shared = memory(&second);
    let shared = memory(&first)
        .iter()
        .filter(|one| shared.contains(one))
        .count();
    assert!(shared * 3 > first.len(), "{shared} of {}", first.len());
    assert_eq!(events(&raw).len(), events(&first).len());
    let memory = memory(&raw);
    assert!(
        first
            .iter()
            .all(|one| !memory.contains(&one.bytes.as_ptr()))
    );
}
