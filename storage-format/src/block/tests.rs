//! From records to bytes and back.

use bytes::Bytes;
use pg_proto::pgoutput::{Begin, Commit};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use proptest::prelude::*;

use super::{
    Block, BlockBuilder, BlockFlags, BlockHeader, BlockKind, BuildError, FRAME_HEAD_LEN, Placement,
};
use crate::record::RecordKind;

const PLACEMENT: Placement = Placement {
    end_lsn: Lsn(50),
    chain: 7,
    synced_offset: 9,
};
const SEND_TIME: PgTimestamp = PgTimestamp(77);

const fn begin(at: u64) -> Begin {
    Begin {
        final_lsn: Lsn(at),
        commit_time: PgTimestamp(at.cast_signed()),
        xid: Xid(1),
    }
}

const fn commit(at: u64) -> Commit {
    Commit {
        commit_lsn: Lsn(at),
        end_lsn: Lsn(at + 10),
        commit_time: PgTimestamp(at.cast_signed()),
    }
}

fn push_begin(builder: &mut BlockBuilder, at: u64) {
    builder
        .push_begin(&begin(at), Lsn(at), SEND_TIME, b"B")
        .unwrap();
}

fn push_row(builder: &mut BlockBuilder, relation: u32, row: &[u8]) {
    builder
        .push_change(RecordKind::Insert, Oid(relation), Lsn(3), row)
        .unwrap();
}

fn push_commit(builder: &mut BlockBuilder, at: u64) {
    builder.push_commit(&commit(at), Lsn(at), b"C").unwrap();
}

fn decoded(builder: &BlockBuilder) -> Block {
    let header = builder.header(BlockKind::Data, &PLACEMENT);
    let mut prefix = Vec::new();
    let (pieces, crc) = builder.pieces(&header, &mut prefix);
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
    let decoded = BlockHeader::decode(&bytes).unwrap();
    assert_eq!(decoded.crc, crc);
    assert_eq!(decoded.header, header);
    assert_eq!(decoded.block_len(), bytes.len() as u64);
    Block::decode(
        &decoded,
        Bytes::copy_from_slice(&bytes[decoded.prefix_len..]),
    )
    .unwrap()
}

/// Kind, relation and payload of a record.
type Plain = (u8, Option<Oid>, Vec<u8>);

fn records(block: &Block) -> Vec<Plain> {
    let record = |entry| (block.relation(&entry), block.payload(&entry).to_vec());
    block
        .entries()
        .map(|entry| {
            let (relation, payload) = record(entry);
            (entry.kind_id, relation, payload)
        })
        .collect()
}

#[test]
fn frames_are_what_a_subscriber_gets() {
    let mut builder = BlockBuilder::new();
    push_begin(&mut builder, 100);
    push_row(&mut builder, 5, b"row");
    let block = decoded(&builder);
    let mut expected = vec![b'd', 0, 0, 0, 32, b'w'];
    expected.extend_from_slice(&3_u64.to_be_bytes());
    expected.extend_from_slice(&3_u64.to_be_bytes());
    expected.extend_from_slice(&77_i64.to_be_bytes());
    expected.extend_from_slice(b"row");
    assert_eq!(expected.len(), FRAME_HEAD_LEN + 3);
    assert_eq!(block.frame(&block.entry(1).unwrap()), expected);
}

#[test]
fn a_header_sums_up_its_block() {
    let mut builder = BlockBuilder::new();
    push_begin(&mut builder, 100);
    push_row(&mut builder, 5, b"row");
    push_commit(&mut builder, 100);
    push_begin(&mut builder, 200);
    builder
        .push_truncate([Oid(6), Oid(5)], Lsn(1), b"T")
        .unwrap();
    builder
        .push_other(RecordKind::Origin, Lsn(1), b"O")
        .unwrap();
    let block = decoded(&builder);
    let header = block.header();
    assert_eq!(block.relations(), [Oid(5), Oid(6)]);
    assert_eq!((header.entry_count, header.event_count), (6, 2));
    assert_eq!(header.transaction_count, 1);
    assert_eq!(header.first_commit_lsn, Lsn(100));
    assert_eq!(header.last_commit_lsn, Lsn(200));
    assert_eq!(header.last_commit_time, PgTimestamp(200));
    assert_eq!(header.end_lsn, Lsn(110));
    let flags = BlockFlags::OPEN_END | BlockFlags::HAS_TRUNCATE | BlockFlags::HAS_ORIGIN;
    assert_eq!(header.flags, flags);

    let open = builder.open_transaction().unwrap();
    assert_eq!(open.next_ordinal, 1);
    builder.start(Some(open));
    push_row(&mut builder, 5, b"row");
    let header = *decoded(&builder).header();
    assert_eq!(header.flags, BlockFlags::CONTINUES | BlockFlags::OPEN_END);
    assert_eq!(header.first_ordinal, 1);
    assert_eq!(header.first_commit_lsn, Lsn(200));
    assert_eq!(header.end_lsn, PLACEMENT.end_lsn);
}

#[test]
fn records_out_of_place_are_refused_and_change_nothing() {
    let mut builder = BlockBuilder::new();
    let kind = RecordKind::Insert;
    let outside = builder.push_change(kind, Oid(1), Lsn(1), b"");
    assert_eq!(outside, Err(BuildError::OutsideTransaction(kind)));
    let commit_first = builder.push_commit(&commit(1), Lsn(1), b"");
    assert_eq!(
        commit_first,
        Err(BuildError::OutsideTransaction(RecordKind::Commit))
    );
    push_begin(&mut builder, 100);
    let twice = builder.push_begin(&begin(200), Lsn(1), SEND_TIME, b"");
    assert_eq!(twice, Err(BuildError::InsideTransaction(RecordKind::Begin)));
    let lone = builder.push_lone_message(Lsn(1), Lsn(1), SEND_TIME, b"");
    assert_eq!(
        lone,
        Err(BuildError::InsideTransaction(RecordKind::Message))
    );
    let other = builder.push_commit(&commit(101), Lsn(1), b"");
    assert!(matches!(other, Err(BuildError::OtherCommit { .. })));
    push_commit(&mut builder, 100);
    let backwards = builder.push_begin(&begin(105), Lsn(1), SEND_TIME, b"");
    assert!(matches!(backwards, Err(BuildError::Backwards { .. })));
    assert_eq!(records(&decoded(&builder)).len(), 2);
}

#[test]
fn filling_one_block_after_the_other_allocates_nothing() {
    let mut builder = BlockBuilder::new();
    let fill = |builder: &mut BlockBuilder| {
        builder.start(None);
        push_begin(builder, 100);
        for n in 0..50 {
            push_row(builder, n % 4, &[0; 90]);
        }
        push_commit(builder, 100);
        [builder.entries.capacity(), builder.frames.capacity()]
    };
    let first = fill(&mut builder);
    assert_eq!(fill(&mut builder), first);
}

#[derive(Clone, Debug)]
enum Step {
    Row(u32, Vec<u8>),
    Truncate(Vec<u32>),
    Message(Vec<u8>),
    Aux(Vec<u8>),
    End,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..30);
    let step = prop_oneof![
        4 => (0_u32..5, bytes()).prop_map(|(relation, row)| Step::Row(relation, row)),
        1 => prop::collection::vec(0_u32..9, 0..3).prop_map(Step::Truncate),
        1 => bytes().prop_map(Step::Message),
        1 => bytes().prop_map(Step::Aux),
        2 => Just(Step::End),
    ];
    prop::collection::vec(step, 1..40)
}

/// Takes the steps; `End` ends the open transaction or begins the next one.
fn build(steps: &[Step]) -> (BlockBuilder, Vec<Plain>) {
    let mut builder = BlockBuilder::new();
    let mut expected = Vec::new();
    let mut at = 100;
    for step in steps {
        let end = matches!(step, Step::End);
        match (builder.open_transaction(), end) {
            (None, _) => {
                push_begin(&mut builder, at);
                expected.push((1, None, b"B".to_vec()));
            }
            (Some(_), true) => {
                push_commit(&mut builder, at);
                expected.push((2, None, b"C".to_vec()));
                at += 100;
            }
            (Some(_), false) => {}
        }
        expected.extend(push_step(&mut builder, step));
    }
    (builder, expected)
}

fn push_step(builder: &mut BlockBuilder, step: &Step) -> Option<Plain> {
    Some(match step {
        Step::Row(relation, row) => {
            push_row(builder, *relation, row);
            (3, Some(Oid(*relation)), row.clone())
        }
        Step::Truncate(relations) => {
            let oids = relations.iter().copied().map(Oid);
            builder.push_truncate(oids, Lsn(1), b"T").unwrap();
            (6, None, b"T".to_vec())
        }
        Step::Message(message) => {
            builder
                .push_other(RecordKind::Message, Lsn(1), message)
                .unwrap();
            (7, None, message.clone())
        }
        Step::Aux(payload) => {
            builder.push_aux(RecordKind::Publications, payload).unwrap();
            (64, None, payload.clone())
        }
        Step::End => return None,
    })
}

proptest! {
    #[test]
    fn any_records_come_back(steps in steps()) {
        let (builder, expected) = build(&steps);
        prop_assert_eq!(records(&decoded(&builder)), expected);
    }

    #[test]
    fn a_split_block_holds_the_same_records(steps in steps()) {
        let (mut builder, expected) = build(&steps);
        let open = builder.open_transaction();
        let whole = decoded(&builder);
        let mut rest = BlockBuilder::new();
        if builder.split_open(&mut rest) {
            prop_assert!(builder.open_transaction().is_none());
            prop_assert_eq!(rest.open_transaction(), open);
            let (first, second) = (decoded(&builder), decoded(&rest));
            let mut both = records(&first);
            both.extend(records(&second));
            prop_assert_eq!(both, expected);
            prop_assert_eq!(first.header().end_lsn, whole.header().end_lsn);
            prop_assert_eq!(second.header().transaction_count, 0);
            let events = first.header().event_count + second.header().event_count;
            prop_assert_eq!(events, whole.header().event_count);

            builder.join(&rest, &PLACEMENT).unwrap();
            let joined = decoded(&builder);
            prop_assert_eq!(records(&joined), records(&whole));
            prop_assert_eq!(joined.header().end_lsn, whole.header().end_lsn);
            prop_assert_eq!(joined.header().flags, whole.header().flags);
            prop_assert_eq!(joined.header().event_count, whole.header().event_count);
            prop_assert!(builder.split_open(&mut rest));
        } else {
            prop_assert!(open.is_none() || whole.header().transaction_count == 0);
        }
    }
}
