//! The index against plain searches.

use bytes::Bytes;
use pg_proto::{Lsn, PgTimestamp};
use proptest::prelude::*;

use super::{Entries, INDEX_HEADER_LEN, Index, IndexBuilder, IndexEntry};
use crate::block::{BlockFlags, BlockHeader, BlockKind};
use crate::segment::SegmentName;

const NAME: SegmentName = SegmentName {
    sequence: 3,
    first_lsn: Lsn(100),
};
const SEGMENT_LEN: u64 = 1 << 20;

/// What one block adds: how far the log moves (0: the block ends inside a transaction), and its time.
type Step = (u8, i8);

/// Headers of consecutive blocks, and the position before each.
fn headers(steps: &[Step]) -> Vec<(Lsn, BlockHeader)> {
    let mut position = NAME.first_lsn;
    let mut open = false;
    let mut headers = Vec::new();
    for &(moved, time) in steps {
        let mut flags = BlockFlags::NONE;
        if open {
            flags |= BlockFlags::CONTINUES;
        }
        open = moved == 0;
        if open {
            flags |= BlockFlags::OPEN_END;
        }
        let before = position;
        position.0 += u64::from(moved);
        let header = BlockHeader {
            flags,
            first_commit_lsn: Lsn(before.0 + 1),
            end_lsn: position,
            first_commit_time: PgTimestamp(time.into()),
            last_commit_time: PgTimestamp(time.into()),
            ..BlockHeader::empty(BlockKind::Data)
        };
        headers.push((before, header));
    }
    headers
}

fn content(headers: &[(Lsn, BlockHeader)]) -> Vec<u8> {
    let mut builder = IndexBuilder::new(NAME);
    builder.push(256, &BlockHeader::empty(BlockKind::Snapshot));
    for (number, (_, header)) in headers.iter().enumerate() {
        builder.push(1000 * (number as u64 + 1), header);
    }
    builder.finish(SEGMENT_LEN)
}

fn decode(content: Vec<u8>) -> Index {
    Index::decode(content.into(), NAME, SEGMENT_LEN).unwrap()
}

proptest! {
    #[test]
    fn finds_what_a_plain_search_finds(
        steps in prop::collection::vec((0..4_u8, any::<i8>()), 0..40),
        lsn in 90..300_u64,
        time in any::<i8>(),
    ) {
        let headers = headers(&steps);
        let index = decode(content(&headers));
        prop_assert_eq!(index.count(), headers.len());
        let starts = |place: &usize| !headers[*place].1.flags.contains(BlockFlags::CONTINUES);
        let offset = |place: usize| 1000 * (place as u64 + 1);

        // The last start before which everything ends at or before the position; the first of several alike.
        let below = (0..headers.len()).filter(starts).filter(|place| headers[*place].0 <= Lsn(lsn));
        let last = below.clone().next_back();
        let expected = below.into_iter().find(|place| {
            last.is_some_and(|last| headers[*place].0 == headers[last].0) && headers[*place].0 == Lsn(lsn)
        });
        let found = index.find_lsn(Lsn(lsn)).map(|entry| entry.offset);
        prop_assert_eq!(found, expected.or(last).map(offset));

        let first = headers.iter().position(|(_, header)| header.last_commit_time.0 >= time.into());
        let expected = first.and_then(|first| (0..=first).rev().find(starts));
        let found = index.find_time(PgTimestamp(time.into())).map(|entry| entry.offset);
        prop_assert_eq!(found, expected.map(offset));
    }

    #[test]
    fn entries_round_trip(lsn: u64, offset: u64, time: i64, bits in 0..64_u32) {
        let entry = IndexEntry {
            lsn: Lsn(lsn),
            offset,
            time_max: PgTimestamp(time),
            flags: BlockFlags::from_bits(bits).unwrap(),
        };
        prop_assert_eq!(IndexEntry::decode(&entry.encode()), Some(entry));
    }
}

#[test]
fn every_changed_byte_and_every_truncation_is_noticed() {
    let content = content(&headers(&[(3, 1), (0, 2), (5, 2)]));
    assert_eq!(decode(content.clone()).end_lsn(), Lsn(108));
    for at in 0..content.len() {
        let mut bad = content.clone();
        bad[at] ^= 1;
        assert!(
            Index::decode(bad.into(), NAME, SEGMENT_LEN).is_err(),
            "byte {at}"
        );
        let cut = Bytes::copy_from_slice(&content[..at]);
        assert!(
            Index::decode(cut, NAME, SEGMENT_LEN).is_err(),
            "length {at}"
        );
    }
}

#[test]
fn that_of_another_segment_is_refused() {
    let content = Bytes::from(content(&[]));
    assert_eq!(content.len(), INDEX_HEADER_LEN);
    let other = SegmentName {
        sequence: 4,
        ..NAME
    };
    assert!(Index::decode(content.clone(), other, SEGMENT_LEN).is_err());
    assert!(Index::decode(content, NAME, SEGMENT_LEN + 1).is_err());
}
