//! `decctl dump`: the records of a part of the log.

use std::io::{self, BufWriter, Write};

use pg_proto::pgoutput::{Change, ColumnValue, Framing, Message, OldTuple, Tuple, decode};
use pg_proto::{Lsn, Oid};
use serde::Serialize;
use serde_json::{Map, Value};
use service::config::Config;
use storage_format::catalog::Catalog;
use storage_format::log::{Log, ReadOptions, Record, TransactionIter};
use storage_format::record::RecordKind;

use crate::cli::DumpArgs;
use crate::error::Error;
use crate::output;

/// Runs `decctl dump`.
pub(super) fn run(config: &Config, args: &DumpArgs) -> Result<(), Error> {
    let directory = args.directory.as_deref().unwrap_or(&config.log.directory);
    let log = Log::open(directory, ReadOptions::default())?;
    let from = match args.from {
        Some(lsn) => lsn,
        None => log.kept()?.oldest,
    };
    // A log that grows faster than it is printed has no end; what is there now has one.
    let head = log.head().lsn;
    let mut records = TransactionIter::new(log.cursor_at(from)?);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(record) = records.next_record()? else {
            break;
        };
        let past = args
            .to
            .map_or(record.commit_lsn > head, |to| record.commit_lsn >= to);
        if past && record.commit_lsn.is_valid() {
            break;
        }
        print(&mut out, &record, records.catalog(), args.output.json)?;
        left -= 1;
    }
    out.flush()?;
    Ok(())
}

/// A record as a JSON line. Fields that its kind does not have are not there.
#[derive(Default, Serialize)]
struct Line {
    kind: &'static str,
    commit_lsn: Lsn,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordinal: Option<u64>,
    lsn: Lsn,
    #[serde(skip_serializing_if = "Option::is_none")]
    relation: Option<String>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

fn print(
    out: &mut impl Write,
    record: &Record,
    catalog: &Catalog,
    json: bool,
) -> Result<(), Error> {
    let mut line = Line {
        kind: kind_name(record.kind()),
        commit_lsn: record.commit_lsn,
        ordinal: record.ordinal,
        lsn: record.start_lsn(),
        relation: record.relation().map(|oid| relation_name(catalog, oid)),
        fields: Map::new(),
    };
    if record.kind().is_some_and(|kind| !kind.is_aux()) {
        match decode(record.payload(), Framing::Plain) {
            Ok(message) => describe(&message, catalog, &mut line.fields),
            Err(error) => add(&mut line.fields, "undecodable", error.to_string()),
        }
    } else if record.kind() == Some(RecordKind::Publications) {
        let names = catalog
            .publications()
            .iter()
            .map(|publication| publication.name.clone());
        add(&mut line.fields, "publications", names.collect::<Vec<_>>());
    }
    if json {
        return output::json_line(out, &line);
    }
    let ordinal = line
        .ordinal
        .map_or_else(String::new, |ordinal| format!("#{ordinal}"));
    let fields = Value::Object(line.fields).to_string();
    let relation = line.relation.unwrap_or_default();
    Ok(writeln!(
        out,
        "{} {ordinal:<6} {:<18} {relation} {fields}",
        line.commit_lsn, line.kind
    )?)
}

const fn kind_name(kind: Option<RecordKind>) -> &'static str {
    match kind {
        Some(RecordKind::Begin) => "begin",
        Some(RecordKind::Commit) => "commit",
        Some(RecordKind::Insert) => "insert",
        Some(RecordKind::Update) => "update",
        Some(RecordKind::Delete) => "delete",
        Some(RecordKind::Truncate) => "truncate",
        Some(RecordKind::Message) => "message",
        Some(RecordKind::Relation) => "relation",
        Some(RecordKind::Type) => "type",
        Some(RecordKind::Origin) => "origin",
        Some(RecordKind::BeginPrepare) => "begin prepare",
        Some(RecordKind::Prepare) => "prepare",
        Some(RecordKind::CommitPrepared) => "commit prepared",
        Some(RecordKind::RollbackPrepared) => "rollback prepared",
        Some(RecordKind::Publications) => "publications",
        Some(RecordKind::ServerParameters) => "server parameters",
        Some(RecordKind::Prepared) => "prepared",
        None => "unknown",
    }
}

fn relation_name(catalog: &Catalog, oid: Oid) -> String {
    catalog.relation(oid).map_or_else(
        || format!("relation {oid}"),
        |relation| format!("{}.{}", relation.namespace, relation.name),
    )
}

fn add(fields: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    fields.insert(name.to_owned(), value.into());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn describe(message: &Message<'_>, catalog: &Catalog, fields: &mut Map<String, Value>) {
    match message {
        Message::Begin(begin) => {
            add(fields, "xid", begin.xid.0);
            add(
                fields,
                "commit_time_unix_us",
                begin.commit_time.unix_micros(),
            );
        }
        Message::Commit(commit) => add(fields, "end_lsn", commit.end_lsn.to_string()),
        Message::Origin(origin) => {
            add(fields, "name", text(origin.name));
            add(fields, "origin_lsn", origin.origin_lsn.to_string());
        }
        Message::Relation(relation) => {
            add(
                fields,
                "name",
                format!("{}.{}", text(relation.namespace), text(relation.name)),
            );
            let columns = relation.columns.iter().map(|column| text(column.name));
            add(fields, "columns", columns.collect::<Vec<_>>());
            add(
                fields,
                "replica_identity",
                char::from(relation.replica_identity as u8).to_string(),
            );
        }
        Message::Type(known) => {
            add(fields, "oid", known.oid.0);
            add(
                fields,
                "name",
                format!("{}.{}", text(known.namespace), text(known.name)),
            );
        }
        Message::Change(change) => describe_change(change, catalog, fields),
        Message::Truncate(truncate) => {
            let names = truncate.relations().map(|oid| relation_name(catalog, oid));
            add(fields, "relations", names.collect::<Vec<_>>());
            add(fields, "cascade", truncate.cascade);
            add(fields, "restart_identity", truncate.restart_identity);
        }
        Message::LogicalMessage(message) => {
            add(fields, "transactional", message.transactional);
            add(fields, "prefix", text(message.prefix));
            add(fields, "content", text(message.content));
        }
        // The decoder stores no others.
        _ => {}
    }
}

fn describe_change(change: &Change<'_>, catalog: &Catalog, fields: &mut Map<String, Value>) {
    let (relation, old, new) = match change {
        Change::Insert { relation, new, .. } => (relation, None, Some(new)),
        Change::Update {
            relation, old, new, ..
        } => (relation, old.as_ref(), Some(new)),
        Change::Delete { relation, old, .. } => (relation, Some(old), None),
    };
    match old {
        Some(OldTuple::Key(tuple)) => add(fields, "key", row(catalog, *relation, tuple)),
        Some(OldTuple::Full(tuple)) => add(fields, "old", row(catalog, *relation, tuple)),
        None => {}
    }
    if let Some(tuple) = new {
        add(fields, "new", row(catalog, *relation, tuple));
    }
}

/// A row by column names. A TOASTed value that an update left alone is not there.
fn row(catalog: &Catalog, relation: Oid, tuple: &Tuple<'_>) -> Map<String, Value> {
    let columns = catalog
        .relation(relation)
        .map(|relation| relation.columns.as_slice())
        .unwrap_or_default();
    let mut map = Map::new();
    for (index, value) in tuple.columns().enumerate() {
        let name = columns.get(index).map_or_else(
            || format!("column {}", index + 1),
            |column| column.name.clone(),
        );
        match value {
            ColumnValue::Null => add(&mut map, &name, Value::Null),
            ColumnValue::UnchangedToast => {}
            ColumnValue::Text(bytes) => add(&mut map, &name, text(bytes)),
            ColumnValue::Binary(bytes) => add(&mut map, &name, output::hex(bytes)),
        }
    }
    map
}
