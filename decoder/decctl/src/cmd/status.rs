//! `decctl status`.

use pg_proto::Lsn;
use proto::v1::{
    CatalogMode, GetFanoutStatusRequest, GetFanoutStatusResponse, GetStatusRequest,
    GetStatusResponse, LogStatus, SourceState, SourceStatus, SubscriberStatus,
};
use serde::Serialize;
use service::config::Config;

use super::slot::{self, SlotView};
use crate::cli::StatusArgs;
use crate::error::Error;
use crate::{output, rpc};

#[derive(Serialize)]
struct StatusView {
    version: String,
    started_at_unix_us: i64,
    source: SourceView,
    log: LogView,
    slots: Vec<SlotView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fanout: Option<FanoutView>,
}

#[derive(Serialize)]
struct SourceView {
    state: &'static str,
    last_error: Option<String>,
    system_identifier: String,
    timeline: u32,
    database: String,
    slot: String,
    publication: String,
    server_version: String,
    catalog_mode: &'static str,
    received_lsn: Lsn,
    confirmed_lsn: Lsn,
    source_lsn: Lsn,
    lag_bytes: u64,
    reconnects: u64,
    forged_messages: u64,
}

#[derive(Serialize)]
struct LogView {
    directory: String,
    oldest_lsn: Lsn,
    written_lsn: Lsn,
    durable_lsn: Lsn,
    segments: u64,
    bytes: u64,
    bytes_received: u64,
    transactions: u64,
    changes: u64,
    fsyncs: u64,
    staged_transactions: u64,
    staged_bytes: u64,
    definitions_kept: u64,
    definitions_known_from: Lsn,
    trouble: Option<String>,
}

#[derive(Serialize)]
struct FanoutView {
    name: String,
    version: String,
    oldest_lsn: Lsn,
    head_lsn: Lsn,
    decoder_connected: bool,
    subscribers: Vec<SubscriberView>,
}

#[derive(Serialize)]
struct SubscriberView {
    id: u64,
    protocol: String,
    application_name: String,
    user: String,
    peer: String,
    slot: Option<String>,
    publications: Vec<String>,
    tables: Vec<String>,
    sent_lsn: Lsn,
    flush_lsn: Lsn,
    lag_bytes: u64,
    rows_sent: u64,
    bytes_sent: u64,
    /// Rows that its row filters judged, by who did it.
    filtered: Filtered,
    connected_at_unix_us: i64,
}

#[derive(Serialize)]
struct Filtered {
    native: u64,
    index: u64,
    source: u64,
    /// Filters that the source judged rows by, each with the reason.
    by_source: Vec<String>,
}

impl Filtered {
    fn short(&self) -> String {
        if self.native + self.index + self.source == 0 {
            return "-".to_owned();
        }
        format!("{}/{}/{}", self.native, self.index, self.source)
    }
}

fn state_name(state: SourceState) -> &'static str {
    match state {
        SourceState::Unspecified => "unknown",
        SourceState::Connecting => "connecting",
        SourceState::Streaming => "streaming",
        SourceState::Backoff => "waiting to reconnect",
        SourceState::Failed => "failed",
    }
}

fn catalog_mode_name(mode: CatalogMode) -> &'static str {
    match mode {
        CatalogMode::Unspecified => "unknown",
        CatalogMode::Triggers => "event triggers",
        CatalogMode::Polling => "polling",
    }
}

impl From<SourceStatus> for SourceView {
    fn from(source: SourceStatus) -> Self {
        Self {
            state: state_name(source.state()),
            catalog_mode: catalog_mode_name(source.catalog_mode()),
            last_error: Some(source.last_error).filter(|error| !error.is_empty()),
            system_identifier: source.system_identifier,
            timeline: source.timeline,
            database: source.database,
            slot: source.slot_name,
            publication: source.publication,
            server_version: source.server_version,
            received_lsn: Lsn(source.received_lsn),
            confirmed_lsn: Lsn(source.confirmed_lsn),
            source_lsn: Lsn(source.source_lsn),
            lag_bytes: Lsn(source.source_lsn).bytes_since(Lsn(source.confirmed_lsn)),
            reconnects: source.reconnects,
            forged_messages: source.forged_messages,
        }
    }
}

impl From<LogStatus> for LogView {
    fn from(log: LogStatus) -> Self {
        Self {
            directory: log.directory,
            oldest_lsn: Lsn(log.oldest_lsn),
            written_lsn: Lsn(log.written_lsn),
            durable_lsn: Lsn(log.durable_lsn),
            segments: log.segment_count,
            bytes: log.bytes,
            bytes_received: log.bytes_received,
            transactions: log.transactions,
            changes: log.changes,
            fsyncs: log.fsyncs,
            staged_transactions: log.staged_transactions,
            staged_bytes: log.staged_bytes,
            definitions_kept: log.definitions_kept,
            definitions_known_from: Lsn(log.definitions_known_from),
            trouble: Some(log.trouble).filter(|trouble| !trouble.is_empty()),
        }
    }
}

impl From<SubscriberStatus> for SubscriberView {
    fn from(subscriber: SubscriberStatus) -> Self {
        let tables = subscriber
            .tables
            .iter()
            .map(|table| format!("{}.{}", table.schema, table.name));
        Self {
            tables: tables.collect(),
            id: subscriber.id,
            protocol: subscriber.protocol,
            application_name: subscriber.application_name,
            user: subscriber.user,
            peer: subscriber.peer,
            slot: Some(subscriber.slot).filter(|slot| !slot.is_empty()),
            publications: subscriber.publications,
            sent_lsn: Lsn(subscriber.sent_lsn),
            flush_lsn: Lsn(subscriber.flush_lsn),
            lag_bytes: subscriber.lag_bytes,
            rows_sent: subscriber.rows_sent,
            bytes_sent: subscriber.bytes_sent,
            filtered: Filtered {
                native: subscriber.filtered_native,
                index: subscriber.filtered_index,
                source: subscriber.filtered_source,
                by_source: subscriber.source_filters,
            },
            connected_at_unix_us: subscriber.connected_at,
        }
    }
}

impl From<GetFanoutStatusResponse> for FanoutView {
    fn from(status: GetFanoutStatusResponse) -> Self {
        Self {
            name: status.name,
            version: status.version,
            oldest_lsn: Lsn(status.oldest_lsn),
            head_lsn: Lsn(status.head_lsn),
            decoder_connected: status.decoder_connected,
            subscribers: status
                .subscribers
                .into_iter()
                .map(SubscriberView::from)
                .collect(),
        }
    }
}

/// Runs `decctl status`.
pub(crate) async fn run(config: &Config, args: &StatusArgs) -> Result<(), Error> {
    let status: GetStatusResponse = rpc::control(config)
        .await?
        .get_status(GetStatusRequest {})
        .await?
        .into_inner();
    let fanout = if args.fanout {
        let response = rpc::fanout(config, None, &args.access)
            .await?
            .get_fanout_status(GetFanoutStatusRequest {})
            .await?;
        Some(FanoutView::from(response.into_inner()))
    } else {
        None
    };
    let view = StatusView {
        version: status.version,
        started_at_unix_us: status.started_at,
        source: status.source.unwrap_or_default().into(),
        log: status.log.unwrap_or_default().into(),
        slots: status.slots.into_iter().map(SlotView::from).collect(),
        fanout,
    };
    if args.output.json {
        output::json(&view)
    } else {
        print(&view)
    }
}

fn print(view: &StatusView) -> Result<(), Error> {
    print_source(&view.source)?;
    print_log(&view.log)?;
    output::write_line("")?;
    slot::print(&view.slots)?;
    match &view.fanout {
        Some(fanout) => print_fanout(fanout),
        None => Ok(()),
    }
}

fn print_source(source: &SourceView) -> Result<(), Error> {
    output::fields(
        "source",
        &[
            ("state", source.state.to_owned()),
            ("last error", source.last_error.clone().unwrap_or_default()),
            (
                "server",
                format!(
                    "PostgreSQL {}, database {}",
                    source.server_version, source.database
                ),
            ),
            (
                "system",
                format!("{}, timeline {}", source.system_identifier, source.timeline),
            ),
            ("slot", source.slot.clone()),
            ("publication", source.publication.clone()),
            ("catalog", source.catalog_mode.to_owned()),
            ("received", source.received_lsn.to_string()),
            ("confirmed", source.confirmed_lsn.to_string()),
            ("behind", output::bytes(source.lag_bytes)),
            ("reconnects", source.reconnects.to_string()),
            ("forged messages", source.forged_messages.to_string()),
        ],
    )
}

fn print_log(log: &LogView) -> Result<(), Error> {
    output::fields(
        "log",
        &[
            ("directory", log.directory.clone()),
            ("trouble", log.trouble.clone().unwrap_or_default()),
            ("kept from", log.oldest_lsn.to_string()),
            ("durable", log.durable_lsn.to_string()),
            (
                "size",
                format!("{} in {} segments", output::bytes(log.bytes), log.segments),
            ),
            ("transactions", log.transactions.to_string()),
            ("changes", log.changes.to_string()),
            (
                "definitions",
                format!(
                    "{} earlier ones of publications, known from {}",
                    log.definitions_kept, log.definitions_known_from
                ),
            ),
            (
                "staged",
                format!(
                    "{} in {} open transactions",
                    output::bytes(log.staged_bytes),
                    log.staged_transactions
                ),
            ),
        ],
    )
}

fn print_fanout(fanout: &FanoutView) -> Result<(), Error> {
    output::write_line("")?;
    output::fields(
        &format!("fanout {}", fanout.name),
        &[
            ("head", fanout.head_lsn.to_string()),
            (
                "decoder",
                if fanout.decoder_connected {
                    "connected"
                } else {
                    "away"
                }
                .to_owned(),
            ),
        ],
    )?;
    let rows = fanout.subscribers.iter().map(|subscriber| {
        vec![
            subscriber.id.to_string(),
            subscriber.protocol.clone(),
            subscriber.application_name.clone(),
            subscriber.slot.clone().unwrap_or_else(|| "-".to_owned()),
            subscriber.sent_lsn.to_string(),
            subscriber.flush_lsn.to_string(),
            output::bytes(subscriber.lag_bytes),
            subscriber.rows_sent.to_string(),
            subscriber.filtered.short(),
            output::since(subscriber.connected_at_unix_us),
        ]
    });
    let header = [
        "ID",
        "PROTOCOL",
        "APPLICATION",
        "SLOT",
        "SENT",
        "FLUSHED",
        "LAG",
        "ROWS",
        "FILTERED HERE/BY INDEX/BY SOURCE",
        "AGE",
    ];
    output::table(&header, &[6, 7, 8], rows.collect())?;
    for subscriber in &fanout.subscribers {
        for filter in &subscriber.filtered.by_source {
            let line = format!(
                "subscriber {}: the source evaluates {filter}",
                subscriber.id
            );
            output::write_line(&line)?;
        }
    }
    Ok(())
}
