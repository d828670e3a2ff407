//! PostgreSQL's evaluation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pg_client::{ConnectOptions, Connection, ErrorFields, Password};
use pg_proto::wire::BackendMessage;
use row_filter::FilterError;
use service::config;
use tokio::sync::Semaphore;

use super::asks::Group;
use super::sql::{Gone, Names, TypeName, statement};
use super::{Asks, Counts, Verdicts};

/// Connections to the source that a fanout has for this at most.
const CONNECTIONS_MAX: usize = 2;

/// Pauses between attempts while the source is away, and how many.
const PAUSE: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 20;

/// Values are read as the decoder has had them printed; nothing but the filter's own functions is found.
const SETTINGS: [(&str, &str); 10] = [
    ("client_encoding", "UTF8"),
    ("datestyle", "ISO"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("standard_conforming_strings", "on"),
    ("search_path", ""),
    ("default_transaction_read_only", "on"),
    ("max_parallel_workers_per_gather", "0"),
];

/// PostgreSQL has not judged.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The source can't be asked. SQLSTATE 08006.
    #[error("a row filter has to be evaluated by the source, which does not answer: {0}")]
    Away(String),
    /// What a column needs is not there any more. SQLSTATE 42704.
    #[error("a row filter of the log needs {what} {oid}, which the source no longer has")]
    Gone {
        /// "type" or "collation".
        what: &'static str,
        /// Its identifier.
        oid: u32,
    },
}

impl EvaluateError {
    /// The SQLSTATE.
    #[must_use]
    pub const fn sqlstate(&self) -> &'static str {
        match self {
            Self::Away(_) => "08006",
            Self::Gone { .. } => "42704",
        }
    }
}

/// A few connections.
#[derive(Debug)]
pub(super) struct Evaluator {
    source: Option<config::Source>,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
    types: Mutex<HashMap<u32, TypeName>>,
    collations: Mutex<HashMap<u32, String>>,
    rows: AtomicU64,
    batches: AtomicU64,
}

/// Why one attempt did not succeed.
enum Failure {
    /// Worth another.
    Away(String),
    Final(EvaluateError),
}

impl Evaluator {
    /// Without a source nothing can be asked.
    pub(super) fn new(source: Option<config::Source>) -> Self {
        Self {
            source,
            permits: Semaphore::new(CONNECTIONS_MAX),
            idle: Mutex::default(),
            types: Mutex::default(),
            collations: Mutex::default(),
            rows: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        }
    }

    pub(super) fn count(&self, counts: &mut Counts) {
        counts.postgres_rows = self.rows.load(Ordering::Relaxed);
        counts.postgres_batches = self.batches.load(Ordering::Relaxed);
    }

    pub(super) async fn resolve(&self, asks: &Asks) -> Result<Verdicts, EvaluateError> {
        let mut verdicts = Verdicts::default();
        for group in &asks.groups {
            let mut attempt = 1;
            loop {
                match self.group(group, &mut verdicts).await {
                    Ok(()) => break,
                    Err(Failure::Final(error)) => return Err(error),
                    Err(Failure::Away(reason)) if attempt == ATTEMPTS => {
                        return Err(EvaluateError::Away(reason));
                    }
                    Err(Failure::Away(reason)) => {
                        tracing::warn!(reason, attempt, "a row filter waits for the source");
                        tokio::time::sleep(PAUSE).await;
                        attempt += 1;
                    }
                }
            }
        }
        Ok(verdicts)
    }

    async fn group(&self, group: &Group, verdicts: &mut Verdicts) -> Result<(), Failure> {
        // Never closed, so a permit is always given.
        let _permit = self.permits.acquire().await.map_err(away)?;
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        self.learn(&mut connection, group).await?;
        let rows = 0..group.keys.len();
        let sql = statement(group, rows, self).map_err(gone)?;
        let (answers, failed) = ask(&mut connection, &sql).await?;
        self.idle.lock().push(connection);
        let count = u64::try_from(answers.len()).unwrap_or(u64::MAX);
        self.rows.fetch_add(count, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        let answers = answers.into_iter().map(Ok);
        // An error belongs to the row behind the last that was answered. What comes after it is never reached.
        let answers = answers.chain(failed.map(Err));
        for (key, verdict) in group.keys.iter().zip(answers) {
            verdicts.set(*key, verdict);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let Some(source) = &self.source else {
            return Err(away("no source is configured"));
        };
        let mut options = ConnectOptions::new(&source.host, source.port, &source.user);
        options.database = Some(source.database.clone());
        options.password = source.password.as_deref().map(Password::from);
        options.sslmode = source.sslmode.into();
        options.sslrootcert.clone_from(&source.sslrootcert);
        options.connect_timeout = Duration::from_millis(source.connect_timeout_ms);
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        options.parameters.extend(settings);
        let name = (
            "application_name".to_owned(),
            "decant row filters".to_owned(),
        );
        options.parameters.push(name);
        Connection::connect(&options).await.map_err(away)
    }

    /// Asks for names that are not known yet.
    async fn learn(&self, connection: &mut Connection, group: &Group) -> Result<(), Failure> {
        let columns = group.filter.needed().iter();
        let columns: Vec<_> = columns
            .filter_map(|at| group.filter.columns.get(*at))
            .collect();
        for column in columns {
            if !self.types.lock().contains_key(&column.type_oid) {
                let sql = format!(
                    "SELECT quote_ident(n.nspname) || '.' || quote_ident(t.typname), \
                            quote_ident(m.nspname) || '.' || quote_ident(a.typname) \
                       FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace \
                            LEFT JOIN pg_type a ON a.oid = t.typarray \
                            LEFT JOIN pg_namespace m ON m.oid = a.typnamespace \
                      WHERE t.oid = {}",
                    column.type_oid
                );
                if let Some(mut row) = first_row(connection, &sql).await? {
                    let array = row.pop().flatten();
                    let name = row.pop().flatten().unwrap_or_default();
                    let known = TypeName { name, array };
                    self.types.lock().insert(column.type_oid, known);
                }
            }
            let oid = column.collation;
            if oid != 0 && !self.collations.lock().contains_key(&oid) {
                let sql = format!(
                    "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname) \
                       FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace \
                      WHERE c.oid = {oid}"
                );
                if let Some(mut row) = first_row(connection, &sql).await? {
                    let name = row.pop().flatten().unwrap_or_default();
                    self.collations.lock().insert(oid, name);
                }
            }
        }
        Ok(())
    }
}

impl Names for Evaluator {
    fn type_name(&self, oid: u32) -> Option<TypeName> {
        self.types.lock().get(&oid).cloned()
    }

    fn collation(&self, oid: u32) -> Option<String> {
        self.collations.lock().get(&oid).cloned()
    }
}

fn away(error: impl std::fmt::Display) -> Failure {
    Failure::Away(error.to_string())
}

const fn gone(gone: Gone) -> Failure {
    let (what, oid) = match gone {
        Gone::Type(oid) => ("type", oid),
        Gone::Collation(oid) => ("collation", oid),
    };
    Failure::Final(EvaluateError::Gone { what, oid })
}

async fn first_row(
    connection: &mut Connection,
    sql: &str,
) -> Result<Option<Vec<Option<String>>>, Failure> {
    let results = connection.simple_query(sql).await.map_err(away)?;
    let rows = results.into_iter().flat_map(|result| result.rows);
    Ok(rows.into_iter().next())
}

/// The rows that were answered, and the error that came instead of the next.
async fn ask(
    connection: &mut Connection,
    sql: &[u8],
) -> Result<(Vec<bool>, Option<FilterError>), Failure> {
    connection.send_query_raw(sql).await.map_err(away)?;
    let mut answers = Vec::new();
    let mut failed = None;
    loop {
        let frame = connection.next_frame().await.map_err(away)?;
        match BackendMessage::decode(frame.as_frame()).map_err(away)? {
            BackendMessage::DataRow(values) => {
                answers.push(values.first() == Some(&Some(&b"t"[..])));
            }
            BackendMessage::ErrorResponse(error) => failed = Some(error),
            BackendMessage::ReadyForQuery(_) => break,
            _ => {}
        }
    }
    let failed = failed.map(|error| row_error(&error)).transpose()?;
    Ok((answers, failed))
}

/// An error of the expression; one of the connection or the server is none.
fn row_error(error: &ErrorFields) -> Result<FilterError, Failure> {
    let sqlstate = error.code();
    let elsewhere = ["08", "25", "40", "53", "55", "57", "58"];
    if elsewhere.iter().any(|class| sqlstate.starts_with(class)) {
        return Err(Failure::Away(error.to_string()));
    }
    Ok(FilterError {
        sqlstate: sqlstate.to_owned().into(),
        message: error.message().to_owned().into(),
    })
}
