//! Headers: round trip, every changed byte, every truncation.

use pg_proto::{Lsn, Oid, PgTimestamp};
use proptest::prelude::*;
use storage_format::block::{
    BLOCK_HEADER_LEN, BlockFlags, BlockHeader, BlockKind, Codec, HeaderError,
};
use storage_format::segment::{SEGMENT_HEADER_LEN, SegmentHeader, SegmentHeaderError, SegmentName};
use storage_format::{FORMAT_VERSION, FormatError, Identity};

fn segment_header() -> SegmentHeader {
    SegmentHeader {
        identity: Identity {
            writer_epoch: 9,
            ..crate::support::identity()
        },
        name: SegmentName {
            sequence: 0x1122,
            first_lsn: Lsn(0x33_4455_6677),
        },
        sealed: false,
        last_commit_lsn: Lsn(0x33_4455_6600),
    }
}

fn block_header() -> (BlockHeader, Vec<Oid>) {
    let header = BlockHeader {
        flags: BlockFlags::CONTINUES | BlockFlags::HAS_CATALOG,
        relation_count: 3,
        stored_len: 16 * 5 + 600 + 70,
        entry_count: 5,
        event_count: 2,
        transaction_count: 2,
        frames_len: 600,
        aux_len: 70,
        first_commit_lsn: Lsn(0x1000),
        last_commit_lsn: Lsn(0x2000),
        end_lsn: Lsn(0x2030),
        first_ordinal: 12_345,
        first_commit_time: PgTimestamp(-5),
        last_commit_time: PgTimestamp(5),
        synced_offset: 4096,
        chain: 0xDEAD_BEEF,
        body_crc: 0x0102_0304,
        ..BlockHeader::empty(BlockKind::Data)
    };
    (header, vec![Oid(16384), Oid(1), Oid(u32::MAX)])
}

fn encoded(header: &BlockHeader, relations: &[Oid]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(relations, &mut bytes);
    bytes
}

#[test]
fn a_block_header_round_trips() {
    let (header, relations) = block_header();
    let mut bytes = b"before".to_vec();
    let crc = header.encode(&relations, &mut bytes);
    bytes.extend_from_slice(b"the body");
    let decoded = BlockHeader::decode(&bytes[6..]).unwrap();
    assert_eq!(decoded.header, header);
    assert_eq!(decoded.crc, crc);
    assert_eq!(decoded.prefix_len, BLOCK_HEADER_LEN + 12);
    assert_eq!(decoded.block_len(), (BLOCK_HEADER_LEN + 12 + 750) as u64);
    assert_eq!(decoded.relations[..4], 16384_u32.to_le_bytes());
}

#[test]
fn every_changed_bit_of_a_block_header_is_noticed() {
    let (header, relations) = block_header();
    let bytes = encoded(&header, &relations);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            assert!(BlockHeader::decode(&bad).is_err(), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn every_truncation_of_a_block_header_is_noticed() {
    let (header, relations) = block_header();
    let bytes = encoded(&header, &relations);
    for length in 0..bytes.len() {
        let error = BlockHeader::decode(&bytes[..length]).unwrap_err();
        assert!(matches!(error, HeaderError::Truncated { .. }), "{length}");
    }
}

/// Changes bytes and corrects the checksum, as a later version or a bug would.
fn rewritten(bytes: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + with.len()].copy_from_slice(with);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..BLOCK_HEADER_LEN - 4]);
    hasher.update(&bytes[BLOCK_HEADER_LEN..]);
    let crc = hasher.finalize();
    bytes[BLOCK_HEADER_LEN - 4..BLOCK_HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn what_a_block_header_may_not_say_is_refused() {
    let (header, relations) = block_header();
    let bytes = encoded(&header, &relations);
    assert!(BlockHeader::decode(&rewritten(&bytes, 0, b"D")).is_ok());
    let unknown = [(6, "kind", 77), (7, "codec", 9)];
    for (at, field, value) in unknown {
        let error = BlockHeader::decode(&rewritten(&bytes, at, &[value])).unwrap_err();
        let found = u32::from(value);
        assert_eq!(error, HeaderError::Unknown { field, found });
    }
    let error = BlockHeader::decode(&rewritten(&bytes, 11, &[0x80])).unwrap_err();
    assert!(matches!(error, HeaderError::Unknown { field: "flags", .. }));
    let error = BlockHeader::decode(&rewritten(&bytes, 104, &[1])).unwrap_err();
    assert_eq!(error, HeaderError::Reserved);
    // Lengths: more relations, entries or bytes than there can be.
    for (at, with) in [(12, [0xFF; 4]), (20, [0xFF; 4]), (16, [1, 0, 0, 0])] {
        let error = BlockHeader::decode(&rewritten(&bytes, at, &with)).unwrap_err();
        assert!(matches!(error, HeaderError::Length { .. }), "{error}");
    }
}

#[test]
fn a_longer_header_of_a_later_version_is_read() {
    let (header, _) = block_header();
    let header = BlockHeader {
        relation_count: 0,
        ..header
    };
    let mut bytes = encoded(&header, &[]);
    bytes.extend_from_slice(&[7; 16]);
    let bytes = rewritten(&bytes, 4, &144_u16.to_le_bytes());
    let decoded = BlockHeader::decode(&bytes).unwrap();
    assert_eq!(decoded.header, header);
    assert_eq!(decoded.prefix_len, 144);
}

#[test]
fn a_segment_header_round_trips() {
    let header = segment_header();
    let (bytes, crc) = header.encode().unwrap();
    assert_eq!(bytes.len(), SEGMENT_HEADER_LEN);
    assert_eq!(SegmentHeader::decode(&bytes), Ok((header.clone(), crc)));
    let sealed = SegmentHeader {
        sealed: true,
        ..header
    };
    let (bytes, _) = sealed.encode().unwrap();
    assert!(SegmentHeader::decode(&bytes).unwrap().0.sealed);
}

#[test]
fn every_changed_bit_and_truncation_of_a_segment_header_is_noticed() {
    let (bytes, _) = segment_header().encode().unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            assert!(SegmentHeader::decode(&bad).is_err(), "byte {at} bit {bit}");
        }
        let error = SegmentHeader::decode(&bytes[..at]).unwrap_err();
        assert_eq!(error, SegmentHeaderError::Truncated { have: at });
    }
}

#[test]
fn another_version_is_named() {
    let (mut bytes, _) = segment_header().encode().unwrap();
    bytes[8] = 2;
    let path = std::path::Path::new("x.active");
    let error = SegmentHeader::decode_file(&bytes, path, segment_header().name, false).unwrap_err();
    assert!(matches!(
        error,
        FormatError::Version {
            found: 2,
            supported: FORMAT_VERSION,
            ..
        }
    ));
}

#[test]
fn a_file_under_another_name_is_refused() {
    let (bytes, _) = segment_header().encode().unwrap();
    let path = std::path::Path::new("x.active");
    let other = SegmentName {
        sequence: 1,
        ..segment_header().name
    };
    for (name, sealed) in [(other, false), (segment_header().name, true)] {
        let error = SegmentHeader::decode_file(&bytes, path, name, sealed).unwrap_err();
        assert!(matches!(error, FormatError::Damaged { .. }), "{error}");
    }
}

#[test]
fn names_that_can_not_be_stored_are_refused() {
    for bad in ["x".repeat(64), "a\0b".to_owned()] {
        let mut header = segment_header();
        header.identity.slot = bad;
        assert!(matches!(
            header.encode(),
            Err(FormatError::Unstorable { .. })
        ));
    }
    let mut header = segment_header();
    header.identity.database = "x".repeat(63);
    let (bytes, _) = header.encode().unwrap();
    assert_eq!(SegmentHeader::decode(&bytes).unwrap().0, header);
}

proptest! {
    #[test]
    fn any_block_header_round_trips(
        fields in any::<[u64; 5]>(),
        times in any::<[i64; 2]>(),
        crcs in any::<[u32; 2]>(),
        counts in any::<[u16; 4]>(),
        relations in prop::collection::vec(any::<u32>(), 0..20),
        zstd: bool,
    ) {
        let [entry_count, frames_len, aux_len, stored] = counts.map(u32::from);
        let relations: Vec<Oid> = relations.into_iter().map(Oid).collect();
        let raw_len = entry_count * 16 + frames_len + aux_len;
        let header = BlockHeader {
            codec: if zstd { Codec::Columns } else { Codec::Raw },
            relation_count: u32::try_from(relations.len()).unwrap(),
            stored_len: if zstd { stored } else { raw_len },
            entry_count,
            frames_len,
            aux_len,
            first_commit_lsn: Lsn(fields[0]),
            last_commit_lsn: Lsn(fields[1]),
            end_lsn: Lsn(fields[2]),
            first_ordinal: fields[3],
            synced_offset: fields[4],
            first_commit_time: PgTimestamp(times[0]),
            last_commit_time: PgTimestamp(times[1]),
            chain: crcs[0],
            body_crc: crcs[1],
            ..BlockHeader::empty(BlockKind::Data)
        };
        let bytes = encoded(&header, &relations);
        prop_assert_eq!(BlockHeader::decode(&bytes).unwrap().header, header);
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = BlockHeader::decode(&bytes);
        let _ = SegmentHeader::decode(&bytes);
    }
}
