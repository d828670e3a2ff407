//! A log, opened for reading.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pg_proto::{Lsn, PgTimestamp};

use super::catalogs::Catalogs;
use super::places::Looking;
use super::segment::Segment;
use super::{Head, ReadError, ReadOptions, Serve};
use crate::cache::BlockCache;
use crate::fs::Fs;
use crate::identity::Identity;
use crate::segment::{SegmentInfo, SegmentName, SegmentState};
use crate::watermark::{Cut, LogPoint, WatermarkReader, WatermarkState};

/// A log directory, opened for reading: one per process, shared by all its cursors.
#[derive(Debug)]
pub struct Log {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) directory: PathBuf,
    pub(super) catalogs: Catalogs,
    /// Highest commit times of sealed segments, as far as somebody looked for a time.
    pub(super) times: Mutex<HashMap<SegmentName, PgTimestamp>>,
    options: ReadOptions,
    identity: Identity,
    watermark: WatermarkReader,
    /// What the watermark said when the log was opened.
    first_state: WatermarkState,
    cache: Arc<BlockCache>,
    /// Where the names of segments did not do: what the folder had when somebody last looked.
    pub(super) listing: Mutex<Arc<[SegmentInfo]>>,
    open: Mutex<OpenSegments>,
}

/// Open files: shared while somebody reads them, and the newest active one in any case, for the sake of its index.
#[derive(Debug, Default)]
struct OpenSegments {
    files: HashMap<(u64, bool), Weak<Segment>>,
    newest_active: Option<Arc<Segment>>,
    /// The writer's epoch that was seen last.
    epoch: Option<u64>,
    /// The cut that was seen last, as [`Log::cut`] numbers them.
    cut: u64,
}

impl Log {
    /// Opens the log in a directory. Of the segments only the newest is looked at, however many there are.
    pub fn open(directory: &Path, options: ReadOptions) -> Result<Arc<Self>, ReadError> {
        Self::open_on(crate::fs::system(), directory, options)
    }

    /// The same on another file system.
    pub fn open_on(
        fs: Arc<dyn Fs>,
        directory: &Path,
        options: ReadOptions,
    ) -> Result<Arc<Self>, ReadError> {
        let watermark = WatermarkReader::open_on(&*fs, directory)?;
        let first_state = watermark.read()?;
        let cache = Arc::new(BlockCache::new(options.cache_bytes));
        let looking = Looking {
            fs: &fs,
            directory,
            cut: watermark.cut().map_or(0, |cut| cut.epoch),
            cache: &cache,
        };
        let newest = looking.newest_identity(first_state.written.sequence)?;
        let identity = newest.ok_or_else(|| ReadError::Empty {
            path: SegmentName::folder(directory),
        })?;
        Ok(Arc::new(Self {
            fs,
            directory: directory.to_owned(),
            catalogs: Catalogs::default(),
            times: Mutex::default(),
            options,
            identity,
            watermark,
            first_state,
            cache,
            listing: Mutex::default(),
            open: Mutex::default(),
        }))
    }

    /// Whose log it is: as the newest segment said when the log was opened.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The end of what readers see now. Cheap: a few loads from shared memory.
    #[must_use]
    pub fn head(&self) -> Head {
        let state = self.state();
        let point = self.served(&state);
        let lsn = point.lsn;
        Head {
            lsn: self.fence().map_or(lsn, |fence| lsn.min(fence)),
            epoch: state.epoch,
            sequence: point.sequence,
            offset: point.offset,
            heartbeat: self.watermark.heartbeat(),
        }
    }

    /// Everything that the decoder has published.
    #[must_use]
    pub fn state(&self) -> WatermarkState {
        // The file was readable when the log was opened, and a publication never becomes unreadable.
        self.watermark.read().unwrap_or(self.first_state)
    }

    /// Nothing that ends behind this position is served: the source has another history there.
    #[must_use]
    pub fn fence(&self) -> Option<Lsn> {
        self.watermark.fence()
    }

    /// The number of the last cut; 0 if there was none.
    pub(super) fn cut_number(&self) -> u64 {
        self.cut().map_or(0, |cut| cut.epoch)
    }

    /// Where the log was cut off last; `None` if it never was.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.watermark.cut()
    }

    /// Files of these names may be others now: forgets all that is open, unless somebody did so since the cut.
    pub(super) fn follow_cut(&self, cut: u64) {
        let mut open = self.open.lock();
        if open.cut >= cut {
            return;
        }
        open.cut = cut;
        open.newest_active = None;
        *self.listing.lock() = Arc::default();
        let sequences: Vec<(u64, bool)> = open.files.drain().map(|(key, _)| key).collect();
        drop(open);
        for (sequence, sealed) in sequences {
            self.cache.forget_file(sequence, sealed);
        }
        self.catalogs.clear();
        self.times.lock().clear();
    }

    /// Bytes that the cache of decoded blocks keeps alive.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// The offset in a segment's file that no reader goes past: unlimited if the file is complete.
    pub(super) fn limit(&self, segment: &Segment) -> u64 {
        let state = self.state();
        let point = self.served(&state);
        match segment.name.sequence.cmp(&point.sequence) {
            std::cmp::Ordering::Less => u64::MAX,
            _ if segment.sealed => u64::MAX,
            std::cmp::Ordering::Equal => point.offset,
            std::cmp::Ordering::Greater => 0,
        }
    }

    /// Opens a segment's file, or shares it with those who have it open. `preferred` is tried first, then the other,
    /// then the first again: sealing may replace the one by the other in between. `None` if there is neither.
    pub(super) fn segment(
        &self,
        name: SegmentName,
        preferred: SegmentState,
    ) -> Result<Option<Arc<Segment>>, ReadError> {
        let sealed = preferred == SegmentState::Sealed;
        for sealed in [sealed, !sealed, sealed] {
            if let Some(segment) = self.file(name, sealed)? {
                return Ok(Some(segment));
            }
        }
        Ok(None)
    }

    fn file(&self, name: SegmentName, sealed: bool) -> Result<Option<Arc<Segment>>, ReadError> {
        let key = (name.sequence, sealed);
        let shared = self.open.lock().files.get(&key).and_then(Weak::upgrade);
        // Asked before the file is opened: if the log is cut off in between, the file is not shared afterwards.
        let cut = self.cut_number();
        if let Some(segment) = shared.filter(|segment| segment.name == name && segment.cut == cut) {
            return Ok(Some(segment));
        }
        let cache = Arc::clone(&self.cache);
        let fs = Arc::clone(&self.fs);
        let opened = Segment::open(fs, &self.directory, name, sealed, cut, cache)?;
        let Some(opened) = opened.map(Arc::new) else {
            return Ok(None);
        };
        self.identity
            .check_same_log(&opened.identity, opened.path())?;
        Ok(Some(self.open.lock().share(opened)))
    }

    fn served<'a>(&self, state: &'a WatermarkState) -> &'a LogPoint {
        match self.options.serve {
            Serve::Durable => &state.durable,
            Serve::Written => &state.written,
        }
    }

    /// Whether what was seen can be gone after a restart of the decoder.
    pub(super) fn may_go_back(&self) -> bool {
        self.options.serve == Serve::Written
    }

    /// If the decoder was started anew since somebody last asked: forgets what is known of active segments, whose
    /// blocks may be others now.
    pub(super) fn follow_epoch(&self, epoch: u64) {
        if !self.may_go_back() || self.open.lock().epoch.replace(epoch) == Some(epoch) {
            return;
        }
        for sequence in self.open.lock().forget_active() {
            self.cache.forget_file(sequence, false);
        }
        self.catalogs.clear();
    }
}

impl OpenSegments {
    /// Those who read the files keep them; others will open them anew. Returns their sequence numbers.
    fn forget_active(&mut self) -> Vec<u64> {
        self.newest_active = None;
        let active = self.files.extract_if(|(_, sealed), _| !sealed);
        active.map(|((sequence, _), _)| sequence).collect()
    }

    /// Another thread may have opened the same file meanwhile: then its one is used.
    fn share(&mut self, opened: Arc<Segment>) -> Arc<Segment> {
        let key = (opened.name.sequence, opened.sealed);
        let other = self.files.get(&key).and_then(Weak::upgrade);
        if let Some(other) =
            other.filter(|other| other.name == opened.name && other.cut == opened.cut)
        {
            return other;
        }
        self.files.retain(|_, segment| segment.strong_count() > 0);
        self.files.insert(key, Arc::downgrade(&opened));
        let newest = self
            .newest_active
            .as_ref()
            .is_none_or(|known| known.name.sequence <= opened.name.sequence);
        if newest && !opened.sealed {
            self.newest_active = Some(Arc::clone(&opened));
        }
        opened
    }
}
