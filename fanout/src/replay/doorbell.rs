//! Hears the decoder publish, where both are on one machine.
//!
//! The decoder writes the watermark and staged files by calls, and the kernel tells who watches a file of every such call
//! (inotify). That is one wake-up between the decoder's thread and this process; a message of the control service takes two,
//! and goes through HTTP/2 and a socket. Of what another machine writes over a network the kernel tells nothing. So a bell is believed
//! in only when it has been heard, and no longer when the control service tells what it did not.

use std::io;
use std::path::{Path, PathBuf};

use futures_util::{FutureExt, StreamExt};
use inotify::{EventMask, EventStream, Inotify, WatchMask};
use storage_format::staging::StagedReader;
use storage_format::watermark::WATERMARK_FILE;

/// So many times in a row the control service may be the first to tell: both are under way at the same time.
const MISSED_MAX: u32 = 2;
/// Events that are taken at once, at most. Equal ones behind each other that wait are one.
const EVENTS: usize = 64;
/// Bytes of events that are read at once.
const EVENT_BYTES: usize = 4096;

/// Rings when the watermark or a staged file was written.
pub(super) struct Doorbell {
    log: PathBuf,
    /// `None`: it can't be heard.
    watch: Option<EventStream<Vec<u8>>>,
    believed: bool,
    missed: u32,
}

impl Doorbell {
    /// That of a log; it is not heard yet.
    pub(super) fn new(log: &Path) -> Self {
        Self {
            log: log.to_owned(),
            watch: None,
            believed: false,
            missed: 0,
        }
    }

    /// Begins to listen, if that is possible. Otherwise it never rings.
    pub(super) fn listen(&mut self) {
        if self.watch.is_none() {
            let watch = watch(&self.log);
            self.watch = watch
                .inspect_err(|error| tracing::debug!(%error, "the log can't be watched"))
                .ok();
        }
    }

    /// Whether it rings for everything that the decoder publishes, as far as is known.
    pub(super) const fn is_believed(&self) -> bool {
        self.believed
    }

    /// Returns when it rang since the last time, or has ceased to work. Cancel safe.
    pub(super) async fn rung(&mut self) {
        let Some(watch) = &mut self.watch else {
            return std::future::pending().await;
        };
        match next_events(watch).await {
            Ok(()) => {
                self.believed = true;
                self.missed = 0;
            }
            Err(error) => {
                tracing::info!(%error, "the log can't be watched any more");
                self.watch = None;
                self.believed = false;
            }
        }
    }

    /// The log's head had moved, and this did not ring.
    pub(super) fn missed(&mut self) {
        // Where it can't ring, this is called for ever.
        self.missed = self.missed.saturating_add(1);
        if self.believed && self.missed >= MISSED_MAX {
            tracing::info!("the log is written on another machine");
            self.believed = false;
        }
    }
}

fn watch(log: &Path) -> io::Result<EventStream<Vec<u8>>> {
    let inotify = Inotify::init()?;
    let mut watches = inotify.watches();
    watches.add(log.join(WATERMARK_FILE), WatchMask::MODIFY)?;
    let staged = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE;
    watches.add(StagedReader::folder(log), staged)?;
    inotify.into_event_stream(vec![0; EVENT_BYTES])
}

/// Waits for an event, and takes those that came with it.
async fn next_events(watch: &mut EventStream<Vec<u8>>) -> io::Result<()> {
    let mut next = watch.next().await;
    for _ in 0..EVENTS {
        // The watch ends with its file.
        let event = next.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))?;
        if event.mask.contains(EventMask::IGNORED) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match watch.next().now_or_never() {
            Some(event) => next = event,
            None => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn rings_for_each_publication_until_the_file_is_gone() {
        let log = tempfile::tempdir().unwrap();
        let path = log.path().join(WATERMARK_FILE);
        let file = std::fs::File::create(&path).unwrap();
        let staged = StagedReader::folder(log.path());
        std::fs::create_dir(&staged).unwrap();
        let mut bell = Doorbell::new(log.path());
        bell.listen();
        assert!(bell.rung().now_or_never().is_none() && !bell.is_believed());
        for _ in 0..3 {
            for offset in [8, 64, 8, 64] {
                file.write_all_at(b"x", offset).unwrap();
            }
            bell.rung().await;
            assert!(bell.is_believed());
            // One write may come as an event of its own.
            while bell.rung().now_or_never().is_some() {}
        }
        bell.missed();
        assert!(bell.is_believed());
        bell.missed();
        assert!(!bell.is_believed());
        file.write_all_at(b"x", 0).unwrap();
        bell.rung().await;
        assert!(bell.is_believed());
        std::fs::write(staged.join("1"), b"x").unwrap();
        bell.rung().await;
        while bell.rung().now_or_never().is_some() {}
        std::fs::remove_file(&path).unwrap();
        drop(file);
        bell.rung().await;
        assert!(!bell.is_believed());
        let never = tokio::time::timeout(Duration::from_millis(10), bell.rung());
        assert!(never.await.is_err());
    }

    #[tokio::test]
    async fn a_log_that_is_not_there_rings_never() {
        let log = tempfile::tempdir().unwrap();
        let mut bell = Doorbell::new(log.path());
        bell.listen();
        assert!(bell.rung().now_or_never().is_none() && !bell.is_believed());
    }
}
