use pg_proto::{Lsn, PgTimestamp};
use proptest::prelude::*;

use super::super::frame::frame_head;
use super::super::{
    BlockHeader, BlockKind, ENTRY_LEN, Entry, FRAME_HEAD_LEN, NO_RELATION, Sections,
};
use super::{Packer, packed_len_max, unpack};
use crate::codec::stored_u32;

/// A record as the tests make them.
#[derive(Clone, Debug)]
struct Sample {
    kind_id: u8,
    flags: u8,
    relation: u16,
    xid: u32,
    start: u64,
    time: i64,
    payload: Vec<u8>,
}

fn number<T: Arbitrary + Copy + 'static>(usual: [T; 3]) -> impl Strategy<Value = T> {
    prop_oneof![4 => prop::sample::select(usual.to_vec()), 1 => any::<T>()]
}

fn sample() -> impl Strategy<Value = Sample> {
    let payload = prop::collection::vec(any::<u8>(), 0..200);
    let fields = (
        number([3, 8, 64]),
        number([0, 0, 1]),
        number([0, 1, NO_RELATION]),
        number([0, 0, 700]),
        number([5_000, 5_200, 0]),
        number([9, 9, 10]),
    );
    (fields, payload).prop_map(
        |((kind_id, flags, relation, xid, start, time), payload)| Sample {
            kind_id,
            flags,
            relation,
            xid,
            start,
            time,
            payload,
        },
    )
}

/// Entries, frames and aux, and a header that says how much of each.
fn body(samples: &[Sample]) -> (BlockHeader, [Vec<u8>; 3]) {
    let [mut entries, mut frames, mut aux] = [const { Vec::new() }; 3];
    for sample in samples {
        let mut entry = Entry {
            kind_id: sample.kind_id,
            flags: sample.flags,
            relation: sample.relation,
            offset: 0,
            length: stored_u32(sample.payload.len()),
            xid: sample.xid,
        };
        let section = if entry.is_aux() {
            &mut aux
        } else {
            &mut frames
        };
        entry.offset = stored_u32(section.len());
        if !entry.is_aux() {
            entry.length += stored_u32(FRAME_HEAD_LEN);
            let (start, time) = (Lsn(sample.start), PgTimestamp(sample.time));
            section.extend_from_slice(&frame_head(entry.length - 1, start, time));
        }
        section.extend_from_slice(&sample.payload);
        entries.extend_from_slice(&entry.encode());
    }
    let header = BlockHeader {
        entry_count: stored_u32(samples.len()),
        frames_len: stored_u32(frames.len()),
        aux_len: stored_u32(aux.len()),
        ..BlockHeader::empty(BlockKind::Data)
    };
    (header, [entries, frames, aux])
}

fn pack(sections: &[Vec<u8>; 3]) -> Option<Vec<u8>> {
    let [entries, frames, aux] = sections;
    let sections = Sections::of_parts([entries, frames, aux]);
    Packer::default().pack(sections).map(<[u8]>::to_vec)
}

fn one(kind_id: u8) -> Sample {
    Sample {
        kind_id,
        flags: 0,
        relation: 0,
        xid: 0,
        start: 5_000,
        time: 9,
        payload: b"message".to_vec(),
    }
}

proptest! {
    #[test]
    fn what_is_packed_comes_back(samples in prop::collection::vec(sample(), 0..40)) {
        let (header, sections) = body(&samples);
        let packed = pack(&sections).unwrap();
        prop_assert!(packed.len() <= packed_len_max(&header));
        prop_assert_eq!(unpack(&header, &packed).unwrap(), sections.concat());
    }

    #[test]
    fn any_bytes_are_a_body_of_the_claimed_length_or_an_error(
        samples in prop::collection::vec(sample(), 0..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        shorten: bool,
        entry_count in 0_u32..20,
        wrong_count: bool,
    ) {
        let (mut header, sections) = body(&samples);
        let mut packed = pack(&sections).unwrap();
        for (place, byte) in changes {
            let place = place.index(packed.len());
            packed[place] = byte;
        }
        if shorten {
            packed.truncate(cut.index(packed.len()));
        }
        if wrong_count {
            header.entry_count = entry_count;
        }
        if let Ok(body) = unpack(&header, &packed) {
            prop_assert_eq!(body.len(), header.raw_len());
        }
    }
}

#[test]
fn one_packer_packs_many_bodies() {
    let mut packer = Packer::default();
    let bodies = [vec![one(3), one(64)], vec![], vec![one(2); 3]];
    for samples in bodies {
        let (header, sections) = body(&samples);
        let [entries, frames, aux] = &sections;
        let packed = packer.pack(Sections::of_parts([entries, frames, aux]));
        let restored = unpack(&header, packed.unwrap()).unwrap();
        assert_eq!(restored, sections.concat());
    }
}

#[test]
fn a_row_costs_few_bytes_beside_its_message() {
    let samples: Vec<Sample> = (0..1_000)
        .map(|row| Sample {
            start: (1 << 40) | (row * 150),
            time: 800_000_000_000_000,
            ..one(3)
        })
        .collect();
    let (_, sections) = body(&samples);
    let packed = pack(&sections).unwrap().len();
    let messages: usize = samples.iter().map(|sample| sample.payload.len()).sum();
    // Kind, relation, length, and two of the position; and what is there once.
    assert!(packed < messages + 5 * samples.len() + 64, "{packed}");
}

#[test]
fn what_would_not_come_back_is_not_packed() {
    let (_, sound) = body(&[one(3), one(64), one(3)]);
    assert!(pack(&sound).is_some());
    let frame = FRAME_HEAD_LEN + 7;
    // Tag, length, kind, walEnd of a frame: nothing else than what follows from the rest is stored of them.
    for at in [0, 4, 5, 14, 21, frame, frame + 20] {
        let mut sections = sound.clone();
        sections[1][at] ^= 1;
        assert_eq!(pack(&sections), None, "byte {at} of the frames");
    }
    // Offset and length of each entry.
    for at in [4, 8, ENTRY_LEN + 4, ENTRY_LEN + 8, 2 * ENTRY_LEN + 4] {
        let mut sections = sound.clone();
        sections[0][at] ^= 1;
        assert_eq!(pack(&sections), None, "byte {at} of the entries");
    }
    for section in [1, 2] {
        let mut sections = sound.clone();
        sections[section].push(0);
        assert_eq!(pack(&sections), None, "longer section {section}");
    }
}

#[test]
fn columns_are_as_long_as_their_records() {
    let (header, sections) = body(&[one(3), one(64), one(3)]);
    let packed = pack(&sections).unwrap();
    assert!(unpack(&header, &packed).is_ok());
    let longer = [b"x", packed.as_slice()].concat();
    assert!(unpack(&header, &longer).is_err());
    assert!(unpack(&header, &packed[1..]).is_err());
    for wrong in [
        BlockHeader {
            entry_count: 2,
            ..header
        },
        BlockHeader {
            entry_count: u32::MAX,
            ..header
        },
        BlockHeader {
            frames_len: header.frames_len + 1,
            ..header
        },
        BlockHeader {
            frames_len: u32::MAX,
            aux_len: u32::MAX,
            ..header
        },
        BlockHeader {
            aux_len: header.aux_len - 1,
            frames_len: header.frames_len + 1,
            ..header
        },
    ] {
        assert!(unpack(&wrong, &packed).is_err(), "{wrong:?}");
    }
}
