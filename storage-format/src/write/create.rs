//! A new segment file: made under a temporary name, made durable, renamed, the name made durable.

use std::path::Path;

use super::active::{ActiveFile, Tip};
use super::snapshot::encode_snapshot;
use crate::catalog::Catalog;
use crate::error::FormatError;
use crate::failpoint::hit;
use crate::fs::{Fs, remove_if_there, write_all_at};
use crate::segment::{SegmentExtension, SegmentHeader, SegmentName};

/// Where segments are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFolder<'a> {
    pub(super) fs: &'a dyn Fs,
    pub(super) log: &'a Path,
    pub(super) segment_bytes: u64,
}

impl SegmentFolder<'_> {
    /// Makes the file with header and snapshot and makes it durable, under its temporary name. If that fails,
    /// nothing is left behind.
    pub(super) fn prepare(
        &self,
        header: &SegmentHeader,
        catalog: &Catalog,
    ) -> Result<ActiveFile, FormatError> {
        let path = header.name.path(self.log, SegmentExtension::Temporary);
        self.fill(header, catalog, &path).inspect_err(|_| {
            // Whatever made it fail is the error to report; a file that stays is removed at the next start.
            let _ = self.fs.remove(&path);
        })
    }

    fn fill(
        &self,
        header: &SegmentHeader,
        catalog: &Catalog,
        path: &Path,
    ) -> Result<ActiveFile, FormatError> {
        let (mut bytes, crc) = header.encode()?;
        let chain = encode_snapshot(catalog, header.name.first_lsn, crc, &mut bytes)?;
        let offset = bytes.len() as u64;
        let allocated = self.segment_bytes.max(offset);
        remove_if_there(self.fs, path)?;
        let file = self
            .fs
            .create_new(path)
            .map_err(FormatError::io("create", path))?;
        hit("segment.created");
        file.allocate(0, allocated)
            .map_err(FormatError::io("preallocate", path))?;
        write_all_at(&*file, &mut [std::io::IoSlice::new(&bytes)], 0)
            .map_err(FormatError::io("write", path))?;
        hit("segment.written");
        file.sync_all().map_err(FormatError::io("fsync", path))?;
        hit("segment.synced");
        Ok(ActiveFile {
            file,
            path: path.to_owned(),
            name: header.name,
            tip: Tip { offset, chain },
            allocated,
            synced_offset: offset,
        })
    }

    /// Gives a prepared file its name.
    pub(super) fn publish(&self, active: &mut ActiveFile) -> Result<(), FormatError> {
        let path = active.name.path(self.log, SegmentExtension::Active);
        self.fs
            .rename(&active.path, &path)
            .map_err(FormatError::io("rename", &active.path))?;
        hit("segment.renamed");
        active.path = path;
        let folder = SegmentName::folder(self.log);
        self.fs
            .sync_dir(&folder)
            .map_err(FormatError::io("fsync", &folder))?;
        hit("segment.directory_synced");
        Ok(())
    }
}
