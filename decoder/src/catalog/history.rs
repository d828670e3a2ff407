//! Whether a definition of a publication of Decant's own could have counted at an older position already, and where the log
//! states it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use pg_proto::{Lsn, Oid};
use storage_format::block::{Block, BlockFlags, BlockHeader, CommitAt};
use storage_format::catalog::{
    Attribute, Catalog, Definitions, Generated, PublicationState, RelationSchema,
};
use storage_format::log::{Log, ReadError, SeekError, Step};

use super::own::OwnPublication;

/// Blocks that are passed over in one step.
const RUN: usize = 4096;

/// A definition can't count from an older position.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The position is not kept, or the log can't be read there.
    #[error(transparent)]
    Seek(#[from] SeekError),
    /// The log can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record of the catalog can't be understood.
    #[error(transparent)]
    Catalog(#[from] storage_format::catalog::CatalogError),
    /// What it names was not there, or not as it is now.
    #[error(
        "publication \"{publication}\" can't count from {asked}: {reason}. It can count from {from}, or from now on"
    )]
    NotThen {
        /// Its name.
        publication: String,
        /// The position.
        asked: Lsn,
        /// What is otherwise there.
        reason: String,
        /// The lowest position from which on nothing is otherwise.
        from: Lsn,
    },
}

/// A table of which a publication means certain columns, or of whose partitions it must know.
struct Needed<'a> {
    oid: Oid,
    table: String,
    is_root: bool,
    /// All columns as they are now, if the source said so.
    attributes: &'a [Attribute],
    /// Those that a list or filter names.
    named: Vec<&'a Attribute>,
}

/// What does not fit, and the end of the last place where that is so.
type Fault = Option<(String, Lsn)>;

/// Fails unless all that `own` means can be told for changes from `from` on, to the log's end. Reads the headers of blocks, and
/// those blocks that change the catalog.
pub fn check_history(log: &Arc<Log>, own: &OwnPublication, from: Lsn) -> Result<(), HistoryError> {
    let needed = needed(own.state());
    let mut cursor = log.cursor_at(from)?;
    let mut fault: Fault = None;
    loop {
        let touched = RefCell::new((BTreeSet::new(), from));
        let wanted = |header: &BlockHeader, relations: &[Oid]| {
            let has_catalog = header.flags.contains(BlockFlags::HAS_CATALOG);
            if !has_catalog {
                let mut touched = touched.borrow_mut();
                let known = |oid: &&Oid| needed.iter().any(|one| one.oid == **oid);
                for oid in relations.iter().filter(known) {
                    *touched = (std::mem::take(&mut touched.0), header.end_lsn);
                    touched.0.insert(*oid);
                }
            }
            has_catalog
        };
        let step = cursor.step_with(&wanted, RUN)?;
        let (oids, end) = touched.into_inner();
        let rows = needed.iter().filter(|one| oids.contains(&one.oid));
        note(&mut fault, rows, cursor.catalog(), end);
        let roots = || needed.iter().filter(|one| one.is_root);
        match step {
            Step::Skipped => {}
            Step::Block(block) => {
                note(
                    &mut fault,
                    roots(),
                    cursor.catalog(),
                    block.header().end_lsn,
                );
                walk(&block, cursor.catalog(), &needed, &mut fault)?;
            }
            Step::Head => {
                note(&mut fault, roots(), cursor.catalog(), cursor.position());
                break;
            }
        }
    }
    match fault {
        None => Ok(()),
        Some((reason, possible)) => Err(HistoryError::NotThen {
            publication: own.name().to_owned(),
            asked: from,
            reason,
            from: possible,
        }),
    }
}

/// From where on the log states what `is_stated` looks for, of what commits behind `before`.
#[must_use]
pub fn stated_from(
    definitions: &Definitions,
    before: Lsn,
    is_stated: impl Fn(&PublicationState) -> bool,
) -> Option<Lsn> {
    let all: Vec<_> = definitions
        .older()
        .iter()
        .chain([definitions.current()])
        .collect();
    let later = all.partition_point(|one| one.since <= before);
    let mut possible = all.into_iter().skip(later.saturating_sub(1));
    let found = possible.find(|one| is_stated(&one.state));
    found.map(|one| one.since)
}

fn note<'a>(
    fault: &mut Fault,
    tables: impl Iterator<Item = &'a Needed<'a>>,
    catalog: &Catalog,
    end: Lsn,
) {
    for table in tables {
        if let Some(reason) = table.fault(catalog) {
            *fault = Some((reason, end));
        }
    }
}

/// A block that changes the catalog: each row is looked at under the catalog of its place.
fn walk(
    block: &Block,
    catalog: &Arc<Catalog>,
    needed: &[Needed<'_>],
    fault: &mut Fault,
) -> Result<(), HistoryError> {
    let header = block.header();
    let mut catalog = Arc::clone(catalog);
    let mut commit = CommitAt::start(header);
    for entry in block.entries() {
        let Some(kind) = entry.kind() else { continue };
        let payload = block.payload(&entry);
        let commit_lsn = commit.of(kind, payload);
        if header.flags.apply(kind) && Catalog::apply(&mut catalog, kind, payload, commit_lsn)? {
            let roots = needed.iter().filter(|one| one.is_root);
            note(fault, roots, &catalog, header.end_lsn);
        }
        if kind.is_event()
            && let Some(oid) = block.relation(&entry)
        {
            let row = needed.iter().filter(|one| one.oid == oid);
            note(fault, row, &catalog, header.end_lsn);
        }
    }
    Ok(())
}

/// What a publication, as a state of one alone, means more of than the log's RELATION messages say.
fn needed(own: &PublicationState) -> Vec<Needed<'_>> {
    let tables = own.only_publication().into_iter();
    let tables = tables.flat_map(|one| &one.tables);
    let named = tables.filter(|one| !one.implied).filter_map(|table| {
        let described = own.relation(table.relation);
        let is_partition = described.is_some_and(|one| !one.ancestors.is_empty());
        let attributes = described.and_then(|one| one.attributes.as_deref());
        let attributes = attributes.unwrap_or_default();
        let lists = |one: &&Attribute| {
            let listed = table.columns.as_ref();
            let filter = table.row_filter.as_ref();
            listed.is_some_and(|names| names.contains(&one.name))
                || filter.is_some_and(|filter| filter.reads(one.number))
        };
        let needed = Needed {
            oid: table.relation,
            table: format!("\"{}\".\"{}\"", table.schema, table.name),
            is_root: table.partitioned,
            attributes,
            named: attributes.iter().filter(lists).collect(),
        };
        let generated = attributes.iter().any(|one| one.generated != Generated::No);
        let matters = needed.is_root || !needed.named.is_empty() || generated || is_partition;
        matters.then_some(needed)
    });
    named.collect()
}

impl Needed<'_> {
    /// What is otherwise under a catalog.
    fn fault(&self, catalog: &Catalog) -> Option<String> {
        let described = catalog.publication_state().relation(self.oid);
        if self.is_root && described.is_none() {
            return Some(format!(
                "the log does not say which partitions the partitioned table {} had there",
                self.table
            ));
        }
        if let Some(attributes) = described.and_then(|one| one.attributes.as_ref()) {
            let mut named = self.named.iter();
            let absent = named.find(|one| attributes.iter().all(|then| then.number != one.number));
            return absent.map(|one| self.lacks(one));
        }
        let schema = catalog.relation(self.oid).filter(|_| !self.is_root)?;
        self.differs(schema)
    }

    /// Numbers are not known there: the columns must be the first ones of now.
    fn differs(&self, schema: &RelationSchema) -> Option<String> {
        let is_there =
            |one: &Attribute| schema.columns.iter().any(|column| column.name == one.name);
        let mut now = self
            .attributes
            .iter()
            .filter(|one| one.generated == Generated::No || is_there(one));
        let same = schema.columns.iter().all(|column| {
            let one = now.next();
            one.is_some_and(|one| one.name == column.name && one.type_oid == column.type_oid)
        });
        if !same && !self.attributes.is_empty() {
            return Some(format!("table {} had other columns there", self.table));
        }
        let absent = self.named.iter().find(|one| !is_there(one));
        absent.map(|one| self.lacks(one))
    }

    fn lacks(&self, column: &Attribute) -> String {
        format!(
            "table {} had no column \"{}\" there",
            self.table, column.name
        )
    }
}
