//! The versions of Decant's own publications that the decoder keeps beside the log, for all streams of this process.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use storage_format::FormatError;
use storage_format::catalog::{OWN_VERSIONS_FILE, OwnVersions, read_own_versions};
use storage_format::fs::RealFs;

/// What tells one state of the file from another: it is only ever replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

/// The file, as it was when somebody looked last. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct VersionsFile {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: PathBuf,
    /// `None`: it was not there, or could not be read.
    seen: Mutex<Option<Stamp>>,
    versions: RwLock<Arc<OwnVersions>>,
    /// Counts the changes that were seen.
    count: AtomicU64,
}

impl VersionsFile {
    /// Of the log in this directory; not looked at yet.
    pub(crate) fn new(log: &Path) -> Self {
        Self {
            shared: Arc::new(Shared {
                log: log.to_owned(),
                seen: Mutex::new(None),
                versions: RwLock::default(),
                count: AtomicU64::new(0),
            }),
        }
    }

    /// Takes notice of a change. If the file can't be read what was known stays.
    pub(crate) fn look(&self) -> Result<(), FormatError> {
        let Shared {
            log,
            seen,
            versions,
            count,
        } = &*self.shared;
        // Held meanwhile, so that an older state never follows a newer one.
        let mut seen = seen.lock();
        let path = log.join(OWN_VERSIONS_FILE);
        let now = match std::fs::metadata(&path) {
            Ok(now) => Some(Stamp {
                inode: now.ino(),
                length: now.len(),
                modified: (now.mtime(), now.mtime_nsec()),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(FormatError::io("look at", &path)(error)),
        };
        if now == *seen {
            return Ok(());
        }
        let read = Arc::new(read_own_versions(&RealFs, log)?);
        // If it was replaced after it was looked at, the next look reads it once more.
        *seen = now;
        let mut versions = versions.write();
        if **versions != *read {
            *versions = read;
            count.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// A number that changes with the versions.
    pub(crate) fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Acquire)
    }

    /// The versions.
    pub(crate) fn versions(&self) -> Arc<OwnVersions> {
        Arc::clone(&self.shared.versions.read())
    }
}

#[cfg(test)]
mod tests {
    use pg_proto::Lsn;
    use storage_format::catalog::{OwnVersion, write_own_versions};

    use super::*;

    #[test]
    fn changes_are_noticed_and_damage_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = VersionsFile::new(folder.path());
        file.look().unwrap();
        assert_eq!((file.count(), file.versions().all().len()), (0, 0));
        let mut versions = OwnVersions::default();
        for number in 1..4 {
            versions.put(OwnVersion {
                from: Lsn(number),
                stated: Lsn(9),
                ..OwnVersion::default()
            });
            write_own_versions(&RealFs, folder.path(), &versions).unwrap();
            file.look().unwrap();
            file.look().unwrap();
            assert_eq!(file.count(), number);
            assert_eq!(*file.versions(), versions);
        }
        std::fs::write(folder.path().join(OWN_VERSIONS_FILE), b"no such thing").unwrap();
        for _ in 0..2 {
            assert!(file.look().is_err());
        }
        assert_eq!(*file.versions(), versions);
    }
}
