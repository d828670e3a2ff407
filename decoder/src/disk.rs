//! The log's disk as the decoder finds it: whether it takes what is written, for who asks and for who waits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use storage_format::FormatError;

use crate::clock::Clock;

/// How often is tried again what failed for want of room or of a file descriptor.
const RETRY: Duration = Duration::from_secs(1);
/// How often that is reported.
const REPORT: Duration = Duration::from_secs(60);
/// How quickly a shutdown is noticed meanwhile.
const NOTICE_SHUTDOWN: Duration = Duration::from_millis(50);
/// The appender comes by every second, unless a call to the disk holds it up. After so long the disk counts as hung.
const SILENT: Duration = Duration::from_secs(10);

/// What waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The appender.
    Log,
    /// The ingest thread, which stages in-progress transactions.
    Staging,
}

/// What is known of the disk. Shared by all threads.
#[derive(Debug)]
pub struct Disk {
    base: Instant,
    /// Why each part waits.
    waits: [RwLock<Option<Wait>>; 2],
    /// When the appender came by last, in milliseconds since `base`; 0: never.
    turn: AtomicU64,
}

#[derive(Clone, Debug)]
struct Wait {
    reason: String,
    full: bool,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            base: Instant::now(),
            waits: Default::default(),
            turn: AtomicU64::new(0),
        }
    }
}

impl Disk {
    /// Notes that the appender is not held up.
    pub(crate) fn note_turn(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.base).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.turn.store(millis.max(1), Ordering::Relaxed);
    }

    /// How long one call has held up the appender; zero as long as that is nothing unusual, and before there is a log.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Duration {
        let turn = match self.turn.load(Ordering::Relaxed) {
            0 => return Duration::ZERO,
            millis => self.base + Duration::from_millis(millis),
        };
        let silence = now.saturating_duration_since(turn);
        if silence < SILENT {
            return Duration::ZERO;
        }
        silence
    }

    /// Whether somebody waits for room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let full = |wait: &RwLock<Option<Wait>>| wait.read().as_ref().is_some_and(|wait| wait.full);
        self.waits.iter().any(full)
    }

    /// Why nothing can be written now; `None` while all is well.
    #[must_use]
    pub fn trouble(&self, now: Instant) -> Option<String> {
        let waits = self.waits.iter().find_map(|wait| wait.read().clone());
        let waits = waits.map(|wait| format!("waiting: {}", wait.reason));
        waits.or_else(|| {
            let silence = self.silence(now);
            let hung = || {
                format!(
                    "the log's disk has not answered for {} s",
                    silence.as_secs()
                )
            };
            (!silence.is_zero()).then(hung)
        })
    }

    fn set(&self, part: Part, wait: Option<Wait>) {
        let [log, staging] = &self.waits;
        let place = match part {
            Part::Log => log,
            Part::Staging => staging,
        };
        *place.write() = wait;
    }
}

/// Waits with what failed for want of room or of a descriptor, and can be done when there is some.
pub(crate) struct Patience {
    part: Part,
    disk: Arc<Disk>,
    clock: Arc<dyn Clock>,
    give_up: Arc<AtomicBool>,
    reported: Option<Instant>,
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience")
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}

impl Patience {
    pub(crate) fn new(
        part: Part,
        disk: Arc<Disk>,
        clock: Arc<dyn Clock>,
        give_up: Arc<AtomicBool>,
    ) -> Self {
        Self {
            part,
            disk,
            clock,
            give_up,
            reported: None,
        }
    }

    /// Tells everybody why nothing goes on.
    pub(crate) fn report(&mut self, error: &FormatError) {
        let reason = service::cli::causes(error);
        let now = self.clock.now();
        if self.reported.is_none_or(|at| now - at >= REPORT) {
            tracing::error!(
                error = reason,
                "waiting until the log can be written again; nothing is confirmed meanwhile"
            );
            self.reported = Some(now);
        }
        let full = matches!(error, FormatError::NoSpace { .. });
        self.disk.set(self.part, Some(Wait { reason, full }));
    }

    /// Returns when it is time to try again, and does `meanwhile` until then; false if the process is ending.
    pub(crate) fn wait(&self, mut meanwhile: impl FnMut()) -> bool {
        let until = self.clock.now() + RETRY;
        loop {
            if self.give_up.load(Ordering::Relaxed) {
                return false;
            }
            if self.clock.now() >= until {
                return true;
            }
            meanwhile();
            self.clock.sleep(NOTICE_SHUTDOWN);
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        self.disk.set(self.part, None);
        if !self.give_up.load(Ordering::Relaxed) {
            tracing::info!("the log can be written again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn who_waits_says_why_until_it_need_not() {
        let disk = Arc::new(Disk::default());
        let give_up = Arc::new(AtomicBool::new(false));
        let clock = Arc::new(SystemClock);
        let mut patience = Patience::new(
            Part::Staging,
            Arc::clone(&disk),
            clock,
            Arc::clone(&give_up),
        );
        let error = FormatError::io("write", Path::new("/log/x"))(io::Error::from(
            io::ErrorKind::StorageFull,
        ));
        patience.report(&error);
        let trouble = disk.trouble(Instant::now()).unwrap();
        assert!(
            trouble.starts_with("waiting: no space left to write /log/x"),
            "{trouble}"
        );
        assert!(disk.is_full());
        give_up.store(true, Ordering::Relaxed);
        assert!(!patience.wait(|| {}));
        drop(patience);
        assert_eq!(disk.trouble(Instant::now()), None);
        assert!(!disk.is_full());
    }

    #[test]
    fn a_call_that_does_not_come_back_is_noticed() {
        let disk = Disk::default();
        let now = Instant::now();
        assert_eq!(disk.trouble(now + SILENT * 9), None, "there is no log yet");
        disk.note_turn(now);
        assert_eq!(disk.trouble(now + SILENT / 2), None);
        // A turn is noted by the millisecond, and not at zero.
        let later = now + SILENT + Duration::from_millis(2_500);
        let trouble = disk.trouble(later).unwrap();
        assert_eq!(trouble, "the log's disk has not answered for 12 s");
    }
}
