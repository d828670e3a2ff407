//! Reading a sealed file back before it replaces what it was made from.

use std::path::Path;

use super::digest::RecordDigest;
use super::output::tally;
use super::with_records;
use crate::block::BlockKind;
use crate::error::{Damage, FormatError};
use crate::fs::FsFile;
use crate::segment::{FileWindow, Footer, SEGMENT_HEADER_LEN, SegmentHeader};

/// Fails unless the file has exactly this header, these records and these totals.
pub(super) fn verify(
    file: &dyn FsFile,
    path: &Path,
    header: &SegmentHeader,
    footer: &Footer,
    records: &RecordDigest,
) -> Result<(), FormatError> {
    let mut window = FileWindow::new(file, path)?;
    let start = window.bytes(0, SEGMENT_HEADER_LEN)?;
    let (found, chain) = SegmentHeader::decode_file(start, path, header.name, true)?;
    if found != *header {
        let differs = Damage::Content("the header is not the one that was written".to_owned());
        return Err(differs.at(path, 0));
    }
    let (digest, totals, chain) = read_blocks(&mut window, chain, header)?;
    let at_end = |damage: Damage| damage.at(path, totals.offset);
    records.check(&digest).map_err(at_end)?;
    let length = usize::try_from(window.file_len() - totals.offset).unwrap_or(usize::MAX);
    let bytes = window.bytes(totals.offset, length)?;
    let (found, found_chain) = Footer::decode(bytes, totals.offset).map_err(at_end)?;
    if found != *footer || found != totals || found_chain != chain {
        let expected = format!("{footer:?}");
        return Err(at_end(Damage::mismatch(
            "footer",
            expected,
            format!("{found:?}"),
        )));
    }
    Ok(())
}

/// Reads all blocks; what their totals are, and the last header's checksum.
fn read_blocks(
    window: &mut FileWindow<'_>,
    chain: u32,
    header: &SegmentHeader,
) -> Result<(RecordDigest, Footer, u32), FormatError> {
    let path = window.path().to_owned();
    let mut digest = RecordDigest::default();
    let mut bodies = crc32fast::Hasher::new();
    let mut chain = chain;
    let mut totals = Footer {
        offset: SEGMENT_HEADER_LEN as u64,
        end_lsn: header.name.first_lsn,
        last_commit_lsn: header.last_commit_lsn,
        ..Footer::default()
    };
    loop {
        let offset = totals.offset;
        let block = window
            .block(offset, chain)?
            .map_err(|damage| damage.at(&path, offset))?;
        if block.header.kind == BlockKind::Footer {
            break;
        }
        with_records(window, &block, |relations, sections| {
            digest.add(relations, sections)
        })?;
        bodies.update(&block.header.body_crc.to_le_bytes());
        tally(&mut totals, &block.header);
        totals.offset = block.end;
        chain = block.crc;
    }
    totals.bodies_crc = bodies.finalize();
    Ok((digest, totals, chain))
}
