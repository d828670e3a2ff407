//! `decctl tail`: changes as they arrive.

use std::collections::HashMap;
use std::io::{self, StdoutLock, Write};

use pg_proto::Lsn;
use proto::v1::event::Kind;
use proto::v1::subscribe_request::Start;
use proto::v1::subscribe_response::Kind as ResponseKind;
use proto::v1::{
    AcknowledgeRequest, Batch, ChangeKind, Event, Relation, Row, SubscribeOptions,
    SubscribeRequest, TableName, TransactionPart, value,
};
use serde::Serialize;
use serde_json::{Map, Value};
use service::config::Config;

use super::table_name;
use crate::cli::TailArgs;
use crate::error::Error;
use crate::{output, rpc};

/// Runs `decctl tail` until the stream ends or the reader of our output goes away.
pub(crate) async fn run(config: &Config, args: &TailArgs) -> Result<(), Error> {
    let mut client = rpc::fanout(config, args.fanout.as_deref(), &args.access).await?;
    let mut stream = client.subscribe(request(args)?).await?.into_inner();
    let mut printer = Printer {
        json: args.output.json,
        ..Printer::default()
    };
    while let Some(response) = stream.message().await? {
        let Some(ResponseKind::Batch(batch)) = response.kind else {
            continue;
        };
        let end = printer.batch(&batch)?;
        if let (Some(slot), Some(lsn)) = (&args.slot, end) {
            client
                .acknowledge(AcknowledgeRequest {
                    slot: slot.clone(),
                    lsn: lsn.0,
                })
                .await?;
        }
    }
    Ok(())
}

fn request(args: &TailArgs) -> Result<SubscribeRequest, Error> {
    let tables = args
        .tables
        .iter()
        .map(|text| table_name::parse(text).map(|(schema, name)| TableName { schema, name }));
    let start = match (&args.slot, args.from) {
        (Some(slot), _) => Some(Start::Slot(slot.clone())),
        (None, Some(lsn)) => Some(Start::StartLsn(lsn.0)),
        (None, None) => None,
    };
    Ok(SubscribeRequest {
        start,
        tables: tables.collect::<Result<_, _>>()?,
        publications: args.publications.clone(),
        options: Some(SubscribeOptions {
            messages: args.messages,
            end_lsn: args.until.map_or(0, |lsn| lsn.0),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// One change as a JSON line.
#[derive(Serialize)]
struct ChangeLine<'a> {
    commit_lsn: Lsn,
    ordinal: u64,
    lsn: Lsn,
    xid: u32,
    commit_time_unix_us: i64,
    kind: &'static str,
    schema: &'a str,
    table: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<Map<String, Value>>,
}

/// A logical message as a JSON line.
#[derive(Serialize)]
struct MessageLine<'a> {
    lsn: Lsn,
    kind: &'static str,
    transactional: bool,
    prefix: &'a str,
    content: String,
}

/// Prints events, with the schemas seen so far.
#[derive(Default)]
struct Printer {
    json: bool,
    relations: HashMap<u32, Relation>,
    transaction: proto::v1::Begin,
}

impl Printer {
    /// Prints a batch; gives the end of the last transaction that ended in it.
    fn batch(&mut self, batch: &Batch) -> Result<Option<Lsn>, Error> {
        let mut out = io::stdout().lock();
        let mut end = None;
        for part in &batch.parts {
            self.part(&mut out, part)?;
            end = part
                .commit
                .as_ref()
                .map(|commit| Lsn(commit.end_lsn))
                .or(end);
        }
        out.flush()?;
        Ok(end)
    }

    fn part(&mut self, out: &mut StdoutLock<'_>, part: &TransactionPart) -> Result<(), Error> {
        if let Some(begin) = &part.begin {
            self.transaction = begin.clone();
            if !self.json {
                writeln!(out, "BEGIN {} xid {}", Lsn(begin.commit_lsn), begin.xid)?;
            }
        }
        for event in &part.events {
            self.event(out, event)?;
        }
        if let (Some(commit), false) = (&part.commit, self.json) {
            writeln!(out, "COMMIT {}", Lsn(commit.end_lsn))?;
        }
        Ok(())
    }

    fn event(&mut self, out: &mut StdoutLock<'_>, event: &Event) -> Result<(), Error> {
        match &event.kind {
            Some(Kind::Relation(relation)) => {
                self.relations.insert(relation.oid, relation.clone());
                Ok(())
            }
            Some(Kind::Change(change)) => self.change(out, change),
            Some(Kind::Truncate(truncate)) => self.truncate(out, truncate),
            Some(Kind::Message(message)) => self.message(out, message),
            None => Ok(()),
        }
    }

    fn change(&self, out: &mut StdoutLock<'_>, change: &proto::v1::Change) -> Result<(), Error> {
        let unknown = Relation::default();
        let relation = self.relations.get(&change.relation_oid).unwrap_or(&unknown);
        let kind = match change.kind() {
            ChangeKind::Insert => "insert",
            ChangeKind::Update => "update",
            ChangeKind::Delete => "delete",
            ChangeKind::Unspecified => "unknown",
        };
        let new = change.new.as_ref().map(|row| columns(relation, row));
        let old = change.old.as_ref().map(|row| columns(relation, row));
        if !self.json {
            let show = |row: Option<Map<String, Value>>| {
                row.map(Value::Object).unwrap_or_default().to_string()
            };
            let row = match (old, new) {
                (Some(old), Some(new)) => format!("{} -> {}", show(Some(old)), show(Some(new))),
                (old, new) => show(new.or(old)),
            };
            return Ok(writeln!(
                out,
                "  {kind} {}.{} {row}",
                relation.schema, relation.name
            )?);
        }
        output::json_line(
            out,
            &ChangeLine {
                commit_lsn: Lsn(self.transaction.commit_lsn),
                ordinal: change.ordinal,
                lsn: Lsn(change.lsn),
                xid: self.transaction.xid,
                commit_time_unix_us: self.transaction.commit_time,
                kind,
                schema: &relation.schema,
                table: &relation.name,
                new,
                old,
            },
        )
    }

    fn truncate(
        &self,
        out: &mut StdoutLock<'_>,
        truncate: &proto::v1::Truncate,
    ) -> Result<(), Error> {
        for oid in &truncate.relation_oids {
            let Some(relation) = self.relations.get(oid) else {
                continue;
            };
            if !self.json {
                writeln!(out, "  truncate {}.{}", relation.schema, relation.name)?;
                continue;
            }
            output::json_line(
                out,
                &ChangeLine {
                    commit_lsn: Lsn(self.transaction.commit_lsn),
                    ordinal: truncate.ordinal,
                    lsn: Lsn(truncate.lsn),
                    xid: self.transaction.xid,
                    commit_time_unix_us: self.transaction.commit_time,
                    kind: "truncate",
                    schema: &relation.schema,
                    table: &relation.name,
                    new: None,
                    old: None,
                },
            )?;
        }
        Ok(())
    }

    fn message(
        &self,
        out: &mut StdoutLock<'_>,
        message: &proto::v1::LogicalMessage,
    ) -> Result<(), Error> {
        let content = String::from_utf8_lossy(&message.content).into_owned();
        if !self.json {
            return Ok(writeln!(out, "  message {} {content:?}", message.prefix)?);
        }
        output::json_line(
            out,
            &MessageLine {
                lsn: Lsn(message.lsn),
                kind: "message",
                transactional: message.transactional,
                prefix: &message.prefix,
                content,
            },
        )
    }
}

/// A row by column names. A TOASTed value that an update left alone is not there, as its value is not known; null is
/// null.
fn columns(relation: &Relation, row: &Row) -> Map<String, Value> {
    let names = relation.columns.iter().map(|column| column.name.as_str());
    let names = names.chain(std::iter::repeat("?"));
    let mut map = Map::new();
    for (name, value) in names.zip(&row.values) {
        let shown = match &value.kind {
            Some(value::Kind::Text(text)) => {
                Value::String(String::from_utf8_lossy(text).into_owned())
            }
            Some(value::Kind::Binary(bytes)) => Value::String(output::hex(bytes)),
            Some(value::Kind::UnchangedToast(_)) => continue,
            Some(value::Kind::Null(_)) | None => Value::Null,
        };
        map.insert(name.to_owned(), shown);
    }
    map
}
