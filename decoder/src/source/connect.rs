//! From an address to a stream: connect, ask, judge, start.

use std::time::Duration;

use pg_client::{Connection, CopyBoth, QueryResult};
use pg_proto::Lsn;
use service::config::Config;
use storage_format::Identity;
use storage_format::catalog::ServerParameters;

use super::checks::{
    Facts, LogEnd, PublicationFacts, SlotFacts, check, check_cluster, check_timeline,
};
use super::command::{literal, protocol_version, start_replication};
use super::error::{CONFLICT, SourceError};
use super::options::replication_options;

/// What a session reports and what concerns only this one connection, not the source.
const OWN_PARAMETERS: &[&str] = &["application_name", "search_path"];

/// A connection to a source that may be followed.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) connection: Connection,
    pub(crate) facts: Facts,
}

impl Source {
    /// Connects and checks that the log can go on from here.
    pub(crate) async fn connect(
        config: &Config,
        log: Option<&LogEnd>,
    ) -> Result<Self, SourceError> {
        let options = replication_options(config);
        let connection = Connection::connect(&options).await.map_err(|error| {
            if error.code() == Some("42501") {
                let user = config.source.user.clone();
                return SourceError::NotAllowed {
                    user,
                    source: error,
                };
            }
            SourceError::Connect(error)
        })?;
        let mut asking = Asking { connection };
        let facts = asking.facts(config).await?;
        check_cluster(&facts, config, log)?;
        if let Some(log) = log.filter(|log| log.identity.timeline != facts.timeline) {
            let history = asking.timeline_history(facts.timeline).await?;
            check_timeline(&facts, log, &history)?;
        }
        check(&facts, config, log)?;
        let Asking { connection } = asking;
        Ok(Self { connection, facts })
    }

    /// A log that begins where the slot stands.
    pub(crate) fn new_log(&self, config: &Config) -> LogEnd {
        let slot = self.facts.slot.as_ref();
        LogEnd {
            identity: Identity {
                system_identifier: self.facts.system_identifier,
                timeline: self.facts.timeline,
                database: config.source.database.clone(),
                slot: config.source.slot.clone(),
                writer_epoch: 0,
            },
            end_lsn: slot
                .and_then(|slot| slot.confirmed_flush)
                .unwrap_or_default(),
        }
    }

    /// What the server reports of itself, for the subscribers.
    pub(crate) fn server_parameters(&self) -> ServerParameters {
        self.connection
            .parameters()
            .iter()
            .filter(|(name, _)| !OWN_PARAMETERS.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Goes over to the encoding of the database, in which nothing is converted.
    pub(crate) async fn use_server_encoding(&mut self) -> Result<(), SourceError> {
        let sql = format!(
            "SET client_encoding TO {}",
            literal(&self.facts.server_encoding)
        );
        self.connection
            .simple_query(&sql)
            .await
            .map_err(client("cannot use the database's encoding"))?;
        Ok(())
    }

    /// Starts the stream at `from`.
    pub(crate) async fn start(self, config: &Config, from: Lsn) -> Result<CopyBoth, SourceError> {
        let source = &config.source;
        let slot = self.facts.slot.as_ref();
        let two_phase = slot.is_some_and(|slot| slot.two_phase);
        let protocol = protocol_version(self.facts.version_num, two_phase);
        let command =
            start_replication(&source.slot, from, &source.publication, protocol, two_phase);
        let started = self.connection.start_copy_both(&command).await;
        started.map_err(|error| match error.code() {
            Some("55006") => SourceError::SlotActive {
                slot: source.slot.clone(),
                pid: active_pid(&error),
                application: None,
            },
            _ => SourceError::Client {
                action: "the source does not start the stream",
                source: error,
            },
        })
    }
}

/// The last word of `replication slot "x" is active for PID n`.
fn active_pid(error: &pg_client::Error) -> String {
    let text = error.to_string();
    let mut digits = text.split(|letter: char| !letter.is_ascii_digit());
    digits
        .rfind(|word| !word.is_empty())
        .unwrap_or("unknown")
        .to_owned()
}

/// For `map_err`: an error of the connection with what was being done.
pub(crate) fn client(action: &'static str) -> impl FnOnce(pg_client::Error) -> SourceError {
    move |source| SourceError::Client { action, source }
}

/// Puts the questions.
struct Asking {
    connection: Connection,
}

impl Asking {
    async fn facts(&mut self, config: &Config) -> Result<Facts, SourceError> {
        // Otherwise names in values of type regclass depend on somebody's search_path.
        self.query("SELECT pg_catalog.set_config('search_path', '', false)")
            .await?;
        let system = self.query("IDENTIFY_SYSTEM").await?;
        let settings = self.query(SETTINGS).await?;
        let version_num = number("server_version_num", settings.value(0, "version_num"))?;
        let slot = self
            .query(&slot_query(&config.source.slot, version_num))
            .await?;
        let publication = publication_query(&config.source.publication, version_num);
        let publication = self.query(&publication).await?;
        let flag = |result: &QueryResult, name| result.value(0, name) == Some("t");
        let timeout: u32 = number(
            "wal_sender_timeout",
            settings.value(0, "wal_sender_timeout"),
        )?;
        Ok(Facts {
            version: text(settings.value(0, "version")),
            version_num,
            wal_level: text(settings.value(0, "wal_level")),
            in_recovery: flag(&settings, "in_recovery"),
            system_identifier: number("systemid of IDENTIFY_SYSTEM", system.value(0, "systemid"))?,
            timeline: number("timeline of IDENTIFY_SYSTEM", system.value(0, "timeline"))?,
            flush_lsn: number("xlogpos of IDENTIFY_SYSTEM", system.value(0, "xlogpos"))?,
            server_encoding: text(settings.value(0, "server_encoding")),
            wal_sender_timeout: Duration::from_millis(timeout.into()),
            slot: slot_facts(&slot)?,
            publication: (!publication.rows.is_empty()).then(|| PublicationFacts {
                via_root: flag(&publication, "via_root"),
                partial: flag(&publication, "partial"),
            }),
        })
    }

    /// The content of a timeline's history file.
    async fn timeline_history(&mut self, timeline: u32) -> Result<String, SourceError> {
        let history = self.query(&format!("TIMELINE_HISTORY {timeline}")).await?;
        Ok(text(history.value(0, "content")))
    }

    /// The last result of a query, with its rows.
    async fn query(&mut self, sql: &str) -> Result<QueryResult, SourceError> {
        let results = self
            .connection
            .simple_query(sql)
            .await
            .map_err(client("cannot examine the source"))?;
        Ok(results.into_iter().next_back().unwrap_or_default())
    }
}

const SETTINGS: &str = "\
    SELECT current_setting('server_version') AS version, \
           current_setting('server_version_num') AS version_num, \
           current_setting('wal_level') AS wal_level, \
           current_setting('server_encoding') AS server_encoding, \
           (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout') AS wal_sender_timeout, \
           pg_catalog.pg_is_in_recovery() AS in_recovery";

/// Why a slot is invalid is said in another column by each version.
fn slot_query(slot: &str, version_num: u32) -> String {
    let reason = match version_num {
        170_000.. => "s.invalidation_reason",
        160_000.. => &format!("CASE WHEN s.conflicting THEN '{CONFLICT}' END"),
        _ => "NULL",
    };
    format!(
        "SELECT s.plugin, s.database, s.temporary, s.active_pid, s.confirmed_flush_lsn, s.two_phase, \
                coalesce({reason}, CASE WHEN s.wal_status = 'lost' THEN 'wal_removed' END) AS invalidation, \
                (SELECT a.application_name FROM pg_catalog.pg_stat_activity a WHERE a.pid = s.active_pid) AS application \
           FROM pg_catalog.pg_replication_slots s \
          WHERE s.slot_name = {}",
        literal(slot)
    )
}

/// Row filters and column lists exist from version 15 on.
fn publication_query(publication: &str, version_num: u32) -> String {
    let partial = if version_num >= 150_000 {
        "EXISTS (SELECT FROM pg_catalog.pg_publication_rel r \
                  WHERE r.prpubid = p.oid AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL))"
    } else {
        "false"
    };
    format!(
        "SELECT p.pubviaroot AS via_root, {partial} AS partial FROM pg_catalog.pg_publication p WHERE p.pubname = {}",
        literal(publication)
    )
}

fn slot_facts(result: &QueryResult) -> Result<Option<SlotFacts>, SourceError> {
    if result.rows.is_empty() {
        return Ok(None);
    }
    let value = |name| result.value(0, name).map(str::to_owned);
    let flag = |name| result.value(0, name) == Some("t");
    let confirmed_flush = result
        .value(0, "confirmed_flush_lsn")
        .map(|position| number("confirmed_flush_lsn", Some(position)))
        .transpose()?;
    Ok(Some(SlotFacts {
        plugin: value("plugin"),
        database: value("database"),
        temporary: flag("temporary"),
        active_pid: value("active_pid"),
        active_application: value("application").filter(|name| !name.is_empty()),
        confirmed_flush,
        invalidation: value("invalidation"),
        two_phase: flag("two_phase"),
    }))
}

fn text(value: Option<&str>) -> String {
    value.unwrap_or_default().to_owned()
}

pub(super) fn number<T: std::str::FromStr>(
    question: &'static str,
    value: Option<&str>,
) -> Result<T, SourceError> {
    let value = value.unwrap_or("nothing");
    value.parse().map_err(|_| SourceError::Answer {
        question,
        expected: "a number or position",
        found: value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_fit_the_version() {
        assert!(slot_query("a'b", 140_000).contains("'a''b'"));
        assert!(!slot_query("s", 150_004).contains("invalidation_reason"));
        assert!(slot_query("s", 170_000).contains("s.invalidation_reason"));
        assert!(!publication_query("p", 140_001).contains("prqual"));
        assert!(publication_query("p", 150_000).contains("prqual"));
    }
}
