//! Named places where a test lets the process die, as `kill -9` would.
//!
//! Only in builds with debug assertions; in others [`hit`] is nothing at all. `FAILPOINT=name:count` lets the
//! process die when the place `name` is reached for the `count`-th time, and `FAILPOINT=name:count:stop` lets it stop
//! there until it gets SIGCONT.

/// The places, in the order in which a change meets them.
pub const ALL: &[&str] = &[
    "staging.write.before",
    "staging.write.after",
    "staging.remove.before",
    "append.before",
    "append.torn",
    "append.after",
    "append_staged.header",
    "append_staged.after",
    "fsync.before",
    "fsync.after",
    "watermark.before",
    "watermark.half",
    "watermark.after",
    "confirm.before",
    "confirm.after",
    "segment.created",
    "segment.written",
    "segment.synced",
    "segment.ended",
    "segment.renamed",
    "segment.directory_synced",
    "seal.begin",
    "seal.written",
    "index.written",
    "index.renamed",
    "seal.renamed",
    "seal.directory_synced",
    "seal.raw_removed",
    "gc.begin",
    "gc.segment_removed",
    "gc.directory_synced",
    "registry.before_flush",
    "registry.flushed",
    "publications.written",
    "publications.renamed",
];

/// The process dies here if that was asked for.
#[cfg(debug_assertions)]
pub fn hit(name: &'static str) {
    if armed::is_due(name) {
        armed::die();
    }
}

/// The process dies here if that was asked for.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn hit(_name: &'static str) {}

/// Whether the process shall die in the middle of what comes next: then the caller does a part of it and calls
/// [`die`].
#[cfg(debug_assertions)]
pub(crate) fn is_due(name: &'static str) -> bool {
    armed::is_due(name)
}

/// Whether the process shall die in the middle of what comes next.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) const fn is_due(_name: &'static str) -> bool {
    false
}

/// Ends the process as `kill -9` does.
pub(crate) fn die() {
    #[cfg(debug_assertions)]
    armed::die();
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    #[derive(Debug)]
    struct Armed {
        name: String,
        left: AtomicU64,
        stops: bool,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    fn armed() -> Option<&'static Armed> {
        ARMED
            .get_or_init(|| {
                let text = std::env::var("FAILPOINT").ok()?;
                let mut parts = text.split(':');
                let name = parts.next()?.to_owned();
                let count = parts.next().and_then(|count| count.parse().ok());
                Some(Armed {
                    name,
                    left: AtomicU64::new(count.unwrap_or(1)),
                    stops: parts.next() == Some("stop"),
                })
            })
            .as_ref()
    }

    pub(super) fn is_due(name: &'static str) -> bool {
        debug_assert!(super::ALL.contains(&name), "{name} is not in the list");
        armed().is_some_and(|armed| {
            armed.name == name && armed.left.fetch_sub(1, Ordering::Relaxed) == 1
        })
    }

    pub(super) fn die() {
        if armed().is_some_and(|armed| armed.stops) {
            // Goes on here later.
            let _ = kill_process(getpid(), Signal::STOP);
            return;
        }
        // What was asked for; if the kernel refuses, the end is the same.
        let _ = kill_process(getpid(), Signal::KILL);
        std::process::abort();
    }
}
