//! What `init` makes at the source.

use service::config::{Config, TwoPhase};

use super::checks::{Checked, Facts};
use super::findings::{Findings, Outcome};
use super::standby;
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
    mut source: Source,
    checked: Checked,
    config: &Config,
    args: &InitArgs,
    findings: &mut Findings,
) -> Result<(), Error> {
    let Checked { facts, mut primary } = checked;
    let written = primary.as_mut().unwrap_or(&mut source);
    if !facts.publication_exists {
        publication(written, config, args, &facts, findings).await?;
    }
    if facts.superuser && !args.no_event_triggers {
        triggers(written, args, &facts, findings).await?;
    }
    if !facts.slot_exists {
        let slot = Slot {
            source,
            primary,
            facts,
        };
        slot.create(config, args.failover, findings).await?;
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
        if facts.in_recovery {
            let grant = format!("{} TO {}", standby::GRANT, identifier(role));
            source.execute(&grant).await?;
        }
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

/// The slot, still to be made.
struct Slot {
    source: Source,
    primary: Option<Source>,
    facts: Facts,
}

impl Slot {
    async fn create(
        mut self,
        config: &Config,
        failover: bool,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let name = &config.source.slot;
        let version = self.facts.version;
        if failover && (version < 170_000 || self.primary.is_some()) {
            let remedy = "leave --failover out: failover slots exist from version 17 on, and on a primary only";
            return findings.problem("slot", Outcome::Failed, "not created", remedy);
        }
        let failover = if failover { ", failover => true" } else { "" };
        let two_phase = config.source.two_phase == TwoPhase::Auto && version >= 150_000;
        let two_phase = if two_phase { ", twophase => true" } else { "" };
        let sql = format!(
            "SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot({}, 'pgoutput'{two_phase}{failover})",
            literal(name)
        );
        let row = match self.primary {
            Some(primary) => standby::create_slot(&mut self.source, primary, &sql).await?,
            None => self.source.row(&sql).await?,
        };
        let lsn = row.text(0);
        findings.note("slot", Outcome::Done, format!("created {name} at {lsn}"))
    }
}
