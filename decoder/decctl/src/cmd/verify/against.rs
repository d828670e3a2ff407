//! `decctl verify --against-source`: whether the log's changes of a table give its rows of now.
//!
//! Under a snapshot of the source the table is read; of the log exactly those transactions count that the snapshot
//! sees, whatever committed meanwhile. Each row whose changes the log has must be as its last change left it, and one
//! that was deleted must not be there. Rows that the log has no changes of are older than it; after a TRUNCATE there
//! can be none.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use pg_client::Connection;
use pg_proto::pgoutput::{Framing, Message, decode};
use pg_proto::quote::identifier;
use pg_proto::{Lsn, Xid};
use serde::Serialize;
use service::config::Config;
use storage_format::log::{Log, ReadOptions, TransactionIter};
use storage_format::record::RecordKind;

use super::table::{Last, TableLog, Value, Visible};
use crate::cmd::source::writable_connection;
use crate::cmd::table_name;
use crate::error::Error;
use crate::output;

/// Rows fetched at once.
const FETCH_ROWS: usize = 1000;
/// Differences that are told one by one.
const TOLD_MAX: usize = 20;
/// How long the decoder may need to reach what the snapshot sees.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default, Serialize)]
struct View {
    table: String,
    from: Lsn,
    snapshot_lsn: Lsn,
    changes: u64,
    rows_in_the_table: u64,
    rows_compared: u64,
    differences: u64,
    examples: Vec<String>,
}

impl View {
    fn differs(&mut self, key: &[Value], problem: &str) {
        self.differences += 1;
        if self.examples.len() < TOLD_MAX {
            self.examples.push(format!("{}: {problem}", describe(key)));
        }
    }
}

/// Compares a table with the log.
pub(super) async fn run(
    config: &Config,
    directory: &Path,
    table: &str,
    from: Option<Lsn>,
    json: bool,
) -> Result<(), Error> {
    let (schema, name) = table_name::parse(table)?;
    let mut source = writable_connection(config).await?;
    let (visible, snapshot_lsn) = begin(&mut source).await?;
    let log = Log::open(directory, ReadOptions::default())?;
    wait_for(&log, snapshot_lsn).await?;
    let from = match from {
        Some(from) => from,
        None => log.kept()?.oldest,
    };
    let state = replay(&log, from, &visible, (&schema, &name))?;
    let mut view = View {
        table: table.to_owned(),
        from,
        snapshot_lsn,
        changes: state.changes,
        ..View::default()
    };
    if state.changes > 0 {
        compare(&mut source, state, &schema, &name, &mut view).await?;
    }
    // Ignored: it is closed either way.
    let _ = source.close().await;
    print(&view, json)?;
    match view.differences {
        0 => Ok(()),
        differences => Err(Error::Differs { differences }),
    }
}

/// Begins a transaction whose snapshot stands; what that sees, and a position behind all of it.
async fn begin(source: &mut Connection) -> Result<(Visible, Lsn), Error> {
    // The same text as the decoder asks for.
    source
        .simple_query(
            "SET DateStyle = ISO; SET IntervalStyle = postgres; SET TimeZone = UTC; SET bytea_output = hex; \
             SET extra_float_digits = 3; SET search_path = ''; SET statement_timeout = 0; \
             SET idle_in_transaction_session_timeout = 0; \
             BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        )
        .await?;
    let snapshot = source
        .query_one_value("SELECT pg_catalog.pg_current_snapshot()")
        .await?
        .unwrap_or_default();
    let visible = Visible::parse(&snapshot).ok_or(Error::Answer {
        question: "pg_current_snapshot()",
        found: snapshot,
    })?;
    let sql = "SELECT pg_catalog.pg_current_wal_flush_lsn()";
    let position = source.query_one_value(sql).await?.unwrap_or_default();
    let lsn = position.parse().map_err(|_| Error::Answer {
        question: "pg_current_wal_flush_lsn()",
        found: position,
    })?;
    Ok((visible, lsn))
}

async fn wait_for(log: &Log, lsn: Lsn) -> Result<(), Error> {
    let begun = Instant::now();
    while log.head().lsn < lsn {
        if begun.elapsed() > PATIENCE {
            return Err(Error::NotReached {
                wanted: lsn,
                head: log.head().lsn,
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn replay(
    log: &std::sync::Arc<Log>,
    from: Lsn,
    visible: &Visible,
    name: (&str, &str),
) -> Result<TableLog, Error> {
    let mut records = TransactionIter::new(log.cursor_at(from)?);
    let mut state = TableLog::default();
    let mut seen = true;
    while let Some(record) = records.next_record()? {
        match record.kind() {
            Some(RecordKind::Begin) => {
                seen = visible.sees(xid_of(record.payload()).unwrap_or(Xid(0)));
            }
            // It comes once more when it has committed.
            Some(RecordKind::BeginPrepare) => seen = false,
            Some(kind) if kind.is_event() && seen => {
                state
                    .apply(&record, records.catalog(), name)
                    .map_err(|why| Error::Uncheckable(why.0))?;
            }
            _ => {}
        }
    }
    Ok(state)
}

fn xid_of(payload: &[u8]) -> Option<Xid> {
    match decode(payload, Framing::Plain) {
        Ok(Message::Begin(begin)) => Some(begin.xid),
        _ => None,
    }
}

/// Reads the table, in parts, and holds each row against the log.
async fn compare(
    source: &mut Connection,
    state: TableLog,
    schema: &str,
    name: &str,
    view: &mut View,
) -> Result<(), Error> {
    let columns: Vec<String> = state.columns.iter().map(|name| identifier(name)).collect();
    let sql = format!(
        "DECLARE rows NO SCROLL CURSOR FOR SELECT {} FROM ONLY {}.{}",
        columns.join(", "),
        identifier(schema),
        identifier(name)
    );
    source.simple_query(&sql).await?;
    let mut met: HashSet<Vec<Value>> = HashSet::new();
    loop {
        let sql = format!("FETCH {FETCH_ROWS} FROM rows");
        let rows = source.simple_query(&sql).await?.into_iter().next();
        let rows = rows.unwrap_or_default().rows;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            view.rows_in_the_table += 1;
            check_row(&state, &row, &mut met, view);
        }
    }
    for (key, last) in &state.rows {
        if *last != Last::Gone && !met.contains(key) {
            view.differs(
                key,
                "the log's last change leaves a row, the table has none",
            );
        }
    }
    Ok(())
}

fn check_row(state: &TableLog, row: &[Value], met: &mut HashSet<Vec<Value>>, view: &mut View) {
    let key: Vec<Value> = state
        .columns
        .iter()
        .zip(row)
        .filter(|(column, _)| state.key.contains(column))
        .map(|(_, value)| value.clone())
        .collect();
    match state.rows.get(&key) {
        None if state.complete => view.differs(&key, "the log has no row since the last TRUNCATE"),
        None => {}
        Some(Last::Gone) => {
            view.rows_compared += 1;
            view.differs(&key, "the log's last change deletes it, the table has it");
        }
        Some(Last::Row(values)) => {
            view.rows_compared += 1;
            for (column, value) in state.columns.iter().zip(row) {
                if values.get(column).is_some_and(|known| known != value) {
                    let problem = format!("column {column} has another value than in the log");
                    view.differs(&key, &problem);
                }
            }
            met.insert(key);
        }
    }
}

fn describe(key: &[Value]) -> String {
    let values = key.iter().map(|value| value.as_deref().unwrap_or("null"));
    format!("row ({})", values.collect::<Vec<_>>().join(", "))
}

fn print(view: &View, json: bool) -> Result<(), Error> {
    if json {
        return output::json(view);
    }
    output::fields(
        &format!("table {}", view.table),
        &[
            ("log from", view.from.to_string()),
            ("as of", view.snapshot_lsn.to_string()),
            ("changes in the log", view.changes.to_string()),
            ("rows in the table", view.rows_in_the_table.to_string()),
            ("rows compared", view.rows_compared.to_string()),
            ("differences", view.differences.to_string()),
        ],
    )?;
    for example in &view.examples {
        output::write_line(&format!("wrong: {example}"))?;
    }
    Ok(())
}
