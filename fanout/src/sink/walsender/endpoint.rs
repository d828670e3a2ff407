//! The listening socket: takes connections, as many as there is room for, and lets them end well.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pg_proto::wire::{ErrorFields, sqlstate};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backends::Backends;
use super::client::Client;
use super::login::{self, Opening};
use super::session;
use crate::sink::Services;

/// How long a client may take to log in (`authentication_timeout`).
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that are told that there is no room; more than these are closed without a word.
const REFUSALS_MAX: usize = 64;
/// After a failed `accept`, which is mostly for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all sessions share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) services: Services,
    pub(super) backends: Arc<Backends>,
    pub(super) shutdown: CancellationToken,
    room: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

/// The PostgreSQL endpoint, bound and not yet serving.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    services: Services,
}

impl Endpoint {
    /// Takes the address.
    pub async fn bind(address: SocketAddr, services: Services) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, services })
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
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, peer)) => {
                        sessions.spawn(connection(Arc::clone(&shared), socket, peer));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "can't accept a PostgreSQL connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
}

/// Why a connection is refused as soon as it has said what it wants.
fn refusal(peer: SocketAddr, shutting_down: bool, has_room: bool) -> Option<ErrorFields> {
    if !peer.ip().to_canonical().is_loopback() {
        let message = format!(
            "connections from host \"{}\" are not allowed: this endpoint trusts its clients, so it \
             serves loopback addresses only",
            peer.ip()
        );
        let code = sqlstate::INVALID_AUTHORIZATION_SPECIFICATION;
        return Some(ErrorFields::fatal(code, message).with_hint("Connect on the same host."));
    }
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
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, %error, "can't send small messages at once");
    }
    let (input, output) = socket.into_split();
    let mut client = Client::new(Box::new(input), Box::new(output));
    let opening = tokio::select! {
        opening = tokio::time::timeout(LOGIN_TIMEOUT, login::open(&mut client)) => opening,
        () = shared.shutdown.cancelled() => {
            // A client that was about to log in may still be told why it can't.
            tokio::time::timeout(Duration::from_secs(1), login::open(&mut client)).await
        }
    };
    match opening {
        Ok(Ok(Opening::Startup(startup))) => {
            match refusal(peer, shared.shutdown.is_cancelled(), has_room) {
                Some(error) => {
                    tracing::info!(%peer, error = %error.message(), "connection refused");
                    session::refuse(&mut client, error).await;
                }
                None => Box::pin(session::run(&shared, client, &startup, peer)).await,
            }
        }
        Ok(Ok(Opening::Cancel { pid, key })) => shared.backends.cancel(pid, &key),
        Ok(Ok(Opening::Gone)) => {}
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "no start-up packet");
            if let Some(report) = error.report() {
                session::refuse(&mut client, report).await;
            }
        }
        Err(_) => tracing::info!(%peer, "the client did not log in in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_host_is_trusted() {
        let refused = |peer: &str, shutting_down, has_room| {
            let refusal = refusal(peer.parse().unwrap(), shutting_down, has_room);
            refusal.map(|error| error.code().to_owned())
        };
        for peer in [
            "127.0.0.1:1",
            "127.8.8.8:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(refused(peer, false, true), None, "{peer}");
        }
        for peer in ["10.0.0.1:1", "[::ffff:10.0.0.1]:1", "[2001:db8::1]:1"] {
            assert_eq!(
                refused(peer, true, false).as_deref(),
                Some("28000"),
                "{peer}"
            );
        }
        assert_eq!(
            refused("127.0.0.1:1", true, false).as_deref(),
            Some("57P03")
        );
        assert_eq!(
            refused("127.0.0.1:1", false, false).as_deref(),
            Some("53300")
        );
    }
}
