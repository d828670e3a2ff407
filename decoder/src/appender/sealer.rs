//! Seals finished segments, in the background.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use storage_format::fs::Fs;
use storage_format::seal::{SealOptions, seal_segment};
use storage_format::segment::SegmentName;

use crate::mailbox::{Received, Receiver};

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
    /// else; it is tried again after the next start.
    pub(crate) fn run(self) {
        while let Received::Item(name) = self.finished.receive(None) {
            if self.give_up.load(Ordering::Relaxed) {
                return;
            }
            self.seal(name);
        }
    }

    fn seal(&self, name: SegmentName) {
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
            Err(error) => tracing::error!(
                segment = %name,
                error = service::cli::causes(&error),
                "a segment can't be sealed; it stays uncompressed and is tried again after the next start"
            ),
        }
    }

    /// Seals the next one that is waiting, if there is one.
    #[cfg(feature = "simulation")]
    pub(crate) fn seal_next(&self) -> bool {
        let name = self.finished.try_receive();
        name.map(|name| self.seal(name)).is_some()
    }
}
