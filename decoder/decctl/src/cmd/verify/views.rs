//! The report as it is printed.

use std::path::{Path, PathBuf};

use pg_proto::Lsn;
use serde::Serialize;
use storage_format::Damage;
use storage_format::staging::PreparedId;
use storage_format::verify::{CutOff, Finding, Quarantined, Remedy, Repaired, Report, Undone};

use crate::error::Error;
use crate::output;

/// Everything about a log, for people and as JSON.
#[derive(Serialize)]
pub(super) struct ReportView {
    directory: PathBuf,
    sound: bool,
    beside_a_decoder: bool,
    segments: u64,
    segments_deleted_meanwhile: u64,
    blocks: u64,
    transactions: u64,
    events: u64,
    bytes: u64,
    first_lsn: Lsn,
    end_lsn: Lsn,
    actions: Vec<Action>,
    gaps: Vec<GapView>,
    findings: Vec<FindingView>,
    leftovers: Vec<PathBuf>,
}

#[derive(Serialize)]
struct GapView {
    file: PathBuf,
    offset: u64,
    from: Lsn,
    to: Lsn,
}

#[derive(Serialize)]
struct FindingView {
    file: PathBuf,
    offset: u64,
    problem: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    what_to_do: &'static str,
}

/// Something that was done before the log was looked at.
#[derive(Default, Serialize)]
pub(super) struct Action {
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Lsn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Lsn>,
    /// From and to.
    #[serde(skip_serializing_if = "Option::is_none")]
    timelines: Option<[u32; 2]>,
    /// The identifier of a prepared transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    prepared: Option<String>,
}

impl Action {
    fn on(what: &'static str, file: PathBuf) -> Self {
        Self {
            what,
            file: Some(file),
            ..Self::default()
        }
    }

    pub(super) fn of_repair(repaired: Repaired) -> Vec<Self> {
        let indexes = repaired.indexes.into_iter();
        let leftovers = repaired.leftovers.into_iter();
        let watermark = repaired.watermark.then_some(Self {
            what: "the watermark could not be used and was removed",
            ..Self::default()
        });
        indexes
            .map(|path| Self::on("index made anew", path))
            .chain(leftovers.map(|path| Self::on("leftover removed", path)))
            .chain(watermark)
            .collect()
    }

    pub(super) fn of_quarantine(done: Quarantined) -> Self {
        Self {
            what: if done.from == done.to {
                "nothing was lost; the old file is kept"
            } else {
                "a gap was written; the old file is kept"
            },
            file: done.moved_to,
            from: Some(done.from),
            to: Some(done.to),
            ..Self::default()
        }
    }

    pub(super) fn of_cut(cut: CutOff) -> Self {
        Self {
            what: "the log was cut off; the old files are kept",
            file: cut.moved.into_iter().last(),
            from: Some(cut.end_lsn),
            to: Some(cut.was_lsn),
            ..Self::default()
        }
    }

    pub(super) fn of_undone(undone: &Undone) -> Vec<Self> {
        let about = |what: &'static str| {
            move |id: &PreparedId| Self {
                what,
                prepared: Some(String::from_utf8_lossy(&id.gid).into_owned()),
                ..Self::default()
            }
        };
        let restored =
            about("the end of a prepared transaction was taken off, it is undecided again");
        let lost = about(
            "the end of a prepared transaction was taken off, and the log does not have its changes any more: when the \
             source commits it the decoder will stop and say what to do",
        );
        let lost = undone.lost.iter().map(lost);
        undone.restored.iter().map(restored).chain(lost).collect()
    }

    pub(super) fn of_gap(from: Lsn, to: Lsn) -> Self {
        Self {
            what: "a gap was written at the log's end",
            from: Some(from),
            to: Some(to),
            ..Self::default()
        }
    }

    pub(super) fn of_timeline(from: u32, to: u32) -> Self {
        Self {
            what: "the log goes over to the source's timeline",
            timelines: Some([from, to]),
            ..Self::default()
        }
    }

    fn line(&self) -> String {
        let mut line = self.what.to_owned();
        if let (Some(from), Some(to)) = (self.from, self.to) {
            line.push_str(&format!(" ({from} to {to})"));
        }
        if let Some([from, to]) = self.timelines {
            line.push_str(&format!(" ({from} to {to})"));
        }
        if let Some(gid) = &self.prepared {
            line.push_str(&format!(": {gid:?}"));
        }
        if let Some(file) = &self.file {
            line.push_str(&format!(": {}", file.display()));
        }
        line
    }
}

impl ReportView {
    pub(super) fn new(directory: &Path, report: &Report, actions: Vec<Action>) -> Self {
        Self {
            directory: directory.to_owned(),
            sound: report.is_sound(),
            beside_a_decoder: report.live,
            segments: report.segments,
            segments_deleted_meanwhile: report.deleted_meanwhile,
            blocks: report.blocks,
            transactions: report.transactions,
            events: report.events,
            bytes: report.bytes,
            first_lsn: report.first_lsn,
            end_lsn: report.end_lsn,
            actions,
            gaps: report
                .gaps
                .iter()
                .map(|gap| GapView {
                    file: gap.path.clone(),
                    offset: gap.offset,
                    from: gap.from,
                    to: gap.to,
                })
                .collect(),
            findings: report.findings.iter().map(FindingView::new).collect(),
            leftovers: report.leftovers.clone(),
        }
    }

    pub(super) fn print(&self) -> Result<(), Error> {
        for action in &self.actions {
            output::write_line(&action.line())?;
        }
        output::fields(
            &format!("log {}", self.directory.display()),
            &[
                ("segments", self.segments.to_string()),
                ("blocks", self.blocks.to_string()),
                ("transactions", self.transactions.to_string()),
                ("events", self.events.to_string()),
                ("read", output::bytes(self.bytes)),
                ("from", self.first_lsn.to_string()),
                ("to", self.end_lsn.to_string()),
            ],
        )?;
        for gap in &self.gaps {
            let file = gap.file.display();
            output::write_line(&format!(
                "gap: changes between {} and {} are missing ({file}, offset {})",
                gap.from, gap.to, gap.offset
            ))?;
        }
        for path in &self.leftovers {
            let path = path.display();
            output::write_line(&format!(
                "leftover: {path}; the decoder removes it when it starts"
            ))?;
        }
        for finding in &self.findings {
            let file = finding.file.display();
            output::write_line(&format!(
                "wrong: {file}, offset {}: {}\n  {}",
                finding.offset, finding.problem, finding.what_to_do
            ))?;
        }
        if self.sound {
            output::write_line("everything is as it was written")?;
        }
        Ok(())
    }
}

impl FindingView {
    fn new(finding: &Finding) -> Self {
        let (expected, found) = match &finding.damage {
            Damage::Mismatch {
                expected, found, ..
            } => (Some(expected.clone()), Some(found.clone())),
            Damage::TooShort { need, have, .. } => {
                (Some(format!("{need} bytes")), Some(format!("{have} bytes")))
            }
            _ => (None, None),
        };
        Self {
            file: finding.path.clone(),
            offset: finding.offset,
            problem: finding.damage.to_string(),
            expected,
            found,
            what_to_do: match finding.remedy {
                Remedy::Repair => "it is derived: stop the decoder and run decctl verify --repair",
                Remedy::Quarantine => {
                    "restore the file from a copy; without one, stop the decoder and run decctl verify --quarantine, \
                     which keeps the file and writes a gap"
                }
                Remedy::Operator => {
                    "no program should decide this: keep a copy of the log directory, and start subscribers anew if \
                     their tables differ from the source's"
                }
            },
        }
    }
}
