//! Taking transactions off the log's end that the source does not have: after a fork.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pg_proto::Lsn;
use pg_proto::pgoutput::{Framing, Message, decode};

use super::replacement::{Keep, Replacement, move_aside};
use super::walk::{Checked, Walk};
use crate::block::{Block, BlockFlags, BlockHeader, BlockKind};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::fs::Fs;
use crate::record::RecordKind;
use crate::segment::{FileWindow, SEGMENT_HEADER_LEN};
use crate::watermark::{LogPoint, WatermarkPublisher, WatermarkState};
use crate::write::lock_existing;

/// What [`cut_off`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutOff {
    /// Where the log ends now: behind the last transaction that ended at or before the asked position.
    pub end_lsn: Lsn,
    /// Where it ended before.
    pub was_lsn: Lsn,
    /// The files as they were, kept aside.
    pub moved: Vec<PathBuf>,
}

/// Takes off what ends behind `lsn`. The old files are kept aside; readers that were past the new end are told so. No
/// decoder may be at work: the log is locked meanwhile. The log must be sound.
pub fn cut_off(fs: &dyn Fs, log: &Path, lsn: Lsn) -> Result<CutOff, FormatError> {
    let _lock = lock_existing(fs, log)?;
    let mut watermark = WatermarkPublisher::open(fs, log)?;
    let segments = sound_segments(fs, log, watermark.last())?;
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return Err(FormatError::State {
            call: "cut_off",
            problem: "has nothing to work on: the log has no segments",
        });
    };
    if lsn < first.name.first_lsn {
        return Err(FormatError::State {
            call: "cut_off",
            problem: "would leave nothing: the oldest segment begins behind that position",
        });
    }
    let was_lsn = last.state.end_lsn;
    if was_lsn <= lsn {
        return Ok(CutOff {
            end_lsn: was_lsn,
            was_lsn,
            moved: Vec::new(),
        });
    }
    let holder = segments
        .iter()
        .rev()
        .find(|segment| segment.name.first_lsn <= lsn)
        .unwrap_or(first);
    // Told first: whoever looks from now on sees nothing behind the cut.
    watermark.set_fence(Some(lsn))?;
    let epoch = watermark.last().map_or(0, |state| state.epoch) + 1;
    let mut moved = Vec::new();
    for segment in segments.iter().rev() {
        if segment.name.sequence > holder.name.sequence {
            moved.extend(move_aside(fs, log, segment.name)?);
            crate::segment::delete_segment(fs, log, segment.name)?;
        }
    }
    let end_lsn = shorten(fs, log, holder, lsn, &mut moved)?;
    let point = LogPoint {
        sequence: holder.name.sequence,
        offset: 0,
        lsn: end_lsn,
    };
    watermark.publish(WatermarkState {
        epoch,
        written: point,
        durable: point,
    });
    watermark.note_cut(end_lsn, epoch)?;
    Ok(CutOff {
        end_lsn,
        was_lsn,
        moved,
    })
}

fn sound_segments(
    fs: &dyn Fs,
    log: &Path,
    watermark: Option<WatermarkState>,
) -> Result<Vec<Checked>, FormatError> {
    let mut walk = Walk::new(fs, log, watermark, false)?;
    let mut segments = Vec::new();
    while let Some(segment) = walk.next(&mut |_| {})? {
        if let Some(finding) = segment.findings.first() {
            return Err(finding.damage.clone().at(&finding.path, finding.offset));
        }
        segments.push(segment);
    }
    Ok(segments)
}

/// Rewrites a segment so that it ends with the last transaction that ends at or before `lsn`.
fn shorten(
    fs: &dyn Fs,
    log: &Path,
    segment: &Checked,
    lsn: Lsn,
    moved: &mut Vec<PathBuf>,
) -> Result<Lsn, FormatError> {
    let path = &segment.path;
    let Some(header) = segment.header.clone() else {
        return Ok(segment.name.first_lsn);
    };
    let file = fs
        .open_to_read(path)
        .map_err(FormatError::io("open", path))?;
    let mut window = FileWindow::new(&*file, path)?;
    let part = last_part(&mut window, segment, lsn)?;
    let replacement = Replacement {
        fs,
        log,
        header,
        keep: Some(Keep {
            path: path.clone(),
            sealed: segment.sealed,
            end: part.offset,
        }),
        catalog: Arc::new(Catalog::default()),
    };
    let old = replacement.put(|output| match &part.block {
        Some(block) if part.entries > 0 => output
            .absorb_part(block, part.entries, &part.header)
            .map_err(|damage| damage.at(path, part.offset)),
        _ => Ok(()),
    })?;
    moved.extend(old);
    Ok(part.header.end_lsn)
}

/// Where a segment is cut: all before `offset` is kept, and the first entries of the block there.
struct Part {
    offset: u64,
    block: Option<Block>,
    entries: usize,
    header: BlockHeader,
}

/// Finds the last transaction that ends at or before `lsn`.
fn last_part(
    window: &mut FileWindow<'_>,
    segment: &Checked,
    lsn: Lsn,
) -> Result<Part, FormatError> {
    let path = window.path().to_owned();
    let mut offset = SEGMENT_HEADER_LEN as u64;
    let mut position = segment.name.first_lsn;
    // Behind the last block that ends outside a transaction.
    let mut outside = offset;
    while offset < segment.totals.offset {
        let found = window
            .header(offset)?
            .map_err(|damage| damage.at(&path, offset))?;
        let snapshot = found.header.kind == BlockKind::Snapshot;
        if !snapshot && found.header.end_lsn > lsn {
            break;
        }
        offset = found.end;
        if !snapshot {
            position = found.header.end_lsn;
        }
        if !found.header.flags.contains(BlockFlags::OPEN_END) {
            outside = offset;
        }
    }
    let part = part_of_block(window, segment, offset, position, lsn)?;
    if part.entries > 0 || outside == offset {
        return Ok(part);
    }
    // The transaction that is open before that block ends too late: so it goes from where it begins.
    part_of_block(window, segment, outside, position, lsn)
}

fn part_of_block(
    window: &mut FileWindow<'_>,
    segment: &Checked,
    offset: u64,
    position: Lsn,
    lsn: Lsn,
) -> Result<Part, FormatError> {
    let nothing = Part {
        offset,
        block: None,
        entries: 0,
        header: BlockHeader {
            end_lsn: position,
            ..BlockHeader::empty(BlockKind::Data)
        },
    };
    if offset >= segment.totals.offset {
        return Ok(nothing);
    }
    let path = window.path().to_owned();
    let at = |damage: Damage| damage.at(&path, offset);
    let found = window.header(offset)?.map_err(at)?;
    if found.header.kind != BlockKind::Data {
        return Ok(nothing);
    }
    let stored = Bytes::copy_from_slice(window.stored_body(&found)?);
    let prefix = window.bytes(offset, found.prefix_len)?;
    let decoded = BlockHeader::decode(prefix).map_err(|error| at(error.into()))?;
    let block = Block::decode(&decoded, stored).map_err(at)?;
    let (entries, header) = leading(&block, position, lsn);
    Ok(Part {
        block: Some(block),
        entries,
        header,
        ..nothing
    })
}

/// How many leading entries of a block make whole transactions that end at or before `lsn`, and a header that
/// describes them.
fn leading(block: &Block, position: Lsn, lsn: Lsn) -> (usize, BlockHeader) {
    let whole = block.header();
    let mut header = BlockHeader {
        transaction_count: 0,
        event_count: 0,
        end_lsn: position,
        last_commit_lsn: whole.first_commit_lsn,
        last_commit_time: whole.first_commit_time,
        flags: whole.flags.without(BlockFlags::OPEN_END),
        ..*whole
    };
    let (mut kept, mut events) = (0, 0);
    let mut inside = whole.flags.contains(BlockFlags::CONTINUES);
    for (index, entry) in block.entries().enumerate() {
        let kind = entry.kind();
        events += u32::from(kind.is_some_and(RecordKind::is_event));
        inside |= kind == Some(RecordKind::Begin);
        let end = match decode(block.payload(&entry), Framing::Plain) {
            Ok(Message::Commit(commit)) if kind == Some(RecordKind::Commit) => {
                inside = false;
                if commit.end_lsn <= lsn {
                    header.transaction_count += 1;
                    header.last_commit_lsn = commit.commit_lsn;
                    header.last_commit_time = header.last_commit_time.max(commit.commit_time);
                }
                commit.end_lsn
            }
            Ok(Message::LogicalMessage(message))
                if kind == Some(RecordKind::Message) && !inside =>
            {
                message.lsn
            }
            _ => continue,
        };
        if end > lsn {
            break;
        }
        kept = index + 1;
        header.event_count = events;
        header.end_lsn = end;
    }
    (kept, header)
}
