//! `decctl gc`.

use proto::v1::CollectGarbageRequest;
use serde::Serialize;
use service::config::Config;

use super::segments::SegmentView;
use crate::cli::GcArgs;
use crate::error::Error;
use crate::{output, rpc};

#[derive(Serialize)]
struct VerdictView {
    #[serde(flatten)]
    segment: SegmentView,
    deletable: bool,
    reason: String,
}

#[derive(Serialize)]
struct ReportView {
    dry_run: bool,
    bytes_freed: u64,
    segments: Vec<VerdictView>,
}

/// Runs `decctl gc`.
pub(crate) async fn run(config: &Config, args: &GcArgs) -> Result<(), Error> {
    let request = CollectGarbageRequest {
        dry_run: args.dry_run,
    };
    let response = rpc::control(config)
        .await?
        .collect_garbage(request)
        .await?
        .into_inner();
    let segments: Vec<VerdictView> = response
        .verdicts
        .into_iter()
        .map(|verdict| VerdictView {
            segment: verdict.segment.unwrap_or_default().into(),
            deletable: verdict.deletable,
            reason: verdict.reason,
        })
        .collect();
    let report = ReportView {
        dry_run: args.dry_run,
        bytes_freed: response.bytes_freed,
        segments,
    };
    if args.output.json {
        output::json(&report)
    } else {
        print(&report)
    }
}

fn print(report: &ReportView) -> Result<(), Error> {
    let action = if report.dry_run {
        "would delete"
    } else {
        "deleted"
    };
    let rows = report.segments.iter().map(|verdict| {
        vec![
            verdict.segment.file_name.clone(),
            output::bytes(verdict.segment.bytes),
            if verdict.deletable { action } else { "kept" }.to_owned(),
            verdict.reason.clone(),
        ]
    });
    output::table(&["SEGMENT", "SIZE", "", "WHY"], &[1], rows.collect())?;
    let count = report
        .segments
        .iter()
        .filter(|verdict| verdict.deletable)
        .count();
    output::write_line(&format!(
        "{action} {count} segments, {}",
        output::bytes(report.bytes_freed)
    ))
}
