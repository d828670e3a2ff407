//! From options to an encrypted (or not) and authenticated byte stream.

use std::io;
use std::net::SocketAddr;

use pg_proto::wire::{ProtocolVersion, StartupMessage, StartupPacket, sqlstate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::auth::authenticate;
use crate::buffer::FrameBuffer;
use crate::error::{ConnectError, Error};
use crate::options::{ConnectOptions, SslMode};
use crate::session::Session;
use crate::tls;
use crate::transport::Transport;
use crate::wire::Outbox;

/// The size of reads outside the copy-both phase: answers are short and connections may be many.
const READ_CHUNK: usize = 16 << 10;

/// A connection that is ready for a query.
pub(crate) struct Established {
    pub(crate) transport: Transport,
    pub(crate) buffer: FrameBuffer,
    pub(crate) outbox: Outbox,
    pub(crate) session: Session,
}

/// Whether TLS may still be tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encryption {
    /// As the mode says.
    ByMode,
    /// It was tried in mode `prefer`, and failed.
    Without,
}

/// Connects within the time allowed.
pub(crate) async fn establish(options: &ConnectOptions) -> Result<Established, ConnectError> {
    let attempt = Box::pin(establish_by_mode(options));
    let limited = tokio::time::timeout(options.connect_timeout, attempt).await;
    limited.unwrap_or_else(|_| {
        Err(ConnectError::Timeout {
            address: options.address(),
            after: options.connect_timeout,
        })
    })
}

async fn establish_by_mode(options: &ConnectOptions) -> Result<Established, ConnectError> {
    match establish_once(options, Encryption::ByMode).await {
        Err(error) if options.sslmode == SslMode::Prefer && may_go_without(&error) => {
            match establish_once(options, Encryption::Without).await {
                // Without TLS the server may refuse too; then what it said first is what matters.
                Err(ConnectError::Refused { .. }) if error.server().is_some() => Err(error),
                other => other,
            }
        }
        other => other,
    }
}

/// As libpq with `sslmode=prefer`: TLS that fails, and a server that has no place for this user with TLS.
fn may_go_without(error: &ConnectError) -> bool {
    match error {
        ConnectError::Tls { .. } => true,
        ConnectError::Refused { .. } => {
            error.code() == Some(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION)
        }
        _ => false,
    }
}

async fn establish_once(
    options: &ConnectOptions,
    encryption: Encryption,
) -> Result<Established, ConnectError> {
    let mut transport = open(options, encryption == Encryption::Without).await?;
    let mut buffer = FrameBuffer::new(READ_CHUNK);
    let mut outbox = Outbox::default();
    let mut session = Session::new();
    let startup = StartupPacket::Startup(StartupMessage {
        version: ProtocolVersion::V3_0,
        parameters: options.startup_parameters(),
    });
    outbox.queue_with(|out| startup.encode(out));
    let sent = outbox.flush(&mut transport, "starting up").await;
    sent.map_err(|source| refused(options, source))?;
    authenticate(
        &mut transport,
        &mut buffer,
        &mut outbox,
        &mut session,
        options,
    )
    .await?;
    Ok(Established {
        transport,
        buffer,
        outbox,
        session,
    })
}

pub(crate) fn refused(options: &ConnectOptions, source: Error) -> ConnectError {
    ConnectError::Refused {
        address: options.address(),
        source,
    }
}

/// Opens the socket and encrypts it as the mode says.
pub(crate) async fn open(
    options: &ConnectOptions,
    without_tls: bool,
) -> Result<Transport, ConnectError> {
    if let Some(path) = options.socket_path() {
        let stream = UnixStream::connect(path).await;
        return stream
            .map(Transport::Unix)
            .map_err(|source| dial_failed(options, source));
    }
    let stream = dial(options).await?;
    if without_tls || options.sslmode == SslMode::Disable {
        return Ok(Transport::Tcp(stream));
    }
    encrypt(options, stream).await
}

fn dial_failed(options: &ConnectOptions, source: io::Error) -> ConnectError {
    ConnectError::Dial {
        address: options.address(),
        source,
    }
}

/// Tries each of the host's addresses in turn.
async fn dial(options: &ConnectOptions) -> Result<TcpStream, ConnectError> {
    let no_address = |source| ConnectError::Resolve {
        host: options.host.clone(),
        source,
    };
    let addresses = tokio::net::lookup_host((options.host.as_str(), options.port)).await;
    let mut failure = None;
    for address in addresses.map_err(no_address)? {
        match dial_address(address).await {
            Ok(stream) => return Ok(stream),
            Err(source) => failure = Some(source),
        }
    }
    Err(match failure {
        Some(source) => dial_failed(options, source),
        None => no_address(io::ErrorKind::NotFound.into()),
    })
}

async fn dial_address(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A peer that vanished without a word is found out in the end, also on a connection that only reads.
    socket.set_keepalive(true)?;
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// Asks for TLS. The answer is read as one byte and not more: whatever somebody slipped in behind it must not
/// be taken for something that came encrypted.
async fn encrypt(
    options: &ConnectOptions,
    mut stream: TcpStream,
) -> Result<Transport, ConnectError> {
    let config = tls::client_config(options)?;
    let failed = |source| ConnectError::Tls {
        address: options.address(),
        source,
    };
    let lost = |source| {
        let doing = "asking for TLS";
        refused(options, Error::Io { doing, source })
    };
    let mut request = Vec::new();
    StartupPacket::SslRequest.encode(&mut request);
    stream.write_all(&request).await.map_err(lost)?;
    match stream.read_u8().await.map_err(lost)? {
        b'S' => {
            let name = tls::server_name(&options.host)?;
            let handshake = TlsConnector::from(config).connect(name, stream);
            let encrypted = Box::pin(handshake).await.map_err(failed)?;
            Ok(Transport::Tls(Box::new(encrypted)))
        }
        b'N' if options.sslmode == SslMode::Prefer => Ok(Transport::Tcp(stream)),
        b'N' => Err(ConnectError::TlsRefused {
            address: options.address(),
        }),
        tag => {
            let doing = "answering the request for TLS";
            Err(refused(options, Error::Unexpected { tag, doing }))
        }
    }
}
