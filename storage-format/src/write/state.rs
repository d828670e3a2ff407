//! Where a log is: checked before each block is written and again when blocks are read back.

use std::sync::Arc;

use pg_proto::Lsn;

use crate::block::{BlockFlags, BlockHeader, BlockKind, CommitAt, Sections};
use crate::catalog::Catalog;
use crate::error::{Damage, FormatError};

/// Position and catalog between two blocks.
#[derive(Clone, Debug)]
pub(crate) struct LogState {
    /// End of the last whole transaction or progress.
    pub(crate) end_lsn: Lsn,
    /// Commit LSN of the last whole transaction.
    pub(crate) last_commit_lsn: Lsn,
    /// The catalog after the last whole transaction.
    pub(crate) catalog: Arc<Catalog>,
    /// Inside a transaction (or a snapshot of several blocks).
    pub(crate) open: Option<OpenState>,
}

/// What a transaction that is not complete has changed so far.
#[derive(Clone, Debug)]
pub(crate) struct OpenState {
    pub(crate) commit_lsn: Lsn,
    pub(crate) catalog: Arc<Catalog>,
}

/// A block does not continue the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disorder {
    /// A position is behind one that it must not be behind.
    Behind {
        what: &'static str,
        found: Lsn,
        position: Lsn,
    },
    /// The block starts inside a transaction and none is open, or the other way round.
    Continuation(&'static str),
}

impl LogState {
    pub(crate) const fn new(end_lsn: Lsn, last_commit_lsn: Lsn, catalog: Arc<Catalog>) -> Self {
        Self {
            end_lsn,
            last_commit_lsn,
            catalog,
            open: None,
        }
    }

    /// The catalog as a record appended now would find it.
    pub(crate) fn working_catalog(&self) -> Arc<Catalog> {
        Arc::clone(
            self.open
                .as_ref()
                .map_or(&self.catalog, |open| &open.catalog),
        )
    }

    /// [`BlockFlags::OLDER`] for a block behind which `catalog` holds, if none of its changes is before `lowest`.
    pub(crate) fn older(catalog: &Catalog, lowest: Lsn) -> BlockFlags {
        if lowest < catalog.definitions().current().since {
            BlockFlags::OLDER
        } else {
            BlockFlags::NONE
        }
    }

    /// Whether a block with this header may come next.
    pub(crate) fn check(&self, header: &BlockHeader) -> Result<(), Disorder> {
        not_behind("end LSN", header.end_lsn, self.end_lsn)?;
        let continues = header.flags.contains(BlockFlags::CONTINUES);
        match (&self.open, continues) {
            (None, true) => Err(Disorder::Continuation("no transaction is open")),
            (Some(_), false) => Err(Disorder::Continuation("a transaction is open")),
            (Some(open), true) if open.commit_lsn != header.first_commit_lsn => {
                Err(Disorder::Continuation("another transaction is open"))
            }
            (None, false)
                if header.kind == BlockKind::Data && header.first_commit_lsn.is_valid() =>
            {
                not_behind("commit LSN", header.first_commit_lsn, self.end_lsn)
            }
            _ => Ok(()),
        }
    }

    /// Goes behind a block that was checked; `catalog` is what its records made of [`Self::working_catalog`].
    pub(crate) fn advance(&mut self, header: &BlockHeader, catalog: Arc<Catalog>) {
        self.end_lsn = header.end_lsn;
        if header.flags.contains(BlockFlags::OPEN_END) {
            self.open = Some(OpenState {
                commit_lsn: header.last_commit_lsn,
                catalog,
            });
            return;
        }
        self.open = None;
        self.catalog = catalog;
        if header.kind == BlockKind::Data && header.last_commit_lsn.is_valid() {
            self.last_commit_lsn = header.last_commit_lsn;
        }
    }
}

const fn not_behind(what: &'static str, found: Lsn, position: Lsn) -> Result<(), Disorder> {
    if found.0 < position.0 {
        return Err(Disorder::Behind {
            what,
            found,
            position,
        });
    }
    Ok(())
}

impl From<Disorder> for Damage {
    fn from(disorder: Disorder) -> Self {
        match disorder {
            Disorder::Behind {
                what,
                found,
                position,
            } => Self::mismatch(what, format_args!("at least {position}"), found),
            Disorder::Continuation(problem) => {
                Self::Content(format!("the block's continuation flag is wrong: {problem}"))
            }
        }
    }
}

impl From<Disorder> for FormatError {
    fn from(disorder: Disorder) -> Self {
        match disorder {
            Disorder::Behind {
                what,
                found,
                position,
            } => Self::Order {
                what,
                found,
                position,
            },
            Disorder::Continuation(problem) => Self::State {
                call: "append",
                problem,
            },
        }
    }
}

/// Applies the catalog records among the sections' records to `catalog`. `flags` are the block's, `commit` stands at its
/// start.
pub(crate) fn apply_catalog(
    catalog: &mut Arc<Catalog>,
    flags: BlockFlags,
    mut commit: CommitAt,
    sections: Sections<'_>,
) -> Result<(), Damage> {
    for record in sections.records() {
        let record = record?;
        let Some(kind) = record.entry.kind() else {
            continue;
        };
        let commit_lsn = commit.of(kind, record.payload);
        if !flags.apply(kind) {
            continue;
        }
        Catalog::apply(catalog, kind, record.payload, commit_lsn)
            .map_err(|error| Damage::Content(format!("{error}: {}", error.source)))?;
    }
    Ok(())
}
