//! Faults of the machine that a test asks for while the programs run.
//!
//! Only in builds with debug assertions. `FAULTS` names a file; what it says holds at every operation from then on, and
//! no longer when it is gone. Each line is an operation, what becomes of it, and optionally a part of the path:
//!
//! ```text
//! fsync EIO .active
//! write short
//! read hang 0000000000000002
//! clock 86400
//! ```
//!
//! An operation fails with the error, writes a part only (`short`), or does not return before its line is gone (`hang`).
//! `clock` puts the time of day ahead by so many seconds.

use std::time::Duration;

#[cfg(debug_assertions)]
pub(crate) use armed::{Fault, find};

/// How far the time of day has jumped ahead.
#[must_use]
pub fn clock_jump() -> Duration {
    #[cfg(debug_assertions)]
    {
        armed::clock_jump()
    }
    #[cfg(not(debug_assertions))]
    Duration::ZERO
}

/// Whether somebody asks for faults.
#[cfg(debug_assertions)]
pub(crate) fn is_armed() -> bool {
    std::env::var_os("FAULTS").is_some()
}

#[cfg(debug_assertions)]
mod armed {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;
    use std::time::Duration;

    use rustix::io::Errno;

    /// How often is looked whether an operation may return.
    const PAUSE: Duration = Duration::from_millis(20);

    /// What becomes of an operation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        Fails(Errno),
        Short,
        Hangs,
    }

    fn file() -> Option<&'static PathBuf> {
        static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
        FILE.get_or_init(|| std::env::var_os("FAULTS").map(PathBuf::from))
            .as_ref()
    }

    fn text() -> String {
        file()
            .and_then(|file| std::fs::read_to_string(file).ok())
            .unwrap_or_default()
    }

    pub(super) fn clock_jump() -> Duration {
        let seconds = text()
            .lines()
            .find_map(|line| line.strip_prefix("clock ")?.parse().ok());
        Duration::from_secs(seconds.unwrap_or_default())
    }

    /// The fault that an operation meets; one that hangs does so here.
    pub(crate) fn find(operation: &str, path: &Path) -> io::Result<Option<Fault>> {
        loop {
            match look(&text(), operation, path) {
                Some(Fault::Hangs) => std::thread::sleep(PAUSE),
                Some(Fault::Fails(errno)) => return Err(errno.into()),
                other => return Ok(other),
            }
        }
    }

    fn look(text: &str, operation: &str, path: &Path) -> Option<Fault> {
        text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            if words.next() != Some(operation) {
                return None;
            }
            let fault = match words.next()? {
                "EIO" => Fault::Fails(Errno::IO),
                "EROFS" => Fault::Fails(Errno::ROFS),
                "ENOSPC" => Fault::Fails(Errno::NOSPC),
                "EMFILE" => Fault::Fails(Errno::MFILE),
                "short" => Fault::Short,
                "hang" => Fault::Hangs,
                _ => return None,
            };
            let part = words.next().unwrap_or_default();
            path.to_string_lossy().contains(part).then_some(fault)
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_line_is_for_its_operation_and_its_files() {
            let text = "fsync EIO .active\nwrite short\n";
            let look = |operation, path| look(text, operation, Path::new(path));
            assert_eq!(
                look("fsync", "/log/1.active"),
                Some(Fault::Fails(Errno::IO))
            );
            assert_eq!(look("fsync", "/log/1.seg"), None);
            assert_eq!(look("write", "/log/1.seg"), Some(Fault::Short));
            assert_eq!(look("read", "/log/1.seg"), None);
        }
    }
}
