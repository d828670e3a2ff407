//! Connections of gRPC clients: with TLS or without, as the settings and the client have it.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use crate::auth::{Access, Guard, tls};

/// A client has this long for its part of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at a time; further clients wait to be accepted.
const HANDSHAKES_MAX: usize = 256;
/// Connections that wait for the server to take them.
const READY_MAX: usize = 16;

/// Who a connection is from, as far as the connection itself tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) encrypted: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    peer: Peer,
}

#[derive(Debug)]
enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Accepts connections until `shutdown` is cancelled or nobody takes them any more.
pub(super) fn accept(
    listener: TcpListener,
    guard: Arc<Guard>,
    shutdown: CancellationToken,
) -> mpsc::Receiver<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(READY_MAX);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let (socket, address) = tokio::select! {
                accepted = service::accept::next(&listener, "fanout.grpc") => accepted,
                () = shutdown.cancelled() => return,
                () = sender.closed() => return,
            };
            let (access, sender) = (guard.current(), sender.clone());
            tokio::spawn(open(socket, address, access, sender, place));
        }
    });
    receiver
}

async fn open(
    socket: TcpStream,
    address: SocketAddr,
    access: Arc<Access>,
    sender: mpsc::Sender<io::Result<Connection>>,
    _place: OwnedSemaphorePermit,
) {
    let opened = timeout(HANDSHAKE_TIMEOUT, shake_hands(socket, &access)).await;
    let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    match opened {
        Ok(socket) => {
            let encrypted = matches!(socket, Socket::Tls(_));
            let peer = Peer { address, encrypted };
            // The server ends.
            let _ = sender.send(Ok(Connection { socket, peer })).await;
        }
        Err(error) => {
            let reason = service::cli::causes(&error);
            tracing::info!(peer = %address, reason, "could not open a gRPC connection");
        }
    }
}

async fn shake_hands(socket: TcpStream, access: &Access) -> io::Result<Socket> {
    let Some(tls) = access.tls() else {
        return Ok(Socket::Plain(socket));
    };
    if tls::begins_with_tls(&socket).await? {
        let stream = tls.accept_http2(socket).await?;
        return Ok(Socket::Tls(Box::new(stream)));
    }
    if access.requires_tls() {
        let reason = "it is not encrypted, and fanout.tls is \"require\"";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(Socket::Plain(socket))
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Socket::Tls(socket) => Pin::new(socket).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Socket::Tls(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Socket::Tls(socket) => Pin::new(socket).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(socket) => socket.is_write_vectored(),
            Socket::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(context),
            Socket::Tls(socket) => Pin::new(socket).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Socket::Tls(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }
}
