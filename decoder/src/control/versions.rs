//! From where on definitions of Decant's own publications count.

use std::path::Path;
use std::sync::Arc;

use pg_proto::Lsn;
use proto::v1::{OwnPublication as View, OwnPublicationVersion};
use storage_format::catalog::{
    OwnVersion, OwnVersions, PublicationState, read_own_versions, write_own_versions,
};
use storage_format::fs::RealFs;
use storage_format::log::{Log, ReadOptions, Serve};
use tonic::Status;

use super::convert::internal;
use super::slots::{CACHE_BYTES, Position, find_exactly, read_error, seek_error};
use crate::catalog::{HistoryError, OwnPublication, check_history, stated_from};

/// A change of one publication that the log states by now.
pub(super) struct Change<'a> {
    pub(super) name: &'a str,
    /// What it is now; `None`: it was dropped.
    pub(super) publication: Option<&'a OwnPublication>,
    /// From here on; `None`: from where the log states it.
    pub(super) from: Option<Lsn>,
    /// Where the log was before the change was stored.
    pub(super) before: Lsn,
}

fn open(log: &Path) -> Result<Arc<Log>, Status> {
    let options = ReadOptions {
        serve: Serve::Durable,
        cache_bytes: CACHE_BYTES,
    };
    Log::open(log, options).map_err(|error| read_error(&error))
}

/// The position from which on a definition is to count, if it can. Blocks on the disk.
pub(super) fn start(
    log: &Path,
    position: Position,
    publication: Option<&OwnPublication>,
) -> Result<Lsn, Status> {
    let log = open(log)?;
    let from = find_exactly(&log, position)?;
    if let Some(publication) = publication {
        check_history(&log, publication, from).map_err(history_error)?;
    }
    Ok(from)
}

/// Notes from where on a change counts, which is returned. Blocks on the disk.
pub(super) fn note(directory: &Path, change: &Change<'_>) -> Result<Lsn, Status> {
    let log = open(directory)?;
    let head = log.cursor_at(log.head().lsn);
    let head = head.map_err(|error| seek_error(&error))?;
    let is_stated = |state: &PublicationState| match change.publication {
        Some(publication) => publication.is_in(state),
        None => {
            let mut all = state.publications.iter();
            !all.any(|one| one.is_own() && one.name == change.name)
        }
    };
    let definitions = head.catalog().definitions();
    let stated = stated_from(definitions, change.before, is_stated).ok_or_else(|| {
        Status::unavailable(format!(
            "the log does not state publication \"{}\" yet",
            change.name
        ))
    })?;
    let from = change.from.unwrap_or(stated);
    if let Some(publication) = change.publication.filter(|_| from < stated) {
        // What has changed since it was looked at before.
        check_history(&log, publication, change.before.max(from)).map_err(history_error)?;
    }
    let mut versions = read(directory)?;
    versions.forget_before(needed_from(&log));
    versions.put(OwnVersion {
        name: change.name.to_owned(),
        from,
        stated: stated.max(from),
        definition: change.publication.map(|one| one.definition.clone()),
        state: match change.publication {
            Some(publication) if from < stated => publication.state().clone(),
            _ => PublicationState::default(),
        },
    });
    write_own_versions(&RealFs, directory, &versions).map_err(|error| internal(&error))?;
    Ok(from)
}

/// Publications with where their versions begin. Blocks on the disk.
pub(super) fn views(directory: &Path, own: &[OwnPublication]) -> Result<Vec<View>, Status> {
    let versions = read(directory)?;
    let views = own.iter().map(|one| {
        let of = versions
            .of(one.name())
            .map(|version| OwnPublicationVersion {
                from_lsn: version.from.0,
                definition: version.definition.clone(),
            });
        View {
            name: one.name().to_owned(),
            definition: one.definition.clone(),
            versions: of.collect(),
        }
    });
    Ok(views.collect())
}

fn read(directory: &Path) -> Result<OwnVersions, Status> {
    read_own_versions(&RealFs, directory).map_err(|error| internal(&error))
}

/// No change of the log is before this.
fn needed_from(log: &Arc<Log>) -> Lsn {
    let Ok(kept) = log.kept() else {
        return Lsn::INVALID;
    };
    // If that can't be read nothing is forgotten.
    let oldest = log.cursor_at(kept.oldest);
    let known_from = oldest.map(|cursor| cursor.catalog().definitions().known_from());
    known_from.map_or(Lsn::INVALID, |known_from| known_from.min(kept.oldest))
}

fn history_error(error: HistoryError) -> Status {
    match error {
        HistoryError::Seek(error) => seek_error(&error),
        HistoryError::Read(error) => read_error(&error),
        HistoryError::NotThen { .. } => Status::failed_precondition(error.to_string()),
        HistoryError::Catalog(_) => internal(&error),
    }
}
