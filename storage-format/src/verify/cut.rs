//! Taking transactions off the log's end that the source does not have: after a fork.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pg_proto::pgoutput::{Framing, Message, decode};
use pg_proto::{Lsn, PgTimestamp};

use super::replacement::{Keep, Replacement, move_aside};
use super::undone::ended_behind;
use super::walk::{Checked, Walk};
use crate::block::{Block, BlockFlags, BlockHeader, BlockKind};
use crate::catalog::{Catalog, read_own_versions, write_own_versions};
use crate::error::{Damage, FormatError};
use crate::fs::Fs;
use crate::record::RecordKind;
use crate::segment::{FileWindow, FoundBlock, SEGMENT_HEADER_LEN};
use crate::staging::PreparedId;
use crate::watermark::{Cut, LogPoint, WatermarkPublisher, WatermarkState};
use crate::write::lock_existing;

/// What [`cut_off`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutOff {
    /// Where the log ends now: behind the last transaction that ended at or before the asked position.
    pub end_lsn: Lsn,
    /// Where it ended before.
    pub was_lsn: Lsn,
    /// Commit LSN of the first transaction that was taken off; `None` if there was none.
    pub first_commit_lsn: Option<Lsn>,
    /// The files as they were, kept aside.
    pub moved: Vec<PathBuf>,
    /// Transactions that were prepared at or before that position and whose end, or what may be it, was taken off: see
    /// [`undo_decisions`](super::undo_decisions).
    pub undone: Vec<PreparedId>,
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
            first_commit_lsn: None,
            moved: Vec::new(),
            undone: Vec::new(),
        });
    }
    let holder = segments
        .iter()
        .rev()
        .find(|segment| segment.name.first_lsn <= lsn)
        .unwrap_or(first);
    let touched: Vec<&Checked> = segments
        .iter()
        .filter(|segment| segment.name.sequence >= holder.name.sequence)
        .collect();
    let first_commit_lsn = first_behind(fs, &touched, lsn)?;
    let undone = ended_behind(fs, &touched, lsn)?;
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
    })?;
    cut_own_versions(fs, log, lsn)?;
    watermark.note_cut(Cut {
        lsn,
        epoch,
        first_commit_lsn,
    })?;
    Ok(CutOff {
        end_lsn,
        was_lsn,
        first_commit_lsn,
        moved,
        undone,
    })
}

/// The log that stated what counted behind the cut is gone.
fn cut_own_versions(fs: &dyn Fs, log: &Path, lsn: Lsn) -> Result<(), FormatError> {
    let mut versions = read_own_versions(fs, log)?;
    if versions.all().iter().all(|one| one.stated <= lsn) {
        return Ok(());
    }
    versions.cut_at(lsn);
    write_own_versions(fs, log, &versions)
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
    let block = whole_block(window, offset)?;
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
    let mut kept = 0;
    for end in ends(block).take_while(|end| end.lsn <= lsn) {
        kept = end.entry + 1;
        header.event_count = end.events;
        header.end_lsn = end.lsn;
        if let Some((commit_lsn, time)) = end.transaction {
            header.last_commit_lsn = commit_lsn;
            header.last_commit_time = header.last_commit_time.max(time);
            // Prepared ones are not counted.
            header.transaction_count += u32::from(!whole.flags.contains(BlockFlags::PREPARED));
        }
    }
    (kept, header)
}

/// The end of a transaction, or of what stands between transactions.
struct End {
    /// Which entry of the block it is.
    entry: usize,
    /// Events of the block up to here.
    events: u32,
    /// Behind it.
    lsn: Lsn,
    /// Start of the record that commits or prepares, and when that was.
    transaction: Option<(Lsn, PgTimestamp)>,
}

fn ends(block: &Block) -> impl Iterator<Item = End> {
    let mut events = 0;
    let mut inside = block.header().flags.contains(BlockFlags::CONTINUES);
    let ends = block.entries().enumerate().map(move |(index, entry)| {
        let kind = entry.kind()?;
        events += u32::from(kind.is_event());
        inside |= matches!(kind, RecordKind::Begin | RecordKind::BeginPrepare);
        let message = match kind {
            RecordKind::Commit | RecordKind::Prepare => {
                inside = false;
                decode(block.payload(&entry), Framing::Plain)
            }
            RecordKind::Message | RecordKind::RollbackPrepared if !inside => {
                decode(block.payload(&entry), Framing::Plain)
            }
            _ => return None,
        };
        let (lsn, transaction) = match message.ok()? {
            Message::Commit(commit) => (
                commit.end_lsn,
                Some((commit.commit_lsn, commit.commit_time)),
            ),
            Message::Prepare(prepare) => (
                prepare.end_lsn,
                Some((prepare.prepare_lsn, prepare.prepare_time)),
            ),
            Message::RollbackPrepared(end) => (end.rollback_end_lsn, None),
            Message::LogicalMessage(message) => (message.lsn, None),
            _ => return None,
        };
        Some(End {
            entry: index,
            events,
            lsn,
            transaction,
        })
    });
    ends.flatten()
}

/// The first position behind which a subscriber has something that ends behind `lsn`: where the first such transaction
/// commits. `None` if there is none.
fn first_behind(fs: &dyn Fs, segments: &[&Checked], lsn: Lsn) -> Result<Option<Lsn>, FormatError> {
    let first = find_in_blocks(fs, segments, |window, found| {
        let header = &found.header;
        if header.first_commit_lsn >= lsn {
            return Ok(Some(Some(header.first_commit_lsn)));
        }
        if header.end_lsn > lsn {
            let block = whole_block(window, found.offset)?;
            let end = ends(&block).find(|end| end.lsn > lsn);
            return Ok(Some(end.map(|end| match end.transaction {
                Some((commit_lsn, _)) => commit_lsn,
                None => Lsn(end.lsn.0 - 1),
            })));
        }
        let open = header.flags.contains(BlockFlags::OPEN_END);
        Ok((open && header.last_commit_lsn >= lsn).then_some(Some(header.last_commit_lsn)))
    })?;
    Ok(first.flatten())
}

/// Goes through the blocks of changes of sound segments until `look` finds something.
pub(super) fn find_in_blocks<T>(
    fs: &dyn Fs,
    segments: &[&Checked],
    mut look: impl FnMut(&mut FileWindow<'_>, &FoundBlock) -> Result<Option<T>, FormatError>,
) -> Result<Option<T>, FormatError> {
    for segment in segments {
        let path = &segment.path;
        let file = fs
            .open_to_read(path)
            .map_err(FormatError::io("open", path))?;
        let mut window = FileWindow::new(&*file, path)?;
        let mut offset = SEGMENT_HEADER_LEN as u64;
        while offset < segment.totals.offset {
            let block = window
                .header(offset)?
                .map_err(|damage| damage.at(path, offset))?;
            offset = block.end;
            if block.header.kind == BlockKind::Data
                && let Some(found) = look(&mut window, &block)?
            {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

pub(super) fn whole_block(window: &mut FileWindow<'_>, offset: u64) -> Result<Block, FormatError> {
    let path = window.path().to_owned();
    let at = |damage: Damage| damage.at(&path, offset);
    let found = window.header(offset)?.map_err(at)?;
    let stored = Bytes::copy_from_slice(window.stored_body(&found)?);
    let prefix = window.bytes(offset, found.prefix_len)?;
    let decoded = BlockHeader::decode(prefix).map_err(|error| at(error.into()))?;
    Block::decode(&decoded, stored).map_err(at)
}
