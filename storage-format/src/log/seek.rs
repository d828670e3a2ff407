//! From a position or a time to a cursor.

use std::sync::Arc;

use pg_proto::{Lsn, PgTimestamp};

use super::catalogs::apply_block;
use super::cursor::Place;
use super::segment::Segment;
use super::{Cursor, Kept, Log, ReadError, SeekError};
use crate::block::{BlockFlags, BlockHeader, BlockKind};
use crate::catalog::Catalog;
use crate::index::{Entries, time_max_of};
use crate::record::RecordKind;
use crate::segment::{SEGMENT_HEADER_LEN, SegmentInfo, SegmentState};

/// How often the directory is listed anew because a segment vanished in the moment between.
const ATTEMPTS: usize = 3;

/// Where reading begins.
struct Start {
    place: Place,
    /// The log's position there.
    position: Lsn,
}

impl Log {
    /// A cursor that returns all transactions with a commit LSN at or behind `lsn`: any position from the oldest
    /// that is kept to the head, both included.
    pub fn cursor_at(self: &Arc<Self>, lsn: Lsn) -> Result<Cursor, SeekError> {
        // Asked before anything is looked up: whatever is cut off later, the cursor will notice.
        let cut = self.cut_number();
        self.follow_cut(cut);
        let head = self.head();
        self.follow_epoch(head.epoch);
        if lsn > head.lsn {
            return Err(SeekError::Ahead {
                asked: lsn,
                newest: head.lsn,
            });
        }
        let segment = self.segment_with(lsn)?;
        let start = self.locate(segment, lsn)?;
        self.cursor(start, lsn, (head.epoch, cut))
    }

    /// A cursor at the first transaction, in commit order, that committed at `time` or later; at the head, if there
    /// is none yet. [`Cursor::start`] is that transaction's commit LSN.
    pub fn cursor_at_time(self: &Arc<Self>, time: PgTimestamp) -> Result<Cursor, SeekError> {
        let lsn = match self.find_time(time)? {
            Some(lsn) => lsn,
            None => self.head().lsn,
        };
        self.cursor_at(lsn)
    }

    fn cursor(
        self: &Arc<Self>,
        start: Start,
        lsn: Lsn,
        (epoch, cut): (u64, u64),
    ) -> Result<Cursor, SeekError> {
        let catalog = self.catalog_at(&start.place.segment, start.place.offset)?;
        Ok(Cursor {
            log: Arc::clone(self),
            place: start.place,
            start: lsn,
            position: start.position,
            following: Arc::clone(&catalog),
            catalog,
            inside: false,
            epoch,
            cut,
            relations: Vec::new(),
        })
    }

    /// The segment in which reading for `lsn` begins.
    fn segment_with(&self, lsn: Lsn) -> Result<Arc<Segment>, SeekError> {
        let head = self.head().sequence;
        if let Some(segment) = self.named_segment(lsn, head) {
            return Ok(segment);
        }
        let mut listing = self.listing()?;
        for _ in 0..ATTEMPTS {
            let visible = listing.partition_point(|segment| segment.name.sequence <= head);
            let visible = listing.get(..visible).unwrap_or_default();
            let behind = visible.partition_point(|segment| segment.name.first_lsn <= lsn);
            if let Some(info) = behind.checked_sub(1).and_then(|place| visible.get(place))
                && let Some(segment) = self.segment(info.name, info.state)?
            {
                return Ok(segment);
            }
            listing = self.refresh()?;
        }
        let Kept { oldest, newest } = self.kept()?;
        Err(SeekError::NotKept {
            asked: lsn,
            oldest,
            newest,
        })
    }

    /// The last place in a segment before which all transactions end at or before `lsn`.
    fn locate(&self, segment: Arc<Segment>, lsn: Lsn) -> Result<Start, ReadError> {
        let limit = self.limit(&segment);
        let entry = segment.with_index(limit, |index| index.find_lsn(lsn))?;
        let mut best = match entry {
            Some(entry) => Start {
                place: Place {
                    segment: Arc::clone(&segment),
                    offset: entry.offset,
                    chain: None,
                },
                position: entry.lsn,
            },
            None => Start {
                position: segment.name.first_lsn,
                place: Place::first(Arc::clone(&segment)),
            },
        };
        let mut offset = best.place.offset;
        while offset < limit {
            let (header, crc, length) = segment.with_header(offset, limit, |decoded| {
                (decoded.header, decoded.crc, decoded.block_len())
            })?;
            if !goes_over(&header, lsn) {
                break;
            }
            offset += length;
            if !header.flags.contains(BlockFlags::OPEN_END) {
                best.place.offset = offset;
                best.place.chain = Some(crc);
                if header.kind != BlockKind::Snapshot {
                    best.position = header.end_lsn;
                }
            }
        }
        Ok(best)
    }

    /// The catalog in force at `offset` of a segment.
    fn catalog_at(&self, segment: &Arc<Segment>, offset: u64) -> Result<Arc<Catalog>, ReadError> {
        let limit = self.limit(segment);
        let changes = segment.with_index(limit, |index| catalog_blocks(index, offset))?;
        let mut from = changes.len();
        let mut catalog = None;
        while let Some(&change) = from.checked_sub(1).and_then(|place| changes.get(place)) {
            catalog = self.catalogs.get(segment.key(change));
            if catalog.is_some() {
                break;
            }
            from -= 1;
        }
        let mut catalog = match catalog {
            Some(catalog) => catalog,
            None => self.snapshot(segment, limit)?,
        };
        for &change in changes.get(from..).unwrap_or_default() {
            catalog = self.catalog_behind(segment, change, limit, &catalog, None)?;
        }
        Ok(catalog)
    }

    /// The catalog at the start of a segment.
    fn snapshot(&self, segment: &Segment, limit: u64) -> Result<Arc<Catalog>, ReadError> {
        let key = segment.key(0);
        if let Some(known) = self.catalogs.get(key) {
            return Ok(known);
        }
        let mut catalog = Arc::<Catalog>::default();
        let mut offset = SEGMENT_HEADER_LEN as u64;
        while offset < limit {
            let (kind, length) = segment.with_header(offset, limit, |decoded| {
                (decoded.header.kind, decoded.block_len())
            })?;
            if kind != BlockKind::Snapshot {
                break;
            }
            let block = segment.load_block(offset, limit)?;
            apply_block(&mut catalog, &block, segment, offset)?;
            offset += length;
        }
        Ok(self.catalogs.put(key, catalog))
    }

    /// Commit LSN of the first transaction that committed at `time` or later.
    fn find_time(self: &Arc<Self>, time: PgTimestamp) -> Result<Option<Lsn>, SeekError> {
        let cut = self.cut_number();
        self.follow_cut(cut);
        let epoch = self.head().epoch;
        for info in &*self.listing()? {
            let Some(segment) = self.segment_for_time(info, time)? else {
                continue;
            };
            let limit = self.limit(&segment);
            let entry = segment.with_index(limit, |index| index.find_time(time))?;
            if let Some(entry) = entry {
                let place = Place {
                    segment,
                    offset: entry.offset,
                    chain: None,
                };
                let position = entry.lsn;
                let cursor = self.cursor(Start { place, position }, position, (epoch, cut))?;
                return first_at(cursor, time);
            }
        }
        Ok(None)
    }

    /// The segment, unless it is known or turns out to have nothing that late.
    fn segment_for_time(
        &self,
        info: &SegmentInfo,
        time: PgTimestamp,
    ) -> Result<Option<Arc<Segment>>, ReadError> {
        if self
            .times
            .lock()
            .get(&info.name)
            .is_some_and(|max| *max < time)
        {
            return Ok(None);
        }
        let segment = self.segment(info.name, info.state)?;
        // Gone since the directory was listed: the answer is in one of the segments behind it.
        let Some(segment) = segment else {
            return Ok(None);
        };
        if info.state == SegmentState::Sealed && segment.sealed {
            let max = segment.with_index(u64::MAX, |index| {
                index
                    .last()
                    .map_or(PgTimestamp(i64::MIN), |entry| entry.time_max)
            })?;
            self.times.lock().insert(info.name, max);
            return Ok((max >= time).then_some(segment));
        }
        Ok(Some(segment))
    }
}

/// Whether all that a block holds ends at or before `lsn`, or is still open behind it.
fn goes_over(header: &BlockHeader, lsn: Lsn) -> bool {
    match header.kind {
        BlockKind::Snapshot => true,
        BlockKind::SegmentEnd | BlockKind::Footer => false,
        BlockKind::Data | BlockKind::Progress | BlockKind::Gap => header.end_lsn <= lsn,
    }
}

/// Offsets of the blocks before `offset` that change the catalog.
fn catalog_blocks(index: &dyn Entries, offset: u64) -> Vec<u64> {
    (0..index.count())
        .map_while(|place| index.get(place))
        .take_while(|entry| entry.offset < offset)
        .filter(|entry| entry.flags.contains(BlockFlags::HAS_CATALOG))
        .map(|entry| entry.offset)
        .collect()
}

/// Commit LSN of the first transaction from `cursor` on that committed at `time` or later.
fn first_at(mut cursor: Cursor, time: PgTimestamp) -> Result<Option<Lsn>, SeekError> {
    let late = |header: &BlockHeader| time_max_of(header) >= time;
    while let Some(block) = cursor.next_with(&|header, _| late(header))? {
        for entry in block.entries() {
            if entry.kind() == Some(RecordKind::Begin)
                && let Some((commit_lsn, commit_time)) = begin_of(block.payload(&entry))
                && commit_time >= time
            {
                return Ok(Some(commit_lsn));
            }
        }
    }
    Ok(None)
}

/// Commit LSN and time in a BEGIN.
fn begin_of(payload: &[u8]) -> Option<(Lsn, PgTimestamp)> {
    use pg_proto::pgoutput::{Framing, Message, decode};
    match decode(payload, Framing::Plain) {
        Ok(Message::Begin(begin)) => Some((begin.final_lsn, begin.commit_time)),
        _ => None,
    }
}
