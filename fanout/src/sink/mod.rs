//! The ways out.
//!
//! A sink takes [`Services`], opens a [`Stream`](crate::replay::Stream) for each subscriber, writes what that hands
//! over, and tells the subscriber's [`Registration`](crate::subscriber::Registration) and
//! [`Lease`](crate::positions::Lease) what was sent and confirmed. It offers
//! `Endpoint::bind(address, services) -> io::Result<Endpoint>`, `Endpoint::local_addr()`, and
//! `Endpoint::serve(self, shutdown: CancellationToken)`, which returns when `shutdown` was cancelled and every
//! subscriber has everything that was there by then, or had its time.

use std::sync::Arc;

use crate::positions::Positions;
use crate::replay::Replay;
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
    /// All settings.
    pub config: Arc<service::config::Config>,
}
