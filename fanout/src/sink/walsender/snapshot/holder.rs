//! The transaction at the source that takes a snapshot and keeps it for others to import.

use pg_client::{CancelToken, ConnectOptions, Connection, Error, QueryResult};
use pg_proto::Lsn;
use pg_proto::wire::{ErrorFields, sqlstate};

use super::super::upstream::{not_connected, with_causes};
use super::super::version::ServerVersion;
use crate::snapshot::Visibility;

/// Where errors come from that the client has not asked for itself.
const TAKING: &str = "taking a snapshot at the source";

const BEGIN: &str = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ";
/// Three statements, one after the other: the first takes the snapshot and reads the insert position behind it, the last
/// reads the source's next transaction id (of which `age` is the distance from the first normal one) behind that.
const LOOK: &str = "\
    SELECT pg_catalog.pg_current_snapshot() AS snapshot, \
    CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_insert_lsn() END AS lsn; \
    SELECT pg_catalog.age('3'::pg_catalog.xid) AS age";
const FIRST_NORMAL_XID: u32 = 3;

/// What was seen of the source at a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) visibility: Visibility,
    /// Read after the snapshot was taken.
    pub(super) insert_lsn: Lsn,
    /// Read after the position.
    pub(super) next_xid: u64,
}

/// A connection with the client's own rights, with a transaction that reads.
#[derive(Debug)]
pub(super) struct Holder {
    connection: Connection,
}

impl Holder {
    /// Connects as `client` does, with `replication` for commands of a walsender. Time limits that are meant for the
    /// client's statements do not end a snapshot that others still need.
    pub(super) async fn connect(
        client: &ConnectOptions,
        version: ServerVersion,
        replication: bool,
    ) -> Result<Self, ErrorFields> {
        let mut options = client.clone();
        options.replication = replication;
        let limits: &[&str] = if version.has_transaction_timeout() {
            &["transaction_timeout"]
        } else {
            &[]
        };
        let limits = limits.iter().chain(&[
            "idle_in_transaction_session_timeout",
            "idle_session_timeout",
            "statement_timeout",
            "lock_timeout",
        ]);
        let unlimited = limits.map(|name| ((*name).to_owned(), "0".to_owned()));
        options.parameters.extend(unlimited);
        let connecting = Box::pin(Connection::connect(&options)).await;
        let connection = connecting.map_err(|error| not_connected(&error, &options))?;
        Ok(Self { connection })
    }

    /// What ends a statement that takes long.
    pub(super) fn cancel_token(&self) -> CancelToken {
        self.connection.cancel_token()
    }

    /// Takes a snapshot in place of the one it has. `None`: the source is a standby, which has no insert position.
    pub(super) async fn look(&mut self) -> Result<Option<Look>, ErrorFields> {
        let sql = if self.is_idle() {
            format!("{BEGIN}; {LOOK}")
        } else {
            format!("ROLLBACK; {BEGIN}; {LOOK}")
        };
        let results = self.run(&sql).await?;
        let value = |name| results.iter().find_map(|result| result.value(0, name));
        let Some(insert_lsn) = value("lsn") else {
            return Ok(None);
        };
        let look = parse_look(value("snapshot"), insert_lsn, value("age"));
        look.map(Some).ok_or_else(|| not_understood(&results))
    }

    /// Whether the source is a standby.
    pub(super) async fn is_at_standby(&mut self) -> Result<bool, ErrorFields> {
        let results = self
            .run("SELECT pg_catalog.pg_is_in_recovery() AS standby")
            .await?;
        let value = results.iter().find_map(|result| result.value(0, "standby"));
        Ok(value == Some("t"))
    }

    /// Has the source make a snapshot that fits a position of its WAL, by a slot that is dropped before the transaction
    /// ends; the position, and the snapshot's name.
    pub(super) async fn make_by_slot(&mut self, slot: &str) -> Result<(Lsn, String), ErrorFields> {
        self.run(BEGIN).await?;
        let create =
            format!("CREATE_REPLICATION_SLOT \"{slot}\" TEMPORARY LOGICAL pgoutput USE_SNAPSHOT");
        let created = self.run(&create).await?;
        let point = created
            .iter()
            .find_map(|result| result.value(0, "consistent_point"));
        let lsn = point.and_then(|point| point.parse().ok());
        let lsn = lsn.ok_or_else(|| not_understood(&created))?;
        let name = self.export().await?;
        self.run(&format!("DROP_REPLICATION_SLOT \"{slot}\""))
            .await?;
        Ok((lsn, name))
    }

    /// The snapshot's name for other transactions.
    pub(super) async fn export(&mut self) -> Result<String, ErrorFields> {
        let results = self
            .run("SELECT pg_catalog.pg_export_snapshot() AS name")
            .await?;
        let name = results.iter().find_map(|result| result.value(0, "name"));
        name.map(str::to_owned)
            .ok_or_else(|| not_understood(&results))
    }

    /// Ends the transaction, so that nobody can import its snapshot when this returns, and the connection.
    pub(super) async fn close(mut self) {
        let ended = match self.connection.simple_query("ROLLBACK").await {
            Ok(_) => self.connection.close().await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a snapshot's connection to the source did not end in order");
        }
    }

    fn is_idle(&self) -> bool {
        self.connection.transaction_status() == pg_client::TransactionStatus::Idle
    }

    async fn run(&mut self, sql: &str) -> Result<Vec<QueryResult>, ErrorFields> {
        let results = self.connection.simple_query(sql).await;
        results.map_err(|error| failed(&error))
    }
}

fn parse_look(snapshot: Option<&str>, insert_lsn: &str, age: Option<&str>) -> Option<Look> {
    let visibility: Visibility = snapshot?.parse().ok()?;
    let age: i32 = age?.parse().ok()?;
    let next = FIRST_NORMAL_XID.wrapping_add(age.cast_unsigned());
    Some(Look {
        next_xid: visibility.widen_next(next),
        visibility,
        insert_lsn: insert_lsn.parse().ok()?,
    })
}

/// What the source itself said is passed on; the connection is not the client's, so its end is not fatal.
fn failed(error: &Error) -> ErrorFields {
    let report = match error.server() {
        Some(said) => {
            let report = ErrorFields::error(said.code(), said.message());
            let report = match said.detail() {
                Some(detail) => report.with_detail(detail),
                None => report,
            };
            match said.hint() {
                Some(hint) => report.with_hint(hint),
                None => report,
            }
        }
        None => ErrorFields::error(
            sqlstate::CONNECTION_FAILURE,
            "the connection to the source was lost",
        )
        .with_detail(with_causes(error))
        .with_hint("Try again."),
    };
    report.with_context(TAKING)
}

fn not_understood(results: &[QueryResult]) -> ErrorFields {
    let message = "the source's answer can't be understood";
    ErrorFields::error(sqlstate::INTERNAL_ERROR, message)
        .with_detail(format!("{results:?}").chars().take(500).collect::<String>())
        .with_context(TAKING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_tells_the_next_transaction_id() {
        let look = parse_look(Some("740:745:740"), "0/16B3740", Some("743")).unwrap();
        assert_eq!(look.next_xid, 746);
        assert_eq!(look.insert_lsn, Lsn(0x016B_3740));
        // More than 2^31 ids after the first one, and then in the next epoch.
        let look = parse_look(Some("4294967290:4294967290:"), "1/0", Some("-9")).unwrap();
        assert_eq!(look.next_xid, 4_294_967_290);
        let look = parse_look(Some("4294967290:4294967290:"), "1/0", Some("0")).unwrap();
        assert_eq!(look.next_xid, 4_294_967_299);
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_none() {
        assert_eq!(parse_look(None, "1/0", Some("1")), None);
        assert_eq!(parse_look(Some("1:2:"), "x", Some("1")), None);
        assert_eq!(parse_look(Some("1:2:"), "1/0", None), None);
    }
}
