//! What the source is asked, over any connection to it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use pg_client::Connection;
use pg_proto::Lsn;
use storage_format::catalog::PublicationState;

use super::error::CatalogError;
use super::message::{CatalogMessage, parse_state};
use super::recogniser::{PREFIX, Recogniser};
use super::secret::Secret;
use super::sql::state_query;
use crate::registry::Registry;
use crate::state::{CatalogMode, DecoderState, SourceStatus};

/// Longest time for one statement. None of them waits for others' transactions longer than a moment.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks what is installed, in a form that raises no error for a role without rights.
const PROBE: &str = "
SELECT pg_catalog.current_setting('server_version_num') AS version,
       pg_catalog.pg_is_in_recovery() AS standby,
       (SELECT count(*) FROM pg_catalog.pg_event_trigger e
         WHERE e.evtname IN ('decant_ddl_command_end', 'decant_sql_drop')
           AND e.evtenabled IN ('A', 'O')) = 2 AS triggers,
       EXISTS (SELECT FROM pg_catalog.pg_namespace n
                 JOIN pg_catalog.pg_proc p ON p.pronamespace = n.oid AND p.proname = 'emit_catalog'
                 JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = 'secret'
                WHERE n.nspname = 'decant'
                  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
                  AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
                  AND pg_catalog.has_table_privilege(c.oid, 'SELECT')) AS allowed,
       EXISTS (SELECT FROM pg_catalog.pg_namespace n
                 JOIN pg_catalog.pg_proc p ON p.pronamespace = n.oid AND p.proname = 'describe'
                WHERE n.nspname = 'decant'
                  AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')) AS describes";

/// What is installed at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Installed {
    pub(super) version_num: u32,
    pub(super) standby: bool,
    pub(super) mode: CatalogMode,
    /// The triggers are there, but the role may not read their secret.
    pub(super) right_missing: bool,
    /// Relations of Decant's own publications can be had described with every change.
    pub(super) describes: bool,
}

/// Prepares for the messages of a stream that is about to start on this connection's server: finds out how changes of
/// publications are reported there, and learns the secret that proves the reports.
pub async fn prepare(
    connection: &mut Connection,
    registry: &Arc<Registry>,
    state: &DecoderState,
    recogniser: &Recogniser,
) -> Result<(), CatalogError> {
    inspect(connection, registry, state, recogniser)
        .await
        .map(|_| ())
}

pub(super) async fn inspect(
    connection: &mut Connection,
    registry: &Arc<Registry>,
    state: &DecoderState,
    recogniser: &Recogniser,
) -> Result<Installed, CatalogError> {
    let known = recogniser.secrets();
    for older in registry.secrets()?.into_iter().rev() {
        if !known.contains(&older) {
            recogniser.trust(older);
        }
    }
    let installed = probe(connection).await?;
    let secret = match installed.mode {
        CatalogMode::Triggers => Some(read_secret(connection).await?),
        _ if recogniser.secrets().is_empty() => Some(Secret::random().ok_or(CatalogError::Random)?),
        _ => None,
    };
    if let Some(secret) = secret {
        recogniser.trust(secret);
    }
    let secrets = recogniser.secrets();
    if secrets != known {
        // Before a message with it can be written: it must be known when that is read after a restart.
        let registry = Arc::clone(registry);
        tokio::task::spawn_blocking(move || registry.store_secrets(&secrets)).await??;
    }
    state.update_source(|source| source.catalog_mode = installed.mode);
    Ok(installed)
}

async fn probe(connection: &mut Connection) -> Result<Installed, CatalogError> {
    const ACTION: &str = "look for the event triggers";
    let results = run(connection, PROBE, ACTION).await?;
    let value = |column| results.first().and_then(|result| result.value(0, column));
    let version_num = value("version").and_then(|version| version.parse().ok());
    let version_num = version_num.ok_or_else(|| CatalogError::Answer {
        action: ACTION,
        found: format!("version {:?}", value("version")),
    })?;
    let is = |column| value(column) == Some("t");
    let mode = if is("triggers") && is("allowed") {
        CatalogMode::Triggers
    } else {
        CatalogMode::Polling
    };
    Ok(Installed {
        version_num,
        standby: is("standby"),
        mode,
        right_missing: is("triggers") && !is("allowed"),
        describes: mode == CatalogMode::Polling || (is("describes") && !is("standby")),
    })
}

async fn read_secret(connection: &mut Connection) -> Result<Secret, CatalogError> {
    one_value(
        connection,
        "SELECT secret FROM decant.secret",
        "read the secret of the event triggers",
    )
    .await
    .map(Secret::new)
}

/// Whether what is written here reaches a standby that is the source: a primary of the same cluster, on its timeline.
pub(super) async fn check_primary(
    connection: &mut Connection,
    standby: &SourceStatus,
) -> Result<(), CatalogError> {
    const ACTION: &str = "find out whether source.primary_host is the primary of the source";
    const SQL: &str = "\
        SELECT pg_catalog.pg_is_in_recovery() AS standby, s.system_identifier, \
               CASE WHEN NOT pg_catalog.pg_is_in_recovery() \
                    THEN pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()), 8) \
               END AS timeline \
          FROM pg_catalog.pg_control_system() s";
    let results = run(connection, SQL, ACTION).await?;
    let value = |column| results.first().and_then(|result| result.value(0, column));
    if value("standby") != Some("f") {
        return Err(CatalogError::Standby);
    }
    let cluster: Option<u64> = value("system_identifier").and_then(|text| text.parse().ok());
    if cluster != Some(standby.system_identifier) {
        return Err(CatalogError::OtherCluster {
            expected: standby.system_identifier,
            found: cluster.unwrap_or_default(),
        });
    }
    let timeline = value("timeline").and_then(|text| u32::from_str_radix(text, 16).ok());
    if timeline != Some(standby.timeline) {
        return Err(CatalogError::OtherTimeline {
            expected: standby.timeline,
            found: timeline.unwrap_or_default(),
        });
    }
    Ok(())
}

/// The publications as the source sees them now.
pub(super) async fn publications(
    connection: &mut Connection,
    installed: Installed,
) -> Result<PublicationState, CatalogError> {
    let sql = format!(
        "SELECT state::text FROM ({}) AS s (state)",
        state_query(installed.version_num)
    );
    let json = one_value(connection, &sql, "read the publications").await?;
    Ok(parse_state(&json)?)
}

/// The same, on a connection of which nothing is known.
pub(super) async fn publications_of(
    connection: &mut Connection,
) -> Result<PublicationState, CatalogError> {
    let installed = probe(connection).await?;
    publications(connection, installed).await
}

/// Where the slot would begin to decode again; `None` if it is not there.
pub(super) async fn restart_lsn(
    connection: &mut Connection,
    slot: &str,
) -> Result<Option<Lsn>, CatalogError> {
    const ACTION: &str = "ask for the slot's restart position";
    let sql = format!(
        "SELECT s.restart_lsn FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = '{}'",
        slot.replace('\'', "''")
    );
    let results = run(connection, &sql, ACTION).await?;
    let value = results
        .first()
        .and_then(|result| result.value(0, "restart_lsn"));
    let parsed = value.map(str::parse).transpose();
    parsed.map_err(|_| CatalogError::Answer {
        action: ACTION,
        found: format!("{value:?}"),
    })
}

/// Has every state describe the relations of Decant's own publications: by the event triggers, or on this connection.
/// `slot` tells this decoder from others of the same database; slots have plain names.
pub(super) async fn describe(
    connection: &mut Connection,
    installed: Installed,
    slot: &str,
    recogniser: &Recogniser,
) -> Result<(), CatalogError> {
    recogniser.set_describes(installed.describes);
    if !installed.describes {
        return Ok(());
    }
    let relations: Vec<String> = recogniser
        .own_relations()
        .into_iter()
        .map(|oid| oid.to_string())
        .collect();
    let relations = relations.join(" ");
    let slot = slot.replace('\'', "''");
    let sql = if installed.mode == CatalogMode::Triggers {
        format!("SELECT decant.describe('{slot}', '{relations}')")
    } else {
        format!("SELECT pg_catalog.set_config('decant.own_relations', '{relations}', false)")
    };
    run(connection, &sql, "name the relations to describe").await?;
    Ok(())
}

/// Makes the source state its publications in the stream. Returns a position behind the statement; the stream reaches
/// it also if nothing else happens.
pub(super) async fn emit(
    connection: &mut Connection,
    installed: Installed,
    beside_standby: bool,
    recogniser: &Recogniser,
) -> Result<Lsn, CatalogError> {
    if installed.standby {
        return Err(CatalogError::Standby);
    }
    if installed.mode == CatalogMode::Triggers {
        run(
            connection,
            "SELECT decant.emit_catalog()",
            "state the publications",
        )
        .await?;
    } else {
        let emitted = emit_as_polled(connection, installed, recogniser).await;
        if emitted.is_err() {
            // The connection is given up by the caller; this is for one that is not broken.
            let _ = run(connection, "ROLLBACK", "roll back").await;
        }
        emitted?;
    }
    if beside_standby {
        log_running_transactions(connection).await?;
    }
    flush_lsn(connection).await
}

/// A slot at a standby, as one for a subscriber's snapshot, waits for its primary to say which transactions run. That does
/// so by itself some seconds after it was written to; a role that may has it do so at once.
async fn log_running_transactions(connection: &mut Connection) -> Result<(), CatalogError> {
    const ACTION: &str = "have the primary log its running transactions";
    const ALLOWED: &str = "SELECT coalesce(pg_catalog.has_function_privilege(\
        pg_catalog.to_regprocedure('pg_catalog.pg_log_standby_snapshot()'), 'EXECUTE'), false)";
    if one_value(connection, ALLOWED, ACTION).await? == "t" {
        run(
            connection,
            "SELECT pg_catalog.pg_log_standby_snapshot()",
            ACTION,
        )
        .await?;
    }
    Ok(())
}

/// In one transaction, since the message names it.
async fn emit_as_polled(
    connection: &mut Connection,
    installed: Installed,
    recogniser: &Recogniser,
) -> Result<(), CatalogError> {
    const ACTION: &str = "write a message with the publications";
    let secret = recogniser
        .secrets()
        .into_iter()
        .next()
        .ok_or(CatalogError::Random)?;
    run(
        connection,
        "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE",
        ACTION,
    )
    .await?;
    let xid = one_value(
        connection,
        "SELECT pg_catalog.pg_current_xact_id()::text",
        ACTION,
    )
    .await?;
    let xid = xid.parse().map_err(|_| CatalogError::Answer {
        action: ACTION,
        found: xid,
    })?;
    let all = publications(connection, installed).await?;
    let message = CatalogMessage::write(xid, &all, &secret)?;
    let sql = format!(
        "SELECT pg_catalog.pg_logical_emit_message(true, '{PREFIX}', pg_catalog.decode('{}', 'hex'))",
        hex(message.as_bytes())
    );
    run(connection, &sql, ACTION).await?;
    run(connection, "COMMIT", ACTION).await?;
    Ok(())
}

/// The flush position, not the insert position: at the end of a WAL page that one is past the page header, where no
/// record ends and an idle stream never gets.
async fn flush_lsn(connection: &mut Connection) -> Result<Lsn, CatalogError> {
    const ACTION: &str = "ask for the flush position";
    let text = one_value(
        connection,
        "SELECT pg_catalog.pg_current_wal_flush_lsn()",
        ACTION,
    )
    .await?;
    text.parse().map_err(|_| CatalogError::Answer {
        action: ACTION,
        found: text,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

async fn run(
    connection: &mut Connection,
    sql: &str,
    action: &'static str,
) -> Result<Vec<pg_client::QueryResult>, CatalogError> {
    bounded(connection.simple_query(sql), action).await
}

async fn one_value(
    connection: &mut Connection,
    sql: &str,
    action: &'static str,
) -> Result<String, CatalogError> {
    let value = bounded(connection.query_one_value(sql), action).await?;
    value.ok_or_else(|| CatalogError::Answer {
        action,
        found: "null".to_owned(),
    })
}

async fn bounded<T>(
    answer: impl Future<Output = Result<T, pg_client::Error>>,
    action: &'static str,
) -> Result<T, CatalogError> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, answer).await {
        Ok(answer) => answer.map_err(|source| CatalogError::Query { action, source }),
        Err(_) => Err(CatalogError::Timeout {
            action,
            after: STATEMENT_TIMEOUT,
        }),
    }
}
