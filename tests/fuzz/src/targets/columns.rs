//! Bodies that are stored as columns. Compressed bytes that were changed are no zstd frame any more, so the columns
//! themselves are the input: 12 bytes say how many entries, bytes of frames and bytes of aux there are to be.

use bytes::Bytes;
use pg_proto::Oid;
use storage_format::block::{Block, BlockHeader, BlockKind, Codec};
use storage_format::segment::SEGMENT_HEADER_LEN;

/// A content that compresses well may be many times as long; inputs are not.
const CONTENT_MAX: usize = 16 << 20;
/// Entries may name so many relations.
const RELATIONS: [Oid; 64] = [Oid(16_384); 64];

pub(super) fn run(bytes: &[u8]) -> bool {
    let Some((counts, content)) = bytes.split_first_chunk() else {
        return false;
    };
    let Ok(stored) = zstd::bulk::compress(content, 1) else {
        return false;
    };
    let [entry_count, frames_len, aux_len] = numbers(counts);
    let header = BlockHeader {
        codec: Codec::Columns,
        relation_count: u32::try_from(RELATIONS.len()).unwrap_or_default(),
        stored_len: u32::try_from(stored.len()).unwrap_or_default(),
        body_crc: crc32fast::hash(&stored),
        entry_count,
        frames_len,
        aux_len,
        ..BlockHeader::empty(BlockKind::Data)
    };
    let mut head = Vec::new();
    header.encode(&RELATIONS, &mut head);
    let Ok(decoded) = BlockHeader::decode(&head) else {
        return false;
    };
    let Ok(block) = Block::decode(&decoded, Bytes::from(stored)) else {
        return false;
    };
    assert_eq!(block.entries().len(), entry_count as usize);
    assert_eq!(block.frames().len(), frames_len as usize);
    for entry in block.entries() {
        let _ = (
            block.payload(&entry),
            block.start_lsn(&entry),
            block.send_time(&entry),
        );
    }
    true
}

fn numbers(counts: &[u8; 12]) -> [u32; 3] {
    let (fields, _) = counts.as_chunks();
    std::array::from_fn(|place| {
        fields
            .get(place)
            .map_or(0, |field| u32::from_le_bytes(*field))
    })
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    super::log::seeds_of_sealed()
        .iter()
        .flat_map(|segment| columns_of(segment))
        .collect()
}

fn columns_of(segment: &[u8]) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut rest = segment.get(SEGMENT_HEADER_LEN..).unwrap_or_default();
    while let Ok(block) = BlockHeader::decode(rest) {
        let header = block.header;
        let (prefix, stored) = (block.prefix_len, header.stored_len as usize);
        let Some(body) = rest.get(prefix..prefix + stored) else {
            break;
        };
        if header.codec == Codec::Columns {
            let content = zstd::bulk::decompress(body, CONTENT_MAX).expect("a sound segment");
            let counts = [header.entry_count, header.frames_len, header.aux_len];
            seeds.push([&counts.map(u32::to_le_bytes).concat()[..], &content].concat());
        }
        rest = rest.get(prefix + stored..).unwrap_or_default();
    }
    seeds
}
