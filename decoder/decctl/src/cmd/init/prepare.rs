//! What `init` makes at the source.

use service::config::{Config, TwoPhase};

use super::checks::Facts;
use super::findings::{Findings, Outcome};
use crate::cli::InitArgs;
use crate::cmd::source::{Source, identifier, literal};
use crate::error::Error;

/// Event triggers and functions, and the query that they embed; shared with the decoder.
const INSTALL_SQL: &str = include_str!("../../../../sql/install.sql");
const STATE_SQL_14: &str = include_str!("../../../../sql/state_14.sql");
const STATE_SQL_15: &str = include_str!("../../../../sql/state_15.sql");
/// The line that the query goes to.
const STATE_PLACE: &str = "\n{{publication_state}}\n";

/// Makes what is missing: publication, event triggers, slot, in this order.
pub(super) async fn run(
    source: &mut Source,
    config: &Config,
    args: &InitArgs,
    facts: &Facts,
    findings: &mut Findings,
) -> Result<(), Error> {
    if !facts.publication_exists {
        publication(source, config, args, facts, findings).await?;
    }
    if facts.superuser && !args.no_event_triggers && !facts.in_recovery {
        triggers(source, args, facts, findings).await?;
    }
    if !facts.slot_exists {
        slot(source, config, facts, args.failover, findings).await?;
    }
    Ok(())
}

async fn publication(
    source: &mut Source,
    config: &Config,
    args: &InitArgs,
    facts: &Facts,
    findings: &mut Findings,
) -> Result<(), Error> {
    let scope = if args.tables.is_empty() {
        "ALL TABLES".to_owned()
    } else {
        format!(
            "TABLE {}",
            source.canonical_names(&args.tables).await?.join(", ")
        )
    };
    let name = &config.source.publication;
    // Without them no subscriber's publication could have them.
    let options = if facts.version < 180_000 {
        ""
    } else {
        " WITH (publish_generated_columns = stored)"
    };
    source
        .execute(&format!(
            "CREATE PUBLICATION {} FOR {scope}{options}",
            identifier(name)
        ))
        .await?;
    findings.note(
        "publication",
        Outcome::Done,
        format!("created {name} FOR {scope}{options}"),
    )
}

/// Also run where the triggers exist: it brings the functions up to date and keeps the secret.
async fn triggers(
    source: &mut Source,
    args: &InitArgs,
    facts: &Facts,
    findings: &mut Findings,
) -> Result<(), Error> {
    let state = if facts.version < 150_000 {
        STATE_SQL_14
    } else {
        STATE_SQL_15
    };
    source
        .execute(&INSTALL_SQL.replace(STATE_PLACE, &format!("\n{state}\n")))
        .await?;
    if let Some(role) = &args.decoder_role {
        let sql = format!("SELECT decant.grant_to_decoder({})", literal(role));
        source.execute(&sql).await?;
        findings.note(
            "decoder role",
            Outcome::Done,
            format!("{role} may read what schema decant reports"),
        )?;
    }
    let detail = if facts.triggers_exist {
        "brought up to date"
    } else {
        "installed: changes of publications come at their own place in the stream"
    };
    findings.note("event triggers", Outcome::Done, detail)
}

async fn slot(
    source: &mut Source,
    config: &Config,
    facts: &Facts,
    failover: bool,
    findings: &mut Findings,
) -> Result<(), Error> {
    let name = &config.source.slot;
    if failover && facts.version < 170_000 {
        let remedy = "leave --failover out: failover slots exist from version 17 on";
        return findings.problem("slot", Outcome::Failed, "not created", remedy);
    }
    let failover = if failover { ", failover => true" } else { "" };
    let two_phase = config.source.two_phase == TwoPhase::Auto && facts.version >= 150_000;
    let two_phase = if two_phase { ", twophase => true" } else { "" };
    let sql = format!(
        "SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot({}, 'pgoutput'{two_phase}{failover})",
        literal(name)
    );
    let lsn = source.row(&sql).await?.text(0);
    findings.note("slot", Outcome::Done, format!("created {name} at {lsn}"))
}
