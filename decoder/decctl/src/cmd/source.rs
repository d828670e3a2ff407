//! Plain SQL at the source.

use pg_client::{CancelToken, Connection, QueryResult};
pub(super) use pg_proto::quote::{identifier, literal};
use service::config::Config;

use crate::cmd::table_name;
use crate::error::Error;

/// A row of text values.
pub(super) struct Row(Vec<Option<String>>);

impl Row {
    /// A column's text; empty for null.
    pub(super) fn text(&self, column: usize) -> String {
        self.0.get(column).cloned().flatten().unwrap_or_default()
    }

    /// A column's number; 0 for null.
    pub(super) fn number(&self, column: usize) -> u32 {
        self.text(column).parse().unwrap_or(0)
    }

    /// A column's truth value; false for null.
    pub(super) fn flag(&self, column: usize) -> bool {
        self.text(column) == "t"
    }
}

/// A connection to the server that can be written to, where also a snapshot can be told from what runs beside it: on a
/// standby `pg_current_snapshot()` names no transaction that is in progress.
pub(super) async fn writable_connection(config: &Config) -> Result<Connection, Error> {
    let options = config.source.connect_options("decctl");
    let connecting = Connection::connect(&options).await;
    let mut source = connecting.map_err(Error::Connect)?;
    let standby = source
        .query_one_value("SELECT pg_catalog.pg_is_in_recovery()")
        .await?;
    if standby.as_deref() != Some("t") {
        return Ok(source);
    }
    let options = config.source.primary_options("decctl");
    let options = options.ok_or(Error::PrimaryUnknown)?;
    Connection::connect(&options).await.map_err(Error::Primary)
}

/// A connection to the source database.
pub(super) struct Source(Connection);

impl Source {
    pub(super) async fn connect(config: &Config) -> Result<Self, Error> {
        let options = config.source.connect_options("decctl");
        Ok(Self(
            Connection::connect(&options)
                .await
                .map_err(Error::Connect)?,
        ))
    }

    /// The server that can be written to: the source, or its primary if it is a standby.
    pub(super) async fn connect_writable(config: &Config) -> Result<Self, Error> {
        Ok(Self(writable_connection(config).await?))
    }

    /// The primary of a source that is a standby; `None` if it is not configured.
    pub(super) async fn connect_primary(config: &Config) -> Result<Option<Self>, Error> {
        let Some(options) = config.source.primary_options("decctl") else {
            return Ok(None);
        };
        let connection = Connection::connect(&options).await;
        Ok(Some(Self(connection.map_err(Error::Primary)?)))
    }

    /// What ends a statement that takes long.
    pub(super) fn cancel_token(&self) -> CancelToken {
        self.0.cancel_token()
    }

    /// The same as a walsender, which also answers commands of the replication protocol.
    pub(super) async fn connect_for_replication(config: &Config) -> Result<Self, Error> {
        let mut options = config.source.connect_options("decctl");
        options.replication = true;
        Ok(Self(
            Connection::connect(&options)
                .await
                .map_err(Error::Connect)?,
        ))
    }

    /// The rows of one query.
    pub(super) async fn rows(&mut self, sql: &str) -> Result<Vec<Row>, Error> {
        let results = self.0.simple_query(sql).await?;
        let rows = results
            .into_iter()
            .flat_map(|QueryResult { rows, .. }| rows);
        Ok(rows.map(Row).collect())
    }

    /// The first row of one query, or an empty one.
    pub(super) async fn row(&mut self, sql: &str) -> Result<Row, Error> {
        Ok(self
            .rows(sql)
            .await?
            .into_iter()
            .next()
            .unwrap_or(Row(Vec::new())))
    }

    /// Statements without results.
    pub(super) async fn execute(&mut self, sql: &str) -> Result<(), Error> {
        self.0.simple_query(sql).await?;
        Ok(())
    }

    /// Table names of the command line as PostgreSQL writes them, quoted where that is needed.
    pub(super) async fn canonical_names(&mut self, names: &[String]) -> Result<Vec<String>, Error> {
        let mut canonical = Vec::with_capacity(names.len());
        for name in names {
            let (schema, table) = table_name::parse(name)?;
            let sql = format!(
                "SELECT pg_catalog.format('%I.%I', {}, {})",
                literal(&schema),
                literal(&table)
            );
            canonical.push(self.row(&sql).await?.text(0));
        }
        Ok(canonical)
    }
}
