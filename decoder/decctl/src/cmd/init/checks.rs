//! The checks.

use service::config::Config;

use super::findings::{Findings, Outcome};
use super::standby;
use crate::cli::InitArgs;
use crate::cmd::source::{Row, Source, literal};
use crate::error::Error;

/// The oldest version whose pgoutput streams in-progress transactions (protocol 2).
const VERSION_MIN: u32 = 140_000;
/// The first version that decodes on a standby.
const VERSION_STANDBY: u32 = 160_000;
/// How many tables without replica identity are named one by one.
const TABLES_SHOWN: usize = 20;

/// What the checks found that the preparation needs.
pub(super) struct Facts {
    pub(super) version: u32,
    pub(super) in_recovery: bool,
    pub(super) superuser: bool,
    pub(super) publication_exists: bool,
    pub(super) slot_exists: bool,
    pub(super) triggers_exist: bool,
}

/// What came of the checks.
pub(super) struct Checked {
    pub(super) facts: Facts,
    /// Of a source that is a standby.
    pub(super) primary: Option<Source>,
}

/// Makes all checks.
pub(super) async fn run(
    source: &mut Source,
    config: &Config,
    args: &InitArgs,
    findings: &mut Findings,
) -> Result<Checked, Error> {
    let Server {
        mut facts,
        supported,
    } = server(source, findings).await?;
    let mut primary = None;
    if supported && facts.in_recovery {
        primary = standby::primary(source, config, findings).await?;
    }
    if !supported || facts.in_recovery && primary.is_none() {
        return Ok(Checked { facts, primary });
    }
    wal_level(source, "wal_level", findings).await?;
    role(source, &mut facts, findings).await?;
    slot(source, config, &mut facts, findings).await?;
    let written = primary.as_mut().unwrap_or(source);
    publication(written, config, args, &mut facts, findings).await?;
    replica_identities(written, args, findings).await?;
    triggers(written, args, &mut facts, findings).await?;
    Ok(Checked { facts, primary })
}

struct Server {
    facts: Facts,
    supported: bool,
}

async fn server(source: &mut Source, findings: &mut Findings) -> Result<Server, Error> {
    let row = source
        .row(
            "SELECT pg_catalog.current_setting('server_version_num'), \
             pg_catalog.current_setting('server_version'), \
             pg_catalog.pg_is_in_recovery(), pg_catalog.current_database()",
        )
        .await?;
    let version = row.number(0);
    let in_recovery = row.flag(2);
    let detail = format!("PostgreSQL {}, database {}", row.text(1), row.text(3));
    let supported = version >= VERSION_MIN && (!in_recovery || version >= VERSION_STANDBY);
    if version < VERSION_MIN {
        findings.problem(
            "version",
            Outcome::Failed,
            detail,
            "Decant needs PostgreSQL 14 or later",
        )?;
    } else if !supported {
        let remedy = "a standby can be the source from version 16 on; take the primary";
        findings.problem(
            "version",
            Outcome::Failed,
            format!("{detail}, a standby"),
            remedy,
        )?;
    } else {
        findings.note("version", Outcome::Ok, detail)?;
    }
    let facts = Facts {
        version,
        in_recovery,
        superuser: false,
        publication_exists: false,
        slot_exists: false,
        triggers_exist: false,
    };
    Ok(Server { facts, supported })
}

pub(super) async fn wal_level(
    source: &mut Source,
    check: &'static str,
    findings: &mut Findings,
) -> Result<(), Error> {
    let level = source
        .row("SELECT pg_catalog.current_setting('wal_level')")
        .await?
        .text(0);
    if level == "logical" {
        return findings.note(check, Outcome::Ok, level);
    }
    let remedy = "ALTER SYSTEM SET wal_level = 'logical', then restart the server";
    findings.problem(check, Outcome::Failed, format!("is {level}"), remedy)
}

async fn role(
    source: &mut Source,
    facts: &mut Facts,
    findings: &mut Findings,
) -> Result<(), Error> {
    let row = source
        .row(
            "SELECT rolname, rolsuper, rolreplication FROM pg_catalog.pg_roles \
             WHERE rolname = current_user",
        )
        .await?;
    let (name, replication) = (row.text(0), row.flag(2));
    facts.superuser = row.flag(1);
    if facts.superuser || replication {
        let kind = if facts.superuser {
            "superuser"
        } else {
            "has REPLICATION"
        };
        return findings.note("role", Outcome::Ok, format!("{name} {kind}"));
    }
    let remedy = format!("ALTER ROLE \"{name}\" REPLICATION");
    findings.problem(
        "role",
        Outcome::Failed,
        format!("{name} lacks the attribute REPLICATION"),
        remedy,
    )
}

async fn slot(
    source: &mut Source,
    config: &Config,
    facts: &mut Facts,
    findings: &mut Findings,
) -> Result<(), Error> {
    let name = &config.source.slot;
    let sql = format!(
        "SELECT plugin, database, active, active_pid, wal_status, database = pg_catalog.current_database() \
         FROM pg_catalog.pg_replication_slots WHERE slot_name = {}",
        literal(name)
    );
    match source.rows(&sql).await?.first() {
        Some(row) => existing_slot(name, row, facts, findings),
        None => slot_room(source, findings).await,
    }
}

fn existing_slot(
    name: &str,
    row: &Row,
    facts: &mut Facts,
    findings: &mut Findings,
) -> Result<(), Error> {
    facts.slot_exists = true;
    if row.text(0) != "pgoutput" || !row.flag(5) {
        let detail = format!(
            "{name} exists with plugin {} in database {}",
            row.text(0),
            row.text(1)
        );
        let remedy = "choose another name with source.slot, or drop it";
        return findings.problem("slot", Outcome::Failed, detail, remedy);
    }
    if row.text(4) == "lost" {
        let detail = format!("{name} was invalidated: the source has removed WAL that it needs");
        let remedy = format!(
            "the log can't go on without a gap; drop the slot (SELECT pg_drop_replication_slot({})) and begin a new log directory",
            literal(name)
        );
        return findings.problem("slot", Outcome::Failed, detail, remedy);
    }
    let used = if row.flag(2) {
        format!(", in use by process {}", row.text(3))
    } else {
        String::new()
    };
    findings.note("slot", Outcome::Ok, format!("{name} exists{used}"))
}

async fn slot_room(source: &mut Source, findings: &mut Findings) -> Result<(), Error> {
    let row = source
        .row(
            "SELECT pg_catalog.current_setting('max_replication_slots'), \
             (SELECT count(*) FROM pg_catalog.pg_replication_slots), \
             pg_catalog.current_setting('max_wal_senders'), \
             (SELECT count(*) FROM pg_catalog.pg_stat_replication)",
        )
        .await?;
    for (index, check, setting) in [
        (0, "slot room", "max_replication_slots"),
        (2, "walsender room", "max_wal_senders"),
    ] {
        let (most, used) = (row.number(index), row.number(index + 1));
        let detail = format!("{used} of {most} in use");
        if used < most {
            findings.note(check, Outcome::Ok, detail)?;
        } else {
            let remedy =
                format!("raise {setting} and restart the server, or drop a slot that nobody uses");
            findings.problem(check, Outcome::Failed, detail, remedy)?;
        }
    }
    Ok(())
}

async fn publication(
    source: &mut Source,
    config: &Config,
    args: &InitArgs,
    facts: &mut Facts,
    findings: &mut Findings,
) -> Result<(), Error> {
    let name = &config.source.publication;
    let sql = format!(
        "SELECT puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot \
         FROM pg_catalog.pg_publication WHERE pubname = {}",
        literal(name)
    );
    let Some(row) = source.rows(&sql).await?.into_iter().next() else {
        if !facts.superuser && args.tables.is_empty() {
            let remedy = "let a superuser create it (CREATE PUBLICATION ... FOR ALL TABLES), or name tables that this role owns with --table";
            let detail =
                format!("{name} does not exist, and only a superuser can publish all tables");
            return findings.problem("publication", Outcome::Failed, detail, remedy);
        }
        return if facts.superuser {
            Ok(())
        } else {
            may_publish(source, args, findings).await
        };
    };
    facts.publication_exists = true;
    if !row.flag(1) || row.flag(2) {
        let remedy = format!(
            "ALTER PUBLICATION \"{name}\" SET (publish = 'insert, update, delete, truncate', publish_via_partition_root = false)"
        );
        let detail =
            format!("{name} exists but does not publish all actions of the tables themselves");
        return findings.problem("publication", Outcome::Failed, detail, remedy);
    }
    let scope = if row.flag(0) {
        "all tables"
    } else {
        "chosen tables"
    };
    findings.note(
        "publication",
        Outcome::Ok,
        format!("{name} exists, for {scope}"),
    )
}

/// What CREATE PUBLICATION ... FOR TABLE takes (`CreatePublication`, `check_publication_add_relation`).
async fn may_publish(
    source: &mut Source,
    args: &InitArgs,
    findings: &mut Findings,
) -> Result<(), Error> {
    let create =
        "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')";
    if !source.row(create).await?.flag(0) {
        let remedy =
            "GRANT CREATE ON DATABASE to this role, or let another role create the publication";
        let detail = "this role may not create one in this database";
        findings.problem("publication", Outcome::Failed, detail, remedy)?;
    }
    for table in source.canonical_names(&args.tables).await? {
        let sql = format!(
            "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class c \
             WHERE c.oid = pg_catalog.to_regclass({})",
            literal(&table)
        );
        let rows = source.rows(&sql).await?;
        let problem = match rows.first() {
            None => "does not exist",
            Some(row) if !row.flag(0) => "does not belong to this role",
            Some(_) => continue,
        };
        let remedy = "name tables that this role owns, or let a superuser create the publication";
        findings.problem(
            "publication",
            Outcome::Failed,
            format!("{table} {problem}"),
            remedy,
        )?;
    }
    Ok(())
}

/// Permanent user tables whose changes can't be identified. Once a publication covers them, the source refuses UPDATE
/// and DELETE on them (`CheckCmdReplicaIdentity` in `execReplication.c`).
async fn replica_identities(
    source: &mut Source,
    args: &InitArgs,
    findings: &mut Findings,
) -> Result<(), Error> {
    let sql = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) \
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND c.oid >= 16384 \
         AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
         AND (c.relreplident = 'n' OR c.relreplident = 'd' AND NOT EXISTS \
             (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) \
          OR c.relreplident = 'i' AND NOT EXISTS \
             (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)) ORDER BY 1";
    let mut tables: Vec<String> = source
        .rows(sql)
        .await?
        .iter()
        .map(|row| row.text(0))
        .collect();
    if !args.tables.is_empty() {
        let chosen = source.canonical_names(&args.tables).await?;
        tables.retain(|table| chosen.contains(table));
    }
    if tables.is_empty() {
        return findings.note("replica identity", Outcome::Ok, "every table has one");
    }
    let mut detail = format!("{} tables have none: {}", tables.len(), {
        tables
            .iter()
            .take(TABLES_SHOWN)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    });
    if tables.len() > TABLES_SHOWN {
        detail.push_str(", ...");
    }
    detail.push_str("; once published, UPDATE and DELETE on them fail");
    let remedy = "add a primary key, or ALTER TABLE ... REPLICA IDENTITY FULL; --allow-missing-identity goes on regardless";
    let outcome = if args.allow_missing_identity {
        Outcome::Warning
    } else {
        Outcome::Failed
    };
    findings.problem("replica identity", outcome, detail, remedy)
}

async fn triggers(
    source: &mut Source,
    args: &InitArgs,
    facts: &mut Facts,
    findings: &mut Findings,
) -> Result<(), Error> {
    let sql = "SELECT count(*) FROM pg_catalog.pg_event_trigger \
         WHERE evtname IN ('decant_ddl_command_end', 'decant_sql_drop') AND evtenabled = 'A'";
    facts.triggers_exist = source.row(sql).await?.number(0) == 2;
    let remedy = "the decoder will ask for changed publications every few seconds; a change counts from where it was seen";
    if facts.triggers_exist {
        findings.note("event triggers", Outcome::Ok, "installed")
    } else if args.no_event_triggers {
        findings.problem("event triggers", Outcome::Warning, "not wanted", remedy)
    } else if !facts.superuser {
        findings.problem(
            "event triggers",
            Outcome::Warning,
            "only a superuser can install them",
            remedy,
        )
    } else {
        Ok(())
    }
}
