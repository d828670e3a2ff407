//! The listening socket: takes connections, as many as there is room for, and lets them end well.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pg_proto::wire::{ErrorFields, sqlstate};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backends::Backends;
use super::client::ReceiveError;
use super::opening::{Opening, open};
use super::session::{self, Caller};
use super::upstream::with_causes;
use crate::auth::Guard;
use crate::sink::Services;

/// How long a client may take to log in (`authentication_timeout`).
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that are told that there is no room; more than these are closed without a word.
const REFUSALS_MAX: usize = 64;

/// What all sessions share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) services: Services,
    pub(super) backends: Arc<Backends>,
    pub(super) shutdown: CancellationToken,
    guard: Arc<Guard>,
    room: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

/// The PostgreSQL endpoint, bound and not yet serving.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    services: Services,
    guard: Arc<Guard>,
}

impl Endpoint {
    /// Takes the address. `guard` says who may connect.
    pub async fn bind(
        address: SocketAddr,
        services: Services,
        guard: Arc<Guard>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self {
            listener,
            services,
            guard,
        })
    }

    /// The address that it really has.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is cancelled and every subscriber has everything that was there by then, or
    /// had its time. Meanwhile new connections are told that the server is shutting down.
    pub async fn serve(self, shutdown: CancellationToken) {
        let limit = usize::try_from(self.services.config.fanout.max_connections);
        let shared = Arc::new(Shared {
            services: self.services,
            backends: Arc::new(Backends::new()),
            shutdown: shutdown.clone(),
            guard: self.guard,
            room: Arc::new(Semaphore::new(limit.unwrap_or(Semaphore::MAX_PERMITS))),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        });
        let sessions = TaskTracker::new();
        let ended = async {
            shutdown.cancelled().await;
            sessions.close();
            sessions.wait().await;
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => return,
                (socket, peer) = service::accept::next(&self.listener, "fanout.postgres") => {
                    let connection = Box::pin(connection(Arc::clone(&shared), socket, peer));
                    sessions.spawn(shared.services.lanes.clone().drive(connection));
                }
            }
        }
    }
}

/// Why a connection is refused as soon as it has said what it wants.
fn refusal(shutting_down: bool, has_room: bool) -> Option<ErrorFields> {
    if shutting_down {
        return Some(ErrorFields::fatal(
            sqlstate::CANNOT_CONNECT_NOW,
            "the database system is shutting down",
        ));
    }
    (!has_room).then(|| {
        ErrorFields::fatal(
            sqlstate::TOO_MANY_CONNECTIONS,
            "sorry, too many clients already",
        )
        .with_hint("The limit is the setting fanout.max_connections.")
    })
}

async fn connection(shared: Arc<Shared>, socket: TcpStream, peer: SocketAddr) {
    let permit = |semaphore: &Arc<Semaphore>| Arc::clone(semaphore).try_acquire_owned().ok();
    let room: Option<OwnedSemaphorePermit> = permit(&shared.room);
    let has_room = room.is_some();
    let Some(_place) = room.or_else(|| permit(&shared.refusals)) else {
        return;
    };
    let deadline = Instant::now() + LOGIN_TIMEOUT;
    let access = shared.guard.current();
    let mut opening = Box::pin(timeout_at(deadline, open(socket, access.tls())));
    let opening = tokio::select! {
        opening = &mut opening => opening,
        () = shared.shutdown.cancelled() => {
            // A client that was about to log in may still be told why it can't.
            let told = tokio::time::timeout(Duration::from_secs(1), opening).await;
            told.unwrap_or_else(Err)
        }
    };
    match opening {
        Ok(Ok(Opening::Startup(mut opened))) => {
            match refusal(shared.shutdown.is_cancelled(), has_room) {
                Some(error) => {
                    tracing::info!(%peer, error = %error.message(), "connection refused");
                    session::refuse(&mut opened.client, error).await;
                }
                None => {
                    let caller = Caller {
                        peer,
                        access: &access,
                        deadline,
                    };
                    Box::pin(session::run(&shared, *opened, caller)).await;
                }
            }
        }
        Ok(Ok(Opening::Cancel { pid, key })) => shared.backends.cancel(pid, &key),
        Ok(Ok(Opening::Gone)) => {}
        Ok(Err(error)) => log_no_startup(peer, &error),
        Err(_) => tracing::info!(%peer, "the client did not log in in time"),
    }
}

/// Failed encryption is for an operator to know of; that a client hangs up is not.
fn log_no_startup(peer: SocketAddr, error: &ReceiveError) {
    let reason = with_causes(error);
    match error {
        ReceiveError::Tls(_) | ReceiveError::NoTls | ReceiveError::NoAlpn => {
            tracing::info!(%peer, reason, "could not accept a TLS connection");
        }
        _ => tracing::debug!(%peer, reason, "no start-up packet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_says_so_also_when_it_is_full() {
        let refused = |shutting_down, has_room| {
            let refusal = refusal(shutting_down, has_room);
            refusal.map(|error| error.code().to_owned())
        };
        assert_eq!(refused(false, true), None);
        assert_eq!(refused(true, false).as_deref(), Some("57P03"));
        assert_eq!(refused(false, false).as_deref(), Some("53300"));
    }
}
