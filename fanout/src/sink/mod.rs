//! The ways out.
//!
//! A sink takes [`Services`], opens a [`Stream`](crate::replay::Stream) for each subscriber, writes what that hands
//! over, and tells the subscriber's [`Registration`](crate::subscriber::Registration) and
//! [`Lease`](crate::positions::Lease) what was sent and confirmed. It offers
//! `Endpoint::bind(address, services) -> io::Result<Endpoint>`, `Endpoint::local_addr()`, and
//! `Endpoint::serve(self, shutdown: CancellationToken)`, which returns when `shutdown` was cancelled and every
//! subscriber has everything that was there by then, or had its time.

pub mod grpc;
pub mod walsender;

use std::sync::Arc;
use std::time::Duration;

use pg_proto::Lsn;

use crate::auth::{Guard, Roles};
use crate::error::StreamError;
use crate::positions::{Positions, PositionsError};
use crate::replay::Replay;
use crate::runtime::Lanes;
use crate::snapshot::Snapshots;
use crate::subscriber::Subscribers;

/// What every connection has a hand on. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Services {
    /// The log.
    pub replay: Replay,
    /// Slots.
    pub positions: Positions,
    /// Who is connected.
    pub subscribers: Subscribers,
    /// What snapshots of the source share.
    pub snapshots: Snapshots,
    /// Who may connect, and what they may read.
    pub guard: Arc<Guard>,
    /// The roles of the source.
    pub roles: Arc<Roles>,
    /// Where their tasks run.
    pub lanes: Lanes,
    /// All settings.
    pub config: Arc<service::config::Config>,
}

/// The publications that a subscriber named could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum PublicationsError {
    /// Not in the log.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Not at the source: the decoder did not answer.
    #[error("publication \"{name}\" is not known here, and the source can't be asked for it")]
    Positions {
        /// One that is not known.
        name: String,
        /// Why the source can't be asked.
        source: PositionsError,
    },
    /// The decoder looked, and the log did not come to the position that it named.
    #[error(
        "the log does not reach {lsn}, where publication \"{name}\" would be known, within {seconds} s"
    )]
    NotReached {
        /// One that is not known.
        name: String,
        /// The position.
        lsn: Lsn,
        /// How long it was waited for.
        seconds: u64,
    },
}

impl PublicationsError {
    /// The SQLSTATE for it.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::Stream(error) => error.sqlstate(),
            Self::Positions { source, .. } => source.sqlstate(),
            Self::NotReached { .. } => "55000",
        }
    }
}

/// Longest time for the log to come to where the decoder has seen the publications.
const CATALOG_WAIT: Duration = Duration::from_secs(10);

impl Services {
    /// Those of the names that are no publication of the source. If the log does not know one, the decoder is asked to
    /// look first, so that a publication that was made a moment ago is found.
    pub async fn unknown_publications(
        &self,
        names: &[String],
    ) -> Result<Vec<String>, PublicationsError> {
        let unknown = self.replay.unknown_publications(names)?;
        let Some(name) = unknown.first().cloned() else {
            return Ok(unknown);
        };
        let lsn = match self.positions.refresh_catalog().await {
            Ok(lsn) => lsn,
            Err(source) => return Err(PublicationsError::Positions { name, source }),
        };
        match tokio::time::timeout(CATALOG_WAIT, self.replay.reached(lsn)).await {
            Ok(reached) => reached?,
            Err(_) => {
                return Err(PublicationsError::NotReached {
                    name,
                    lsn,
                    seconds: CATALOG_WAIT.as_secs(),
                });
            }
        }
        Ok(self.replay.unknown_publications(names)?)
    }
}
