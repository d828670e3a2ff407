//! Taking connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::net::{TcpListener, TcpStream};

/// After a failed `accept`, which is mostly for lack of file descriptors: it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections that come, as [`next`] takes them.
pub fn connections(
    listener: TcpListener,
    what: &'static str,
) -> impl Stream<Item = io::Result<TcpStream>> {
    unfold(listener, move |listener| async move {
        let (socket, _) = next(&listener, what).await;
        Some((Ok(socket), listener))
    })
}

/// The next connection. What fails is logged and tried again after a pause. `what` names the endpoint. Nothing is lost if
/// this is dropped before it is done.
pub async fn next(listener: &TcpListener, what: &'static str) -> (TcpStream, SocketAddr) {
    let mut failed = false;
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                if let Err(error) = socket.set_nodelay(true) {
                    tracing::debug!(%peer, %error, "can't send small messages at once");
                }
                return (socket, peer);
            }
            Err(error) => {
                if !failed {
                    tracing::warn!(%error, what, "can't accept connections; trying again");
                }
                failed = true;
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
