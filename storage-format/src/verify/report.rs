//! What a look at a log found.

use std::path::{Path, PathBuf};

use pg_proto::Lsn;

use super::walk::Checked;
use crate::error::Damage;

/// What can be done about a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It is derived from what is sound: [`repair`](super::repair()) makes it anew.
    Repair,
    /// Changes are lost unless the file is restored from a copy: [`quarantine`](super::quarantine()) moves it aside
    /// and writes a gap.
    Quarantine,
    /// Nothing that a program should decide.
    Operator,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What was found and what was expected.
    pub damage: Damage,
    /// What can be done.
    pub remedy: Remedy,
}

/// How far a look has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The file that is being read.
    pub path: &'a Path,
    /// Bytes of the log that were read.
    pub done_bytes: u64,
    /// Bytes of the log when the look began.
    pub total_bytes: u64,
}

/// A gap that the log itself knows of: not wrong, but no reader passes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The file.
    pub path: PathBuf,
    /// Offset of the gap block.
    pub offset: u64,
    /// Where the gap begins.
    pub from: Lsn,
    /// Where the log goes on.
    pub to: Lsn,
}

/// What a look at a log found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whether a decoder is at work: then only what was durable at the start was looked at.
    pub live: bool,
    /// Segments that were read.
    pub segments: u64,
    /// Segments that retention deleted meanwhile.
    pub deleted_meanwhile: u64,
    /// Sound blocks.
    pub blocks: u64,
    /// Whole transactions.
    pub transactions: u64,
    /// Events (row changes, truncates, logical messages).
    pub events: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// The lowest position that is kept.
    pub first_lsn: Lsn,
    /// The end of what was read.
    pub end_lsn: Lsn,
    /// Gaps that the log records.
    pub gaps: Vec<Gap>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Files that nobody needs and that the decoder's next start removes; looked for without a decoder only.
    pub leftovers: Vec<PathBuf>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn count(&mut self, segment: &Checked) {
        if segment.deleted {
            self.deleted_meanwhile += 1;
            return;
        }
        if self.segments == 0 {
            self.first_lsn = segment.name.first_lsn;
        }
        self.segments += 1;
        self.blocks += segment.totals.block_count;
        self.transactions += segment.totals.transaction_count;
        self.events += segment.totals.event_count;
        self.bytes += segment.tip.offset;
        self.end_lsn = segment.state.end_lsn;
        self.gaps.extend(segment.gaps.iter().cloned());
    }
}
