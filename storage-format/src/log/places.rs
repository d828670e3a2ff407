//! Which segments there are.
//!
//! The names file says it after a look or two. Whatever is wrong with it, or with what it says, the folder is listed, which
//! takes as long as there are segments: nothing that is found, and no error, depends on the file.

use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;

use super::segment::Segment;
use super::{Kept, Log, ReadError};
use crate::cache::BlockCache;
use crate::error::FormatError;
use crate::fs::Fs;
use crate::identity::Identity;
use crate::segment::{SegmentInfo, SegmentName, SegmentNames, SegmentState, list_segments};

impl Log {
    /// The positions that a cursor can start at.
    pub fn kept(&self) -> Result<Kept, ReadError> {
        let oldest = match self.named_oldest() {
            Some(name) => Some(name),
            None => self.refresh()?.first().map(|segment| segment.name),
        };
        let newest = self.head().lsn;
        let oldest = oldest.map_or(newest, |name| name.first_lsn);
        Ok(Kept { oldest, newest })
    }

    /// Those at or behind `lsn`, as the folder has it now.
    pub(super) fn kept_behind(&self, lsn: Lsn) -> Result<Kept, ReadError> {
        let newest = self.head().lsn;
        let listing = self.refresh()?;
        let mut starts = listing.iter().map(|segment| segment.name.first_lsn);
        let oldest = starts.find(|start| *start >= lsn).unwrap_or(newest);
        Ok(Kept { oldest, newest })
    }

    fn named_oldest(&self) -> Option<SegmentName> {
        SegmentNames::open(&*self.fs, &self.directory)?.oldest(&*self.fs, &self.directory)
    }

    /// The segment up to the one at the `head` in which reading for `lsn` begins, if the names file has it.
    pub(super) fn named_segment(&self, lsn: Lsn, head: u64) -> Option<Arc<Segment>> {
        let names = SegmentNames::open(&*self.fs, &self.directory)?;
        let name = names.find(&*self.fs, &self.directory, lsn, head)?;
        let preferred = if name.sequence == head {
            SegmentState::Active
        } else {
            SegmentState::Sealed
        };
        // What goes wrong here goes wrong again with the segment that the folder names, or does not matter.
        self.segment(name, preferred).ok()?
    }

    /// The segments there were when somebody last looked, which was after the head's one began.
    pub(super) fn listing(&self) -> Result<Arc<[SegmentInfo]>, ReadError> {
        let listing = Arc::clone(&self.listing.lock());
        let newest = listing.last().map(|segment| segment.name.sequence);
        if newest >= Some(self.head().sequence) {
            return Ok(listing);
        }
        self.refresh()
    }

    /// The segments there are now.
    pub(super) fn refresh(&self) -> Result<Arc<[SegmentInfo]>, ReadError> {
        let listing: Arc<[SegmentInfo]> = list_segments(&*self.fs, &self.directory)?.into();
        *self.listing.lock() = Arc::clone(&listing);
        Ok(listing)
    }
}

/// What is needed to open a segment before there is a [`Log`].
pub(super) struct Looking<'a> {
    pub(super) fs: &'a Arc<dyn Fs>,
    pub(super) directory: &'a Path,
    pub(super) cut: u64,
    pub(super) cache: &'a Arc<BlockCache>,
}

impl Looking<'_> {
    /// Whose log it is, as its newest segment says; `None` if there is no segment. The head is in the segment `head`.
    pub(super) fn newest_identity(&self, head: u64) -> Result<Option<Identity>, FormatError> {
        if let Some(identity) = self.named_identity(head) {
            return Ok(Some(identity));
        }
        for info in list_segments(&**self.fs, self.directory)?.iter().rev() {
            let sealed = info.state == SegmentState::Sealed;
            if let Some(identity) = self.identity(info.name, [sealed, true])? {
                return Ok(Some(identity));
            }
        }
        Ok(None)
    }

    fn named_identity(&self, head: u64) -> Option<Identity> {
        let name = SegmentNames::open(&**self.fs, self.directory)?.last()?;
        let current = name.sequence >= head;
        let found = current.then(|| self.identity(name, [false, true]));
        found?.ok()?
    }

    /// What a segment's raw or sealed file says, whichever is there first.
    fn identity(
        &self,
        name: SegmentName,
        sealed: [bool; 2],
    ) -> Result<Option<Identity>, FormatError> {
        for sealed in sealed {
            let (fs, cache) = (Arc::clone(self.fs), Arc::clone(self.cache));
            let opened = Segment::open(fs, self.directory, name, sealed, self.cut, cache)?;
            if let Some(segment) = opened {
                return Ok(Some(segment.identity.clone()));
            }
        }
        Ok(None)
    }
}
