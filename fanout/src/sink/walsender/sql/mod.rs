//! SQL: statements about slots are evaluated by the source over what is known here; all others are passed to the source
//! and its answers back, unread.
//!
//! ```text
//! lexer      words            text       a text, its words, parts of it written anew
//! names      which relations and functions are meant      mention    where a text names them
//! publications  of Decant's own beside the source's
//! call       functions that do something                  analysis   what becomes of a statement
//! views      rows of now      effects    what functions do      hidden     this endpoint's own statements at the source
//! relay      the simple protocol                          extended   the extended one (pipeline, prepared)
//! ```

mod analysis;
mod call;
mod effects;
mod extended;
mod hidden;
mod lexer;
mod mention;
mod names;
mod pipeline;
mod prepared;
mod publications;
mod relay;
mod text;
mod views;

use std::io;
use std::time::Duration;

use pg_proto::wire::{
    BackendMessage, ErrorFields, FieldDescription, ReplicationMode, TransactionStatus, sqlstate,
};

use super::backends::Cancelling;
use super::command::aborted;
use super::session::{Flow, Session};
use super::upstream::lost;
use analysis::{Dialect, Special, Verdict, analyse};
pub(crate) use call::FIRST_PID;
use effects::{Calls, RIGHTS, Rights};
use hidden::{Hidden, HiddenError, Interrupts};
pub(super) use prepared::Prepared;

/// Decides about a text as for a client, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub fn read_statement(bytes: &[u8]) {
    for publications in [None, Some(14), Some(18)] {
        let dialect = Dialect {
            escapes: publications.is_none(),
            has_failover: publications.is_some(),
            publications,
        };
        let _ = analyse(bytes, dialect);
    }
}

/// The first statement of every PostgreSQL subscriber and of libpq's replication tools.
const CLEAR_SEARCH_PATH: &str = "SELECT pg_catalog.set_config('search_path', '', false);";

/// Longest time for this fanout to come to where the decoder is.
const HEAD_WAIT: Duration = Duration::from_secs(2);

impl Session<'_> {
    /// Runs what is no replication command.
    pub(super) async fn sql(&mut self, text: &[u8]) -> io::Result<Flow> {
        if self.login.mode == ReplicationMode::Physical {
            return self
                .conclude(Err(ErrorFields::error(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "cannot execute SQL commands in WAL sender for physical replication",
                )))
                .await;
        }
        if is_clear_search_path(text) {
            self.upstream.replay(CLEAR_SEARCH_PATH);
            if !self.upstream.is_open() {
                return Ok(self.clear_search_path());
            }
        }
        let prepared = match analyse(text, self.dialect(text).await) {
            Verdict::Plain => return self.proxy(text).await,
            Verdict::Refused(_) if self.upstream.status() == TransactionStatus::Failed => {
                Err(aborted())
            }
            Verdict::Refused(error) => Err(*error),
            Verdict::Special(special) => self.put_in_place(&special).await.map(|()| special.text),
        };
        match prepared {
            Ok(text) => self.proxy(&text).await,
            Err(error) => self.conclude(Err(error)).await,
        }
    }

    /// What `text` is read by.
    async fn dialect(&self, text: &[u8]) -> Dialect {
        let conforming = self.parameters.find("standard_conforming_strings");
        let publications = publications::may_be_mentioned_in(text) && self.has_publications().await;
        Dialect {
            escapes: conforming.is_some_and(|(_, value)| value == "off"),
            has_failover: self.source.version.has_failover(),
            publications: publications.then_some(self.source.version.major()),
        }
    }

    /// Whether Decant has publications of its own; what was made a moment ago is waited for.
    async fn has_publications(&self) -> bool {
        let services = &self.shared.services;
        if let Ok(durable) = services.positions.durable().await {
            let reached = services.replay.reached(durable);
            // What is here is served in any case.
            let _ = tokio::time::timeout(HEAD_WAIT, reached).await;
        }
        let catalog = services.replay.catalog();
        catalog.is_ok_and(|catalog| publications::exist(&catalog))
    }

    /// Puts in place what a statement needs.
    async fn put_in_place(&mut self, special: &Special) -> Result<(), ErrorFields> {
        // From here on: the client knows nothing of the several statements, and cancels what is one to it.
        let mut cancelling = Cancelling::new(self.backend.cancelled());
        let cancelling = &mut cancelling;
        self.reach_source().await?;
        for view in &special.views {
            let statement = self.rows_of(*view).await?;
            self.ask(statement.as_bytes(), cancelling).await?;
        }
        if let Some(asking) = &special.asking {
            let calls = Calls::parse(self.ask(asking, cancelling).await?)?;
            let rights = Rights::parse(self.ask(RIGHTS.as_bytes(), cancelling).await?);
            let results = self.make_calls(&calls, rights).await?;
            let statement = hidden::set(call::RESULTS, &results);
            self.ask(statement.as_bytes(), cancelling).await?;
        }
        Ok(())
    }

    /// A statement of this endpoint's own, outside of the extended protocol.
    async fn ask(
        &mut self,
        text: &[u8],
        cancelling: &mut Cancelling,
    ) -> Result<Vec<Option<String>>, ErrorFields> {
        let ending = [&self.shared.shutdown, &self.terminated];
        let connection = self.upstream.open().await?;
        let statement = Hidden {
            text,
            types: &[],
            values: None,
            sync: true,
        };
        hidden::run(connection, statement, Interrupts::new(cancelling, ending))
            .await
            .map_err(|error| match error {
                HiddenError::Said(error) => *error,
                HiddenError::Lost(error) => {
                    self.upstream.drop_connection();
                    lost(&error)
                }
            })
    }

    /// Has a connection to the source, and the client know what is different there.
    async fn reach_source(&mut self) -> Result<(), ErrorFields> {
        if !self.upstream.is_open() {
            self.upstream.open().await?;
            self.report_differences().await;
        }
        Ok(())
    }

    fn clear_search_path(&mut self) -> Flow {
        let column = FieldDescription::text("set_config");
        self.row(vec![column], &[Some("")], "SELECT 1");
        if self.source.version.reports_search_path() && self.parameters.update("search_path", "") {
            self.client.sender.put(&BackendMessage::ParameterStatus {
                name: b"search_path",
                value: b"",
            });
        }
        self.client.sender.ready(TransactionStatus::Idle);
        Flow::Next
    }
}

/// Whether it is [`CLEAR_SEARCH_PATH`], with whatever white space.
fn is_clear_search_path(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| {
        text.split_whitespace()
            .eq(CLEAR_SEARCH_PATH.split_whitespace())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_is_known_by_its_text() {
        assert!(is_clear_search_path(CLEAR_SEARCH_PATH.as_bytes()));
        assert!(is_clear_search_path(
            b" SELECT  pg_catalog.set_config('search_path',\n '', false); "
        ));
        assert!(!is_clear_search_path(
            b"SELECT pg_catalog.set_config('search_path', 'x', false);"
        ));
        assert!(!is_clear_search_path(b"\xff"));
    }
}
