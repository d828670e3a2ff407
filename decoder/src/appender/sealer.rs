//! Seals finished segments, in the background.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use storage_format::fs::Fs;
use storage_format::seal::{SealOptions, seal_segment};
use storage_format::segment::SegmentName;

use crate::mailbox::{Received, Receiver};

/// When a segment that could not be sealed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Compresses finished segments, one after the other.
pub(crate) struct Sealer {
    pub(crate) directory: PathBuf,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) zstd_level: i32,
    pub(crate) finished: Receiver<SegmentName>,
    /// Set when the process is ending: what is not sealed then is sealed after the next start.
    pub(crate) give_up: Arc<AtomicBool>,
}

impl Sealer {
    /// Works until the appender is gone. A segment that can't be sealed stays as it is, which costs space and nothing
    /// else; it is tried again, since a full disk may have room by then, and after the next start.
    pub(crate) fn run(self) {
        let mut left: VecDeque<SegmentName> = VecDeque::new();
        loop {
            let again = (!left.is_empty()).then(|| Instant::now() + RETRY);
            let name = match self.finished.receive(again) {
                Received::Item(name) => Some(name),
                Received::Deadline => left.pop_front(),
                Received::Closed => return,
            };
            if self.give_up.load(Ordering::Relaxed) {
                return;
            }
            let Some(name) = name else { continue };
            if !self.seal(name) {
                left.push_back(name);
                continue;
            }
            // What did not fit may fit now.
            while let Some(name) = left.pop_front() {
                if !self.seal(name) {
                    left.push_front(name);
                    break;
                }
            }
        }
    }

    /// False if it has to be tried again.
    fn seal(&self, name: SegmentName) -> bool {
        let options = SealOptions {
            zstd_level: self.zstd_level,
            ..SealOptions::default()
        };
        let begun = Instant::now();
        match seal_segment(&*self.fs, &self.directory, name, &options) {
            Ok(Some(sealed)) => tracing::info!(
                segment = %name,
                raw_bytes = sealed.active_bytes,
                sealed_bytes = sealed.sealed_bytes,
                elapsed = ?begun.elapsed(),
                "segment sealed"
            ),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(
                    segment = %name,
                    error = service::cli::causes(&error),
                    "a segment can't be sealed; it stays uncompressed for now and is tried again"
                );
                return false;
            }
        }
        true
    }

    /// Seals the next one that is waiting, if there is one.
    #[cfg(feature = "simulation")]
    pub(crate) fn seal_next(&self) -> bool {
        let name = self.finished.try_receive();
        name.map(|name| self.seal(name)).is_some()
    }
}
