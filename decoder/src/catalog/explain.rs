//! What a publication means that nobody makes.

use std::sync::Arc;
use std::time::Duration;

use pg_client::Connection;
use pg_proto::wire::sqlstate;
use storage_format::catalog::PublicationState;
use tokio::sync::Semaphore;

use super::error::CatalogError;
use super::session::publications_of;
use crate::source::Addresses;
use crate::state::DecoderState;

/// Connections to the source at once. Whoever comes then waits.
const CONNECTIONS_MAX: usize = 4;

/// Longest time for an answer, the wait for a connection included.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A name that nobody gives to a publication.
const NAME: &str = "decant: explained and not made";

const LOCK_NOT_AVAILABLE: &str = "55P03";

/// In the transaction: `CREATE PUBLICATION` waits for who changes the table's definition, which may take long.
const BEGIN: &str =
    "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '5s'";

/// Has the source parse publications.
#[derive(Debug)]
pub struct Explainer {
    addresses: Addresses,
    state: Arc<DecoderState>,
    connections: Semaphore,
}

/// There is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The source says no: in its words.
    #[error("{0}")]
    Refused(String),
    /// The decoder's role may not make publications.
    #[error(
        "the decoder's role at the source needs the rights of CREATE PUBLICATION to find out what a row filter means: {0}"
    )]
    Right(String),
    /// The source can't be asked.
    #[error("the source can't be asked what the publication means")]
    Source(#[from] CatalogError),
    /// It takes too long.
    #[error("the source did not say within {} s what the publication means", TIMEOUT.as_secs())]
    Timeout,
}

impl Explainer {
    /// Over connections to the server that can be written to, which `state` knows.
    #[must_use]
    pub fn new(addresses: Addresses, state: Arc<DecoderState>) -> Self {
        Self {
            addresses,
            state,
            connections: Semaphore::new(CONNECTIONS_MAX),
        }
    }

    /// What `CREATE PUBLICATION name` with this definition would make, alone. It leaves nothing at the source.
    pub async fn explain(&self, definition: &str) -> Result<PublicationState, ExplainError> {
        let answer = tokio::time::timeout(TIMEOUT, self.ask(definition)).await;
        answer.map_err(|_| ExplainError::Timeout)?
    }

    async fn ask(&self, definition: &str) -> Result<PublicationState, ExplainError> {
        // The semaphore is never closed.
        let _permit = self.connections.acquire().await;
        let options = self.addresses.writable(self.state.source().standby);
        let mut connection = Connection::connect(options)
            .await
            .map_err(CatalogError::Connect)?;
        connection.simple_query(BEGIN).await.map_err(failed)?;
        let create = format!("CREATE PUBLICATION \"{NAME}\" {definition}");
        connection.single_statement(&create).await.map_err(said)?;
        let all = publications_of(&mut connection).await?;
        connection.simple_query("ROLLBACK").await.map_err(failed)?;
        // It is closed by being dropped, too.
        let _ = connection.close().await;
        all.alone(NAME)
            .ok_or_else(|| ExplainError::Refused("it is no publication".to_owned()))
    }
}

fn failed(source: pg_client::Error) -> CatalogError {
    let action = "find out what a publication means";
    CatalogError::Query { action, source }
}

/// What the source says of the publication, or that it can't say.
fn said(error: pg_client::Error) -> ExplainError {
    let transient = error.is_transient();
    let Some(fields) = error.server().filter(|_| !transient) else {
        return ExplainError::Source(failed(error));
    };
    let mut words = fields.message().to_owned();
    for more in [fields.detail(), fields.hint()].into_iter().flatten() {
        words = format!("{words}. {more}");
    }
    match fields.code() {
        sqlstate::INSUFFICIENT_PRIVILEGE => ExplainError::Right(words),
        // Somebody has the table locked.
        LOCK_NOT_AVAILABLE | sqlstate::QUERY_CANCELED => ExplainError::Source(failed(error)),
        _ => ExplainError::Refused(words),
    }
}
