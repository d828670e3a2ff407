//! Whether the segments follow each other without a hole.

use super::active::Tip;
use crate::block::BlockKind;
use crate::error::{Damage, FormatError};
use crate::fs::Fs;
use crate::identity::Identity;
use crate::segment::{
    FOOTER_TRAILER_LEN, FileWindow, Footer, SEGMENT_HEADER_LEN, SegmentHeader, SegmentInfo,
    SegmentState,
};
use pg_proto::Lsn;

/// Checks every segment but the last: it belongs to this log, it is complete, and the next one begins where it
/// ends. Only headers and footers are read here; bodies are checked when they are used.
pub(super) fn check_history(
    fs: &dyn Fs,
    segments: &[SegmentInfo],
    identity: &Identity,
) -> Result<(), FormatError> {
    for pair in segments.windows(2) {
        let [segment, next] = pair else { continue };
        let end_lsn = segment_end(fs, segment, identity)?;
        if next.name != segment.name.next(end_lsn) {
            return Err(FormatError::MissingSegment {
                path: segment.path.parent().unwrap_or(&segment.path).to_owned(),
                sequence: segment.name.sequence,
                end_lsn,
                found: next.name.to_string(),
            });
        }
    }
    Ok(())
}

fn segment_end(
    fs: &dyn Fs,
    segment: &SegmentInfo,
    identity: &Identity,
) -> Result<Lsn, FormatError> {
    let path = &segment.path;
    let file = fs.open(path).map_err(FormatError::io("open", path))?;
    let mut window = FileWindow::new(&*file, path)?;
    let sealed = segment.state == SegmentState::Sealed;
    let start = window.bytes(0, SEGMENT_HEADER_LEN)?;
    let (header, chain) = SegmentHeader::decode_file(start, path, segment.name, sealed)?;
    identity.check_same_log(&header.identity, path)?;
    if sealed {
        read_footer(&mut window).map(|footer| footer.end_lsn)
    } else {
        end_block(&mut window, chain)
    }
}

fn read_footer(window: &mut FileWindow<'_>) -> Result<Footer, FormatError> {
    let file_len = window.file_len();
    let path = window.path().to_owned();
    let trailer_at = file_len.saturating_sub(FOOTER_TRAILER_LEN as u64);
    let offset = Footer::locate(window.bytes(trailer_at, FOOTER_TRAILER_LEN)?, file_len)
        .map_err(|damage| damage.at(&path, trailer_at))?;
    let length = usize::try_from(file_len - offset).unwrap_or(usize::MAX);
    let (footer, _) = Footer::decode(window.bytes(offset, length)?, offset)
        .map_err(|damage| damage.at(&path, offset))?;
    Ok(footer)
}

/// Follows the headers of a finished active file to its segment-end block.
fn end_block(window: &mut FileWindow<'_>, chain: u32) -> Result<Lsn, FormatError> {
    let mut tip = Tip {
        offset: SEGMENT_HEADER_LEN as u64,
        chain,
    };
    loop {
        let block = window
            .header(tip.offset)?
            .and_then(|block| {
                if block.header.chain == tip.chain {
                    Ok(block)
                } else {
                    Err(Damage::mismatch("chain", tip.chain, block.header.chain))
                }
            })
            .map_err(|damage| damage.at(window.path(), tip.offset))?;
        if block.header.kind == BlockKind::SegmentEnd {
            return Ok(block.header.end_lsn);
        }
        tip = Tip {
            offset: block.end,
            chain: block.crc,
        };
    }
}
