//! A sealed segment in the place of one that is damaged, incomplete, missing or cut.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_proto::Lsn;

use crate::block::BlockHeader;
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};
use crate::fs::{Fs, remove_if_there};
use crate::seal::{SealOptions, SealedOutput, feed_one, publish, temporary};
use crate::segment::{
    FileWindow, SEGMENT_HEADER_LEN, SegmentExtension, SegmentHeader, SegmentName,
};
use crate::write::encode_snapshot;

/// Where files are moved that are not read any more.
const QUARANTINE_FOLDER: &str = "quarantine";

/// What the new file is made of.
pub(super) struct Replacement<'a> {
    pub(super) fs: &'a dyn Fs,
    pub(super) log: &'a Path,
    pub(super) header: SegmentHeader,
    /// The file whose blocks are kept up to an offset; without it only a snapshot of `catalog` is written.
    pub(super) keep: Option<Keep>,
    pub(super) catalog: Arc<Catalog>,
}

/// A part of a file that is sound.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    pub(super) path: PathBuf,
    pub(super) sealed: bool,
    /// Offset behind the last block that is kept.
    pub(super) end: u64,
}

impl<'a> Replacement<'a> {
    /// Writes the file, moves the old one aside and gives the new one its name. `finish` adds what comes behind the
    /// blocks that are kept. Returns where the old file is now.
    pub(super) fn put(
        &self,
        finish: impl FnOnce(&mut SealedOutput<'_>) -> Result<(), FormatError>,
    ) -> Result<Option<PathBuf>, FormatError> {
        let name = self.header.name;
        let sealed = name.path(self.log, SegmentExtension::Sealed);
        let temporary = temporary(&sealed);
        remove_if_there(self.fs, &temporary)?;
        let options = SealOptions::default();
        let mut output = SealedOutput::create(self.fs, &temporary, &self.header, &options)?;
        self.kept(&mut output)?;
        finish(&mut output)?;
        let finished = output.finish()?;
        let moved = move_aside(self.fs, self.log, name)?;
        publish(self.fs, self.log, name, &finished.index, &temporary)?;
        remove_if_there(self.fs, &name.path(self.log, SegmentExtension::Active))?;
        Ok(moved)
    }

    fn kept(&self, output: &mut SealedOutput<'_>) -> Result<(), FormatError> {
        let Some(keep) = &self.keep else {
            return self.snapshot(output);
        };
        let file = self
            .fs
            .open_to_read(&keep.path)
            .map_err(FormatError::io("open", &keep.path))?;
        let mut window = FileWindow::new(&*file, &keep.path)?;
        let mut offset = SEGMENT_HEADER_LEN as u64;
        while offset < keep.end {
            let block = window
                .header(offset)?
                .map_err(|damage| damage.at(&keep.path, offset))?;
            if keep.sealed {
                // As they are, at the offsets where they were: readers may have them in memory.
                let length = usize::try_from(block.end - offset).unwrap_or(usize::MAX);
                output.copy(&block.header, block.crc, window.bytes(offset, length)?)?;
            } else {
                feed_one(&mut window, &block, output)?;
            }
            offset = block.end;
        }
        Ok(())
    }

    fn snapshot(&self, output: &mut SealedOutput<'_>) -> Result<(), FormatError> {
        let mut bytes = Vec::new();
        encode_snapshot(
            &self.catalog,
            self.header.name.first_lsn,
            output.chain(),
            &mut bytes,
        )?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let block = BlockHeader::decode(rest).map_err(|error| {
                Damage::from(error).at(
                    &self.header.name.path(self.log, SegmentExtension::Sealed),
                    0,
                )
            })?;
            let length = usize::try_from(block.block_len()).unwrap_or(usize::MAX);
            let (whole, behind) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            output.copy(&block.header, block.crc, whole)?;
            rest = behind;
        }
        Ok(())
    }
}

/// Keeps a segment's file under another name; `None` if there is none.
pub(super) fn move_aside(
    fs: &dyn Fs,
    log: &Path,
    name: SegmentName,
) -> Result<Option<PathBuf>, FormatError> {
    let folder = log.join(QUARANTINE_FOLDER);
    fs.create_dir_all(&folder)
        .map_err(FormatError::io("create", &folder))?;
    for extension in [SegmentExtension::Sealed, SegmentExtension::Active] {
        let path = name.path(log, extension);
        let mut to = folder.join(path.file_name().unwrap_or_default());
        let mut attempt = 0;
        loop {
            match fs.link(&path, &to) {
                Ok(()) => {
                    fs.sync_dir(&folder)
                        .map_err(FormatError::io("fsync", &folder))?;
                    return Ok(Some(to));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    attempt += 1;
                    to = folder.join(format!("{name}.{}.{attempt}", extension.as_str()));
                }
                Err(error) => return Err(FormatError::io("move aside", &path)(error)),
            }
        }
    }
    Ok(None)
}

/// A header for a segment that has none that can be read.
pub(super) fn header_like(
    identity: &crate::identity::Identity,
    name: SegmentName,
    last_commit_lsn: Lsn,
) -> SegmentHeader {
    SegmentHeader {
        identity: identity.clone(),
        name,
        sealed: true,
        last_commit_lsn,
    }
}
