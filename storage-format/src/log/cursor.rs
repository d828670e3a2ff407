//! One reader's way through the log.

use std::sync::Arc;

use pg_proto::{Lsn, Oid};

use super::catalogs::apply_block;
use super::segment::Segment;
use super::{Log, ReadError, SeekError};
use crate::block::{Block, BlockFlags, BlockHeader, BlockKind, DecodedHeader};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::segment::{SEGMENT_HEADER_LEN, SegmentState};
use crate::watermark::Cut;

/// Most blocks that [`Cursor::next_with`] skips between two looks at the watermark.
const RUN: usize = 4096;

/// A reader's place in a log. Made by [`Log::cursor_at`] and [`Log::cursor_at_time`].
///
/// After an error it stands where it was, and may be asked again.
#[derive(Debug)]
pub struct Cursor {
    pub(super) log: Arc<Log>,
    pub(super) place: Place,
    pub(super) start: Lsn,
    pub(super) position: Lsn,
    /// In force at the start of the block last returned, or at `place`.
    pub(super) catalog: Arc<Catalog>,
    /// In force behind it.
    pub(super) following: Arc<Catalog>,
    /// Whether the last block ended inside a transaction.
    pub(super) inside: bool,
    pub(super) epoch: u64,
    /// The cut of the log that was in force when it was made.
    pub(super) cut: u64,
    pub(super) relations: Vec<Oid>,
}

/// The next block.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u64,
    /// Checksum of the header before, if it was read.
    pub(super) chain: Option<u32>,
}

/// Where a cursor stands, for others to go on from. Made by [`Cursor::spot`].
#[derive(Clone, Debug)]
pub struct Spot {
    place: Place,
    position: Lsn,
    epoch: u64,
    cut: u64,
}

/// What [`Cursor::step_with`] came to.
#[derive(Clone, Debug)]
pub enum Step {
    /// A block that was wanted.
    Block(Arc<Block>),
    /// The given number of blocks, none of which was wanted.
    Skipped,
    /// The head: there is nothing more yet.
    Head,
}

/// What a block's header says, as far as going on needs it.
struct Met {
    header: BlockHeader,
    crc: u32,
    length: u64,
    wanted: bool,
}

impl Cursor {
    /// The next block of records; `None` at the head. What has no records (progress, segment ends) is passed over
    /// and moves [`Self::position`].
    #[expect(
        clippy::should_implement_trait,
        reason = "it ends for now only, and an iterator over errors would hide that"
    )]
    pub fn next(&mut self) -> Result<Option<Arc<Block>>, ReadError> {
        self.next_with(&|_, _| true)
    }

    /// The next block for which `wanted` is true of its header and relation set; `None` at the head. The others are
    /// skipped without looking at their bodies, but for those that change the catalog.
    ///
    /// To keep BEGIN and COMMIT of a transaction that spans blocks, want its first block (`OPEN_END` without
    /// `CONTINUES`) and its last (`CONTINUES` without `OPEN_END`) in any case.
    pub fn next_with(
        &mut self,
        wanted: &dyn Fn(&BlockHeader, &[Oid]) -> bool,
    ) -> Result<Option<Arc<Block>>, ReadError> {
        loop {
            match self.step_with(wanted, RUN)? {
                Step::Block(block) => return Ok(Some(block)),
                Step::Head => return Ok(None),
                Step::Skipped => {}
            }
        }
    }

    /// As [`Self::next_with`], and returns after `blocks_max` skipped blocks at the latest, so that a caller can
    /// let others have their turn.
    pub fn step_with(
        &mut self,
        wanted: &dyn Fn(&BlockHeader, &[Oid]) -> bool,
        blocks_max: usize,
    ) -> Result<Step, ReadError> {
        if !self.follow_epoch()? {
            return Ok(Step::Head);
        }
        let fence = self.follow_history()?;
        let mut limit = self.log.limit(&self.place.segment);
        for _ in 0..blocks_max.max(1) {
            self.catalog = Arc::clone(&self.following);
            if self.place.offset >= limit {
                return Ok(Step::Head);
            }
            let met = self.meet(limit, wanted)?;
            if fence.is_some_and(|fence| goes_behind(&met.header, fence)) {
                return Ok(Step::Head);
            }
            match met.header.kind {
                BlockKind::SegmentEnd | BlockKind::Footer => {
                    if !self.cross(met.header.end_lsn)? {
                        return Ok(Step::Head);
                    }
                    limit = self.log.limit(&self.place.segment);
                }
                BlockKind::Gap => return Err(self.gap(met.header.end_lsn)),
                BlockKind::Snapshot => self.pass(&met, false),
                BlockKind::Progress => self.pass(&met, true),
                BlockKind::Data => {
                    if let Some(block) = self.take(&met, limit)? {
                        return Ok(Step::Block(block));
                    }
                }
            }
        }
        Ok(Step::Skipped)
    }

    /// The position that was asked for. A transaction is to be sent if its commit LSN is at or behind it; a logical
    /// message that stands alone, which names the end of its own record, only if that is behind it.
    #[must_use]
    pub const fn start(&self) -> Lsn {
        self.start
    }

    /// The log's position behind all that was returned or skipped: every transaction with a commit LSN below it is
    /// among that, or was not asked for. Inside a transaction that spans blocks, the position before it.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.position.max(self.start)
    }

    /// Whether the block last returned or skipped ends inside a transaction.
    #[must_use]
    pub const fn inside_transaction(&self) -> bool {
        self.inside
    }

    /// Where it stands, unless that is inside a transaction.
    #[must_use]
    pub fn spot(&self) -> Option<Spot> {
        (!self.inside).then(|| Spot {
            place: self.place.clone(),
            position: self.position,
            epoch: self.epoch,
            cut: self.cut,
        })
    }

    /// Goes on from where another cursor of the same log stands, without looking at what lies between: for who knows
    /// that nothing of it is wanted or changes the catalog. False, and nothing is done, if that is not further on, or in
    /// another history or epoch of the log.
    pub fn go_on_from(&mut self, spot: &Spot) -> bool {
        let same_epoch = spot.epoch == self.epoch || !self.log.may_go_back();
        // In this order: a fence that is lifted leaves a cut. The other cursor may be past either without knowing yet.
        let fenced = self.log.fence().is_some_and(|fence| spot.position > fence);
        let same_cut = spot.cut == self.cut && spot.cut == self.log.cut_number();
        let same = same_epoch && same_cut && !fenced && !self.inside;
        let further = same && spot.position > self.position();
        if further {
            self.place = spot.place.clone();
            self.position = spot.position;
            self.catalog = Arc::clone(&self.following);
        }
        further
    }

    /// The catalog in force at the start of the block last returned; after `None`, at the head. Apply the block's own
    /// records to it with [`Catalog::apply`] while walking them.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The catalog in force behind the block last returned or skipped.
    #[must_use]
    pub const fn catalog_behind(&self) -> &Arc<Catalog> {
        &self.following
    }

    /// Whether the log was followed up to the start: what was not committed by then is wanted.
    #[must_use]
    pub fn is_past_start(&self) -> bool {
        self.position >= self.start
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Looks at the header of the next block.
    fn meet(
        &mut self,
        limit: u64,
        wanted: &dyn Fn(&BlockHeader, &[Oid]) -> bool,
    ) -> Result<Met, FormatError> {
        let (place, relations) = (&self.place, &mut self.relations);
        place.segment.with_header(place.offset, limit, |decoded| {
            place.check_chain(decoded)?;
            let data = decoded.header.kind == BlockKind::Data;
            if data {
                read_relations(decoded, relations);
            }
            Ok(Met {
                header: decoded.header,
                crc: decoded.crc,
                length: decoded.block_len(),
                wanted: data && wanted(&decoded.header, relations),
            })
        })?
    }

    /// Goes over a data block, and returns it if it is wanted.
    fn take(&mut self, met: &Met, limit: u64) -> Result<Option<Arc<Block>>, ReadError> {
        let (segment, offset) = (&self.place.segment, self.place.offset);
        let changes_catalog = met.header.flags.contains(BlockFlags::HAS_CATALOG);
        let block = match met.wanted {
            true => Some(segment.block(offset, limit)?),
            false => None,
        };
        if changes_catalog {
            self.following =
                self.log
                    .catalog_behind(segment, offset, limit, &self.catalog, block.as_deref())?;
        }
        self.pass(met, true);
        Ok(block)
    }

    fn pass(&mut self, met: &Met, moves: bool) {
        self.place.offset += met.length;
        self.place.chain = Some(met.crc);
        self.inside = met.header.flags.contains(BlockFlags::OPEN_END);
        if moves {
            self.position = met.header.end_lsn;
        }
    }

    /// Goes on to the segment behind this one; false if it is not there yet.
    fn cross(&mut self, end_lsn: Lsn) -> Result<bool, ReadError> {
        let current = self.place.segment.name;
        let next = current.next(end_lsn);
        // Asked before the file is looked for: the next segment gets its name before the head moves into it.
        let must_exist = self.log.head().sequence > current.sequence;
        if let Some(segment) = self.log.segment(next, SegmentState::Active)? {
            self.place = Place::first(segment);
            self.position = self.position.max(end_lsn);
            return Ok(true);
        }
        if !must_exist {
            return Ok(false);
        }
        // It was deleted. If nothing was in it, as between two changes of the timeline, the position is kept all the same.
        match self.log.cursor_at(end_lsn) {
            Ok(again) if !Arc::ptr_eq(&again.place.segment, &self.place.segment) => {
                let start = self.start;
                *self = Self { start, ..again };
                Ok(true)
            }
            Err(SeekError::Read(error)) => Err(error),
            // At the end of the same file again: of those there are, none begins between this one and the position.
            Ok(_) | Err(SeekError::NotKept { .. } | SeekError::Ahead { .. }) => {
                let kept = self.log.kept_behind(end_lsn)?;
                Err(ReadError::NotKept {
                    asked: end_lsn,
                    oldest: kept.oldest,
                    newest: kept.newest,
                })
            }
        }
    }

    fn gap(&self, to: Lsn) -> ReadError {
        let from = self.position;
        ReadError::Gap { from, to }
    }

    /// The source may have another history from a position on. Returns the position behind which nothing may be
    /// returned as long as nobody has decided what to do. After the log was cut off, a cursor before that place goes
    /// on in the files of now, and one that was past it ends.
    fn follow_history(&mut self) -> Result<Option<Lsn>, ReadError> {
        let fence = self.log.fence();
        let position = self.position();
        if let Some(fork) = fence.filter(|fence| position > *fence) {
            return Err(ReadError::Forked { fork, position });
        }
        match self.log.cut() {
            Some(Cut {
                lsn: fork, epoch, ..
            }) if epoch != self.cut => {
                if position > fork || self.inside {
                    return Err(ReadError::Forked { fork, position });
                }
                self.log.follow_cut(epoch);
                match self.log.cursor_at(position) {
                    Ok(again) => *self = again,
                    Err(SeekError::Read(error)) => return Err(error),
                    Err(SeekError::Ahead { .. } | SeekError::NotKept { .. }) => {
                        return Err(ReadError::Forked { fork, position });
                    }
                }
                Ok(fence)
            }
            _ => Ok(fence),
        }
    }

    /// A decoder that was started anew may have lost what was written and not durable, and will write it again,
    /// perhaps in other blocks. So the place is looked up again by position. False if the log has not come that
    /// far again.
    fn follow_epoch(&mut self) -> Result<bool, ReadError> {
        if !self.log.may_go_back() {
            return Ok(true);
        }
        let head = self.log.head();
        if head.epoch == self.epoch || self.inside {
            return Ok(true);
        }
        if head.lsn < self.position {
            return Ok(false);
        }
        match self.log.cursor_at(self.position()) {
            Ok(again) => {
                *self = again;
                Ok(true)
            }
            Err(SeekError::Ahead { .. }) => Ok(false),
            Err(SeekError::NotKept {
                asked,
                oldest,
                newest,
            }) => Err(ReadError::NotKept {
                asked,
                oldest,
                newest,
            }),
            Err(SeekError::Read(error)) => Err(error),
        }
    }
}

impl Place {
    /// The first block of a segment.
    pub(super) fn first(segment: Arc<Segment>) -> Self {
        Self {
            offset: SEGMENT_HEADER_LEN as u64,
            chain: Some(segment.header_crc),
            segment,
        }
    }

    fn check_chain(&self, decoded: &DecodedHeader<'_>) -> Result<(), FormatError> {
        let found = decoded.header.chain;
        match self.chain {
            Some(expected) if expected != found => Err(self.segment.damage(
                Damage::mismatch(
                    "chain (checksum of the header before)",
                    format!("{expected:08x}"),
                    format!("{found:08x}"),
                ),
                self.offset,
            )),
            _ => Ok(()),
        }
    }
}

/// Whether a block has anything, or the beginning of anything, that ends behind `lsn`.
fn goes_behind(header: &BlockHeader, lsn: Lsn) -> bool {
    match header.kind {
        BlockKind::Data => {
            header.end_lsn > lsn
                || (header.flags.contains(BlockFlags::OPEN_END) && header.last_commit_lsn >= lsn)
        }
        BlockKind::Progress | BlockKind::Gap => header.end_lsn > lsn,
        BlockKind::Snapshot | BlockKind::SegmentEnd | BlockKind::Footer => false,
    }
}

fn read_relations(decoded: &DecodedHeader<'_>, into: &mut Vec<Oid>) {
    into.clear();
    let (oids, _) = decoded.relations.as_chunks();
    into.extend(oids.iter().map(|oid| Oid(u32::from_le_bytes(*oid))));
}

impl Log {
    /// The catalog behind the block at `offset`, of which `before` is the one in force before it. `block` saves
    /// reading it again.
    pub(super) fn catalog_behind(
        &self,
        segment: &Segment,
        offset: u64,
        limit: u64,
        before: &Arc<Catalog>,
        block: Option<&Block>,
    ) -> Result<Arc<Catalog>, ReadError> {
        let key = segment.key(offset);
        if let Some(known) = self.catalogs.get(key) {
            // The same content as before keeps the same version.
            return Ok(if known == *before {
                Arc::clone(before)
            } else {
                known
            });
        }
        let mut catalog = Arc::clone(before);
        match block {
            Some(block) => apply_block(&mut catalog, block, segment, offset)?,
            None => {
                let block = segment.block(offset, limit)?;
                apply_block(&mut catalog, &block, segment, offset)?;
            }
        }
        let same = Arc::ptr_eq(&catalog, before);
        let known = self.catalogs.put(key, catalog);
        Ok(if same { Arc::clone(before) } else { known })
    }
}
