//! A standby as the source: what is to be had there, and what at its primary.

use std::time::{Duration, Instant};

use service::config::Config;

use super::checks;
use super::findings::{Findings, Outcome};
use crate::cmd::source::{Row, Source, literal};
use crate::error::Error;

/// How often the primary is made to say which transactions run.
const NUDGE: Duration = Duration::from_millis(500);
/// Longest time until the standby has replayed what was just made at the primary.
const REPLAY: Duration = Duration::from_secs(60);
const REPLAY_POLL: Duration = Duration::from_millis(100);

/// What lets a role make the primary say which transactions run.
pub(super) const GRANT: &str = "GRANT EXECUTE ON FUNCTION pg_catalog.pg_log_standby_snapshot()";

const IDENTITY: &str =
    "SELECT system_identifier, pg_catalog.pg_is_in_recovery() FROM pg_catalog.pg_control_system()";

/// Connects to the primary, and checks what matters for a standby only. `None`: there is none that can be used, which the
/// findings say.
pub(super) async fn primary(
    source: &mut Source,
    config: &Config,
    findings: &mut Findings,
) -> Result<Option<Source>, Error> {
    const CHECK: &str = "primary";
    let Some(mut primary) = Source::connect_primary(config).await? else {
        let remedy = "set source.primary_host (and source.primary_port): the publication and the event triggers are made \
                      at the primary, and the decoder states the publications there";
        let detail = "the source is a standby, and source.primary_host is not set";
        findings.problem(CHECK, Outcome::Failed, detail, remedy)?;
        return Ok(None);
    };
    let (here, there) = (source.row(IDENTITY).await?, primary.row(IDENTITY).await?);
    let remedy = "correct source.primary_host and source.primary_port";
    if here.text(0) != there.text(0) {
        let detail = format!(
            "its system identifier is {}, the standby's is {}: it is another cluster",
            there.text(0),
            here.text(0)
        );
        findings.problem(CHECK, Outcome::Failed, detail, remedy)?;
        return Ok(None);
    }
    if there.flag(1) {
        let detail = "the server at source.primary_host is a standby itself";
        findings.problem(CHECK, Outcome::Failed, detail, remedy)?;
        return Ok(None);
    }
    findings.note(CHECK, Outcome::Ok, "of the same cluster")?;
    checks::wal_level(&mut primary, "wal_level of the primary", findings).await?;
    feedback(source, findings).await?;
    Ok(Some(primary))
}

/// What keeps the primary from removing rows that the standby's slot needs, which invalidates it.
async fn feedback(source: &mut Source, findings: &mut Findings) -> Result<(), Error> {
    let row = source
        .row(
            "SELECT pg_catalog.current_setting('hot_standby_feedback'), \
             (SELECT slot_name FROM pg_catalog.pg_stat_wal_receiver)",
        )
        .await?;
    let remedy = "set hot_standby_feedback = on at the standby, or the slot is invalidated as soon as the primary vacuums \
                  its catalog";
    if row.text(0) != "on" {
        let detail = "hot_standby_feedback is off";
        return findings.problem("hot standby feedback", Outcome::Warning, detail, remedy);
    }
    if row.text(1).is_empty() {
        let detail = "on, but the standby has no slot at its primary, or this role may not see it";
        let remedy = "set primary_slot_name at the standby, so that the primary keeps what is needed also while the \
                      standby is away";
        return findings.problem("hot standby feedback", Outcome::Warning, detail, remedy);
    }
    findings.note("hot standby feedback", Outcome::Ok, "on")
}

/// Makes the slot at the standby, behind what was made at the primary. A standby can't say which transactions run and
/// waits until its primary has, more than once if some do.
pub(super) async fn create_slot(
    source: &mut Source,
    mut primary: Source,
    sql: &str,
) -> Result<Row, Error> {
    let nudge = nudge(&mut primary).await?;
    wait_for_replay(source, &mut primary, nudge).await?;
    let cancel = source.cancel_token();
    let mut ticks = tokio::time::interval(NUDGE);
    let mut create = std::pin::pin!(source.row(sql));
    loop {
        tokio::select! {
            created = &mut create => return created,
            _ = ticks.tick() => if let Err(error) = primary.execute(nudge).await {
                // Otherwise the standby would go on waiting after this program.
                let _ = cancel.cancel().await;
                return Err(error);
            },
        }
    }
}

/// The statement that makes the primary write what the standby waits for: at once, or some seconds later because of a
/// transaction that has done nothing.
async fn nudge(primary: &mut Source) -> Result<&'static str, Error> {
    const ALLOWED: &str = "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_log_standby_snapshot()', 'EXECUTE')";
    Ok(if primary.row(ALLOWED).await?.flag(0) {
        "SELECT pg_catalog.pg_log_standby_snapshot()"
    } else {
        "SELECT pg_catalog.pg_current_xact_id()"
    })
}

/// Up to version 17 a slot that is older than its publication fails for ever.
async fn wait_for_replay(
    source: &mut Source,
    primary: &mut Source,
    nudge: &str,
) -> Result<(), Error> {
    // What was made may not be flushed yet.
    let written = primary
        .row("SELECT pg_catalog.pg_current_wal_insert_lsn()")
        .await?
        .text(0);
    let sql = format!(
        "SELECT pg_catalog.pg_last_wal_replay_lsn() >= {}, pg_catalog.pg_last_wal_replay_lsn()",
        literal(&written)
    );
    let begun = Instant::now();
    loop {
        let row = source.row(&sql).await?;
        if row.flag(0) {
            return Ok(());
        }
        if begun.elapsed() > REPLAY {
            return Err(Error::NotReplayed {
                wanted: written,
                replayed: row.text(1),
            });
        }
        // The insert position may be behind a page's header, where no record ends.
        primary.execute(nudge).await?;
        tokio::time::sleep(REPLAY_POLL).await;
    }
}
