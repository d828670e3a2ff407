//! `decctl segments`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use pg_proto::Lsn;
use proto::v1::Segment;
use serde::Serialize;
use service::config::Config;
use storage_format::fs::RealFs;
use storage_format::segment::{
    FOOTER_TRAILER_LEN, Footer, SegmentInfo, SegmentState, list_segments,
};
use storage_format::watermark::WatermarkReader;
use storage_format::{Damage, FormatError};

use crate::cli::SegmentsArgs;
use crate::error::Error;
use crate::output;

/// A segment as it is printed.
#[derive(Serialize)]
pub(crate) struct SegmentView {
    pub(crate) sequence: u64,
    pub(crate) file_name: String,
    pub(crate) sealed: bool,
    pub(crate) first_lsn: Lsn,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_lsn: Option<Lsn>,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) raw_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transactions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<u64>,
    pub(crate) modified_at_unix_us: i64,
}

impl From<Segment> for SegmentView {
    fn from(segment: Segment) -> Self {
        Self {
            sequence: segment.sequence,
            file_name: segment.file_name,
            sealed: segment.sealed,
            first_lsn: Lsn(segment.first_lsn),
            end_lsn: Some(Lsn(segment.end_lsn)).filter(|lsn| lsn.is_valid()),
            bytes: segment.bytes,
            raw_bytes: segment.raw_bytes,
            transactions: None,
            events: None,
            modified_at_unix_us: segment.modified_at,
        }
    }
}

/// Runs `decctl segments`.
pub(super) fn run(config: &Config, args: &SegmentsArgs) -> Result<(), Error> {
    let directory = args.directory.as_deref().unwrap_or(&config.log.directory);
    let segments = views(directory)?;
    if args.output.json {
        output::json(&segments)
    } else {
        print(&segments)
    }
}

fn views(directory: &Path) -> Result<Vec<SegmentView>, Error> {
    let segments = list_segments(&RealFs, directory)?;
    if segments.is_empty() {
        return Err(Error::NoSegments(directory.to_owned()));
    }
    let head = WatermarkReader::open(directory)
        .and_then(|watermark| watermark.read())
        .ok();
    let mut views = Vec::with_capacity(segments.len());
    for (index, segment) in segments.iter().enumerate() {
        // A segment ends where the next one begins; the last one, at what the decoder has published.
        let end = segments.get(index + 1).map(|next| next.name.first_lsn);
        views.push(view(segment, end.or(head.map(|head| head.durable.lsn)))?);
    }
    Ok(views)
}

fn view(segment: &SegmentInfo, end_lsn: Option<Lsn>) -> Result<SegmentView, Error> {
    let file = File::open(&segment.path).map_err(Error::reading(&segment.path))?;
    let metadata = file.metadata().map_err(Error::reading(&segment.path))?;
    let sealed = segment.state == SegmentState::Sealed;
    let footer = if sealed {
        Some(footer(&file, metadata.len(), &segment.path)?)
    } else {
        None
    };
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(SegmentView {
        sequence: segment.name.sequence,
        file_name: segment
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        sealed,
        first_lsn: segment.name.first_lsn,
        end_lsn: footer.map(|footer| footer.end_lsn).or(end_lsn),
        bytes: metadata.len(),
        raw_bytes: footer.map(|footer| footer.raw_bytes),
        transactions: footer.map(|footer| footer.transaction_count),
        events: footer.map(|footer| footer.event_count),
        modified_at_unix_us: modified
            .and_then(|time| i64::try_from(time.as_micros()).ok())
            .unwrap_or(0),
    })
}

fn footer(file: &File, length: u64, path: &Path) -> Result<Footer, Error> {
    let mut trailer = [0; FOOTER_TRAILER_LEN];
    let trailer_offset = length.saturating_sub(trailer.len() as u64);
    file.read_exact_at(&mut trailer, trailer_offset)
        .map_err(Error::reading(path))?;
    let offset =
        Footer::locate(&trailer, length).map_err(|damage| damaged(path, trailer_offset, damage))?;
    // `locate` has checked that a footer's length is left behind it.
    let mut bytes = vec![0; usize::try_from(length - offset).unwrap_or(0)];
    file.read_exact_at(&mut bytes, offset)
        .map_err(Error::reading(path))?;
    let (footer, _) =
        Footer::decode(&bytes, offset).map_err(|damage| damaged(path, offset, damage))?;
    Ok(footer)
}

fn damaged(path: &Path, offset: u64, damage: Damage) -> Error {
    Error::Format(FormatError::Damaged {
        path: path.to_owned(),
        offset,
        damage,
    })
}

fn print(segments: &[SegmentView]) -> Result<(), Error> {
    let number =
        |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let rows = segments.iter().map(|segment| {
        let ratio = segment.raw_bytes.filter(|_| segment.bytes > 0).map(|raw| {
            let tenths = raw.saturating_mul(10) / segment.bytes;
            format!("{}.{}", tenths / 10, tenths % 10)
        });
        vec![
            segment.sequence.to_string(),
            if segment.sealed { "sealed" } else { "active" }.to_owned(),
            segment.first_lsn.to_string(),
            segment
                .end_lsn
                .map_or_else(|| "-".to_owned(), |lsn| lsn.to_string()),
            output::bytes(segment.bytes),
            ratio.unwrap_or_else(|| "-".to_owned()),
            number(segment.transactions),
            number(segment.events),
            output::since(segment.modified_at_unix_us),
        ]
    });
    let header = [
        "SEGMENT",
        "STATE",
        "FROM",
        "TO",
        "SIZE",
        "RATIO",
        "TRANSACTIONS",
        "EVENTS",
        "AGE",
    ];
    output::table(&header, &[4, 5, 6, 7], rows.collect())
}
