//! `decctl verify`: whether the files of the log are what they were written as, and what to do if not.

mod accept;
mod against;
mod table;
mod views;

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pg_proto::Lsn;
use service::config::Config;
use storage_format::fs::RealFs;
use storage_format::segment::{list_segments, read_identity};
use storage_format::verify::{self, Remedy, Report};
use storage_format::{LogWriter, WriterOptions};

use self::views::{Action, ReportView};
use crate::cli::VerifyArgs;
use crate::error::Error;
use crate::output;

/// Runs `decctl verify`.
pub(super) async fn run(config: &Config, args: &VerifyArgs) -> Result<(), Error> {
    let directory = args.directory.as_deref().unwrap_or(&config.log.directory);
    if list_segments(&RealFs, directory)?.is_empty() {
        return Err(Error::NoSegments(directory.to_owned()));
    }
    if args.against_source {
        // The command line asks for both.
        let table = args.table.as_deref().unwrap_or_default();
        return against::run(config, directory, table, args.from, args.output.json).await;
    }
    let mut actions = act(directory, args)?;
    if args.accept_source {
        actions.extend(accept::run(config, directory).await?);
    }
    let report = look(directory)?;
    let view = ReportView::new(directory, &report, actions);
    if args.output.json {
        output::json(&view)?;
    } else {
        view.print()?;
    }
    if report.is_sound() {
        Ok(())
    } else {
        Err(Error::Unsound {
            findings: report.findings.len(),
            advice: advice(&report),
        })
    }
}

/// Does what was asked for before the log is looked at.
fn act(directory: &Path, args: &VerifyArgs) -> Result<Vec<Action>, Error> {
    let mut actions = Vec::new();
    if args.repair {
        actions.extend(Action::of_repair(verify::repair(&RealFs, directory)?));
    }
    if args.quarantine {
        let done = verify::quarantine(&RealFs, directory)?;
        actions.extend(done.into_iter().map(Action::of_quarantine));
    }
    if let Some(lsn) = args.quarantine_from {
        actions.push(Action::of_cut(verify::cut_off(&RealFs, directory, lsn)?));
    }
    if let Some(lsn) = args.gap_to {
        actions.push(accept_gap(directory, lsn)?);
    }
    Ok(actions)
}

/// Says at the log's end that what lies before `lsn` will never come.
fn accept_gap(directory: &Path, lsn: Lsn) -> Result<Action, Error> {
    let Some(identity) = read_identity(&RealFs, directory)? else {
        return Err(Error::NoSegments(directory.to_owned()));
    };
    let options = WriterOptions {
        segment_bytes: WriterOptions::DEFAULT_SEGMENT_BYTES,
        start_lsn: Lsn::INVALID,
    };
    let fs = std::sync::Arc::new(RealFs);
    let (mut writer, recovery) = LogWriter::open(directory, options, identity, fs)?;
    writer.gap(lsn)?;
    writer.sync()?;
    Ok(Action::of_gap(recovery.end_lsn, lsn.max(recovery.end_lsn)))
}

fn look(directory: &Path) -> Result<Report, Error> {
    // To standard error, and only if that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bytes}/{total_bytes} {wide_bar} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let report = verify::verify(&RealFs, directory, &mut |progress| {
        let name = progress.path.file_name().unwrap_or_default();
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
        bar.set_message(name.to_string_lossy().into_owned());
    });
    bar.finish_and_clear();
    Ok(report?)
}

fn advice(report: &Report) -> &'static str {
    let has = |remedy| {
        report
            .findings
            .iter()
            .any(|finding| finding.remedy == remedy)
    };
    if has(Remedy::Quarantine) {
        "restore the files from a copy, or stop the decoder and run decctl verify --quarantine"
    } else if has(Remedy::Repair) {
        "stop the decoder and run decctl verify --repair"
    } else {
        "keep a copy of the log directory and ask for help"
    }
}
