//! The log that all streams of this process share.

use std::sync::Arc;

use pg_proto::{Lsn, PgTimestamp};
use storage_format::Identity;
use storage_format::catalog::{Catalog, OwnTimeline};
use storage_format::log::{Cursor, Kept, Log, ReadError, SeekError};

use super::catalog::HeadCatalog;
use super::early::EarlyReader;
use super::staged::{EarlyCounts, StagedFiles};
use super::{HeadTold, Stream};
use crate::emit::{EmitOptions, Emitter, Families, Form};
use crate::error::StreamError;
use crate::filter::Filters;
use crate::selection::{Publications, Refusal, Selection, SelectionSpec, check_supported};
use crate::versions::VersionsFile;

/// A position that the log has not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ahead {
    /// Is an error.
    #[default]
    Refuse,
    /// Is waited for, as a walsender does.
    Wait,
}

/// What a subscriber asked for.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// Which changes.
    pub selection: SelectionSpec,
    /// From where on, and what beside rows.
    pub emit: EmitOptions,
    /// Whether the start may lie ahead of the log's end.
    pub ahead: Ahead,
    /// In what form the changes are kept that are handed over.
    pub form: Form,
}

/// Opens streams over one log. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Replay {
    log: Arc<Log>,
    head: HeadTold,
    catalog: Arc<HeadCatalog>,
    filters: Filters,
    families: Families,
    staged: StagedFiles,
    versions: VersionsFile,
}

impl Replay {
    /// Over `log`, whose head is told by `head`.
    #[must_use]
    pub fn new(log: Arc<Log>, head: HeadTold) -> Self {
        let catalog = Arc::new(HeadCatalog::new(Arc::clone(&log)));
        Self {
            staged: StagedFiles::new(Arc::clone(&log)),
            versions: VersionsFile::new(log.directory()),
            log,
            head,
            catalog,
            filters: Filters::default(),
            families: Families::default(),
        }
    }

    /// Row filters are compiled, and evaluated by the source if need be, by these.
    #[must_use]
    pub fn with_filters(mut self, filters: Filters) -> Self {
        self.filters = filters;
        self
    }

    /// Transactions that have not ended are looked at by these.
    pub(crate) fn with_staged(mut self, staged: StagedFiles) -> Self {
        self.staged = staged;
        self
    }

    /// Versions of Decant's own publications are looked up in this file.
    pub(crate) fn with_versions(mut self, versions: VersionsFile) -> Self {
        self.versions = versions;
        self
    }

    /// What is sent before its transaction ended.
    #[must_use]
    pub fn early_counts(&self) -> EarlyCounts {
        self.staged.counts()
    }

    /// What row filters are evaluated by.
    #[must_use]
    pub const fn filters(&self) -> &Filters {
        &self.filters
    }

    /// A stream from `options.emit.start` on.
    ///
    /// Fails if that position is not kept, if the versions of publications can't be read, or if a publication is, as of the log's head, one that can't be
    /// served exactly. Names that the head's catalog does not have are no error here:
    /// see [`Self::unknown_publications`].
    pub fn open(&self, options: StreamOptions) -> Result<Stream, StreamError> {
        let StreamOptions {
            selection,
            emit,
            ahead,
            form,
        } = options;
        let grant = selection.grant.as_ref();
        if emit.messages && grant.is_some_and(|grant| !grant.allows_messages()) {
            return Err(StreamError::Refused(Arc::new(Refusal::MessagesDenied)));
        }
        check_supported(&selection, &*self.catalog()?).map_err(StreamError::Refused)?;
        if selection.publications != Publications::Everything {
            self.versions.look().map_err(ReadError::from)?;
        }
        let cursor = self.seek(emit.start, ahead)?;
        let catalog = Arc::clone(cursor.catalog());
        let filters = self.filters.clone();
        let family = self.families.join(&selection, &emit, form);
        let selection = Selection::new(selection, &catalog).with_filters(filters.clone());
        let early = emit.streaming.then(|| self.staged.clone());
        let early = early.map(|files| EarlyReader::new(files, self.head.lsn.clone()));
        let emitter = Emitter::new(emit, selection, catalog, cursor.position())
            .with_family(family)
            .with_versions(self.versions.clone());
        let stream = Stream::new(cursor, emitter, self.head.take_seat(), filters);
        Ok(stream.with_early(early))
    }

    /// Those of the names that are no publication as of the log's head. When there are any, let the decoder look:
    /// [`Services::unknown_publications`](crate::sink::Services::unknown_publications) does.
    pub fn unknown_publications(&self, names: &[String]) -> Result<Vec<String>, StreamError> {
        let catalog = self.catalog()?;
        let unknown = names
            .iter()
            .filter(|name| catalog.publication(name).is_none());
        Ok(unknown.cloned().collect())
    }

    /// Returns when the log's head is at or behind `lsn`.
    pub async fn reached(&self, lsn: Lsn) -> Result<(), StreamError> {
        let mut head = self.head.lsn.clone();
        let reached = head.wait_for(|head| *head >= lsn).await;
        reached.map(|_| ()).map_err(|_| StreamError::ShuttingDown)
    }

    /// End of what is served: durable or written, as the configuration says.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.log.head().lsn
    }

    /// The positions that a stream can start from, both included.
    pub fn kept(&self) -> Result<Kept, StreamError> {
        Ok(self.log.kept()?)
    }

    /// The catalog as of the log's head: publications, relations, the source's server parameters.
    pub fn catalog(&self) -> Result<Arc<Catalog>, StreamError> {
        self.catalog.get()
    }

    /// The catalog as of a kept position, with the publications that judge a change there.
    pub fn catalog_at(&self, lsn: Lsn) -> Result<Arc<Catalog>, StreamError> {
        let cursor = self.seek(lsn, Ahead::Refuse)?;
        let catalog = cursor.catalog();
        self.versions.look().map_err(ReadError::from)?;
        let timeline = OwnTimeline::new(self.versions.versions(), |_| true);
        let part = timeline.part(lsn);
        if timeline.is_stated(part) {
            return Ok(Arc::clone(catalog));
        }
        let state = timeline.in_force(part, catalog.definitions().at(lsn), catalog);
        Ok(Arc::new(catalog.judging_by(&Arc::new(state))))
    }

    /// The commit position of the first transaction that committed at or after `time`; the head, if there is none.
    pub fn position_at(&self, time: PgTimestamp) -> Result<Lsn, StreamError> {
        Ok(self.log.cursor_at_time(time)?.start())
    }

    /// Which source's log it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.log.identity()
    }

    /// The log itself.
    #[must_use]
    pub const fn log(&self) -> &Arc<Log> {
        &self.log
    }

    fn seek(&self, start: Lsn, ahead: Ahead) -> Result<Cursor, StreamError> {
        match self.log.cursor_at(start) {
            Err(SeekError::Ahead { newest, .. }) if ahead == Ahead::Wait => {
                Ok(self.log.cursor_at(newest)?)
            }
            Err(SeekError::Ahead { asked, newest }) => Err(StreamError::NotReached {
                asked,
                oldest: self.kept()?.oldest,
                newest,
            }),
            cursor => Ok(cursor?),
        }
    }
}
