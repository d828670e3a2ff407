//! Which timeline a stream from a standby is of.
//!
//! A standby may be promoted, or follow another primary, while it is decoded: the stream goes on over the switch and does
//! not show it. The log has to know on which timeline each of its positions is, since what the source keeps and what it
//! never had is told by that after the next failover. So what a standby sent is taken only after it has said, on a
//! connection beside the stream, that it is on the timeline that the stream began on. If it is not, the stream begins anew
//! at the log's end, all of which is from before the switch.

use std::time::Duration;

use pg_client::Connection;
use service::config::Config;

use super::command::literal;
use super::connect::{Source, client, number};
use super::error::SourceError;
use super::options::replication_options;

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A second connection to a standby.
#[derive(Debug)]
pub(super) struct Witness {
    connection: Connection,
    timeline: u32,
    /// The slot's process must be this one: then both connections are to the same server.
    walsender: u32,
    slot: String,
    /// For an error.
    address: (String, u16),
    known: bool,
}

impl Witness {
    /// Connects to the server that `source` is connected to. `None` if that is a primary, which keeps its timeline as
    /// long as it runs.
    pub(super) async fn connect(
        config: &Config,
        source: &Source,
    ) -> Result<Option<Self>, SourceError> {
        if !source.facts.in_recovery {
            return Ok(None);
        }
        let mut options = replication_options(config);
        options.application_name = Some(format!("decant_{}_timeline", config.source.slot));
        Ok(Some(Self {
            connection: Connection::connect(&options).await?,
            timeline: source.facts.timeline,
            walsender: source.connection.process_id(),
            slot: config.source.slot.clone(),
            address: (config.source.host.clone(), config.source.port),
            known: false,
        }))
    }

    /// Returns if all that was received until now is of the stream's timeline.
    pub(super) async fn vouch(&mut self) -> Result<(), SourceError> {
        let answer = tokio::time::timeout(PATIENCE, self.ask()).await;
        answer.map_err(|_| SourceError::Silent { silence: PATIENCE })?
    }

    async fn ask(&mut self) -> Result<(), SourceError> {
        if !self.known {
            self.recognise().await?;
            self.known = true;
        }
        let system = self.value("IDENTIFY_SYSTEM", "timeline").await?;
        let timeline = number("timeline of IDENTIFY_SYSTEM", system.as_deref())?;
        if timeline == self.timeline {
            return Ok(());
        }
        Err(SourceError::TimelineSwitched {
            from: self.timeline,
            to: timeline,
        })
    }

    /// A name may stand for several servers, each with a slot of this name.
    async fn recognise(&mut self) -> Result<(), SourceError> {
        let sql = format!(
            "SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = {}",
            literal(&self.slot)
        );
        let pid = self.value(&sql, "active_pid").await?;
        if pid.as_deref() == Some(self.walsender.to_string().as_str()) {
            return Ok(());
        }
        let (host, port) = self.address.clone();
        Err(SourceError::TwoServers { host, port })
    }

    async fn value(&mut self, sql: &str, column: &str) -> Result<Option<String>, SourceError> {
        let results = self.connection.simple_query(sql).await;
        let results = results.map_err(client("cannot ask the standby for its timeline"))?;
        let last = results.last();
        Ok(last.and_then(|result| result.value(0, column).map(str::to_owned)))
    }
}
