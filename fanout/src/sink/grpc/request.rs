//! What a Subscribe request asks for.

use pg_proto::{Lsn, PgTimestamp};
use proto::v1::subscribe_request::Start;
use proto::v1::{RowFilter, SubscribeRequest, TableColumns};
use tonic::Status;

use super::row_filters::Expressions;
use crate::emit::{EmitOptions, MissingPublication};
use crate::selection::{Publications, SelectionSpec, TableName};

/// Most tables or publications that a request may name.
const NAMES_MAX: usize = 10_000;

/// A request, checked as far as it can be without the log.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) start: From,
    /// Without row filters.
    pub(super) selection: SelectionSpec,
    pub(super) row_filters: Expressions,
    /// Without the start.
    pub(super) emit: EmitOptions,
    pub(super) batch_bytes: u32,
    pub(super) raw: bool,
}

/// Where to begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum From {
    Head,
    Oldest,
    Lsn(Lsn),
    Time(PgTimestamp),
    Slot(String),
}

impl TryFrom<SubscribeRequest> for Wanted {
    type Error = Status;

    fn try_from(request: SubscribeRequest) -> Result<Self, Status> {
        if request.tables.len() > NAMES_MAX || request.publications.len() > NAMES_MAX {
            let message = format!("more than {NAMES_MAX} tables or publications");
            return Err(Status::invalid_argument(message));
        }
        let tables: Vec<TableName> = request.tables.into_iter().map(Into::into).collect();
        if let Some(table) = tables.iter().find(|table| table.name.is_empty()) {
            let message = format!("\"{table}\" names no table: give schema and name");
            return Err(Status::invalid_argument(message));
        }
        let columns = columns(request.columns)?;
        let row_filters = row_filters(request.row_filters)?;
        let publications = if request.publications.is_empty() {
            Publications::Everything
        } else {
            Publications::Named(request.publications)
        };
        let options = request.options.unwrap_or_default();
        Ok(Self {
            start: start(request.start)?,
            selection: SelectionSpec {
                publications,
                tables,
                columns,
                ..SelectionSpec::default()
            },
            row_filters,
            emit: EmitOptions {
                end: (options.end_lsn != 0).then_some(Lsn(options.end_lsn)),
                messages: options.messages,
                local_origin_only: options.local_origin_only,
                missing_publication: MissingPublication::Skip,
                ..EmitOptions::default()
            },
            batch_bytes: options.batch_bytes,
            raw: options.raw,
        })
    }
}

fn columns(wanted: Vec<TableColumns>) -> Result<Vec<(TableName, Vec<String>)>, Status> {
    let names: usize = wanted.iter().map(|one| one.columns.len().max(1)).sum();
    if names > NAMES_MAX {
        let message = format!("more than {NAMES_MAX} columns");
        return Err(Status::invalid_argument(message));
    }
    let mut columns: Vec<(TableName, Vec<String>)> = Vec::with_capacity(wanted.len());
    for one in wanted {
        let table = TableName::from(one.table.unwrap_or_default());
        let problem = if table.name.is_empty() {
            "names no table: give schema and name"
        } else if one.columns.is_empty() {
            "has a list of no columns"
        } else if columns.iter().any(|(known, _)| *known == table) {
            "has two lists of columns"
        } else {
            columns.push((table, one.columns));
            continue;
        };
        let message = format!("\"{table}\" {problem}");
        return Err(Status::invalid_argument(message));
    }
    Ok(columns)
}

fn row_filters(wanted: Vec<RowFilter>) -> Result<Expressions, Status> {
    let mut filters = Expressions::default();
    for one in wanted {
        let table = TableName::from(one.table.unwrap_or_default());
        let added = filters.add(table, one.expression);
        added.map_err(Status::invalid_argument)?;
    }
    Ok(filters)
}

fn start(start: Option<Start>) -> Result<From, Status> {
    Ok(match start {
        None => From::Head,
        Some(Start::StartLsn(0)) => From::Oldest,
        Some(Start::StartLsn(lsn)) => From::Lsn(Lsn(lsn)),
        Some(Start::StartTime(micros)) => From::Time(PgTimestamp::from_unix_micros(micros)),
        Some(Start::Slot(slot)) if slot.is_empty() => {
            return Err(Status::invalid_argument("the slot's name is empty"));
        }
        Some(Start::Slot(slot)) => From::Slot(slot),
    })
}
