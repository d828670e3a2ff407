//! The first packets of a connection: encryption, cancel requests, the start-up packet.
//!
//! Until it is clear whether TLS comes, exactly one packet is read at a time: what somebody slipped in behind a request
//! for TLS goes into the handshake, which then fails, and is never taken for something that came encrypted.

use std::io;
use std::sync::Arc;

use pg_proto::wire::{BackendMessage, Split, StartupMessage, StartupPacket, split_startup};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::client::{Client, ReceiveError};
use crate::auth::tls::{ServerTls, asked_for_postgresql, begins_with_tls};

/// A client asks for TLS and for GSSAPI encryption at most once each.
const REQUESTS_MAX: usize = 4;

/// What a client turned out to want.
pub(super) enum Opening {
    /// A session.
    Startup(Box<Opened>),
    /// Another session's query cancelled.
    Cancel {
        /// That session.
        pid: u32,
        /// Its secret.
        key: Vec<u8>,
    },
    /// It left.
    Gone,
}

/// A client that wants a session.
pub(super) struct Opened {
    pub(super) client: Client,
    pub(super) startup: StartupMessage,
    pub(super) encryption: Encryption,
}

/// Whether a connection is encrypted.
#[derive(Clone, Debug)]
pub(super) enum Encryption {
    /// It is not.
    None,
    /// By TLS.
    Tls {
        /// The hash of the server's certificate, if it has one.
        end_point: Option<Arc<[u8]>>,
    },
}

impl Encryption {
    /// Whether it is.
    pub(super) const fn is_on(&self) -> bool {
        matches!(self, Self::Tls { .. })
    }

    /// What a client can bind its proof to.
    pub(super) fn end_point(&self) -> Option<Arc<[u8]>> {
        match self {
            Self::None => None,
            Self::Tls { end_point } => end_point.clone(),
        }
    }
}

/// Talks to the client until it has said what it wants.
pub(super) async fn open(
    mut socket: TcpStream,
    tls: Option<&ServerTls>,
) -> Result<Opening, ReceiveError> {
    if begins_with_tls(&socket).await? {
        let Some(tls) = tls else {
            return Err(ReceiveError::NoTls);
        };
        let stream = tls.accept(socket).await.map_err(ReceiveError::Tls)?;
        if !asked_for_postgresql(&stream) {
            return Err(ReceiveError::NoAlpn);
        }
        return open_encrypted(stream, tls).await;
    }
    for _ in 0..REQUESTS_MAX {
        match (packet(&mut socket).await?, tls) {
            (Some(StartupPacket::SslRequest), Some(tls)) => {
                socket.write_all(b"S").await?;
                let stream = tls.accept(socket).await.map_err(ReceiveError::Tls)?;
                return open_encrypted(stream, tls).await;
            }
            (Some(StartupPacket::SslRequest | StartupPacket::GssEncRequest), _) => {
                socket.write_all(b"N").await?;
            }
            (Some(StartupPacket::CancelRequest { pid, key }), _) => {
                return Ok(Opening::Cancel { pid, key });
            }
            (Some(StartupPacket::Startup(startup)), _) => {
                let (input, output) = socket.into_split();
                return Ok(Opening::Startup(Box::new(Opened {
                    client: Client::new(Box::new(input), Box::new(output)),
                    startup,
                    encryption: Encryption::None,
                })));
            }
            (None, _) => break,
        }
    }
    Ok(Opening::Gone)
}

async fn open_encrypted(
    mut stream: TlsStream<TcpStream>,
    tls: &ServerTls,
) -> Result<Opening, ReceiveError> {
    match packet(&mut stream).await? {
        Some(StartupPacket::Startup(startup)) => {
            let (input, output) = tokio::io::split(stream);
            Ok(Opening::Startup(Box::new(Opened {
                client: Client::new(Box::new(input), Box::new(output)),
                startup,
                encryption: Encryption::Tls {
                    end_point: tls.end_point(),
                },
            })))
        }
        Some(StartupPacket::CancelRequest { pid, key }) => Ok(Opening::Cancel { pid, key }),
        Some(StartupPacket::SslRequest | StartupPacket::GssEncRequest) | None => Ok(Opening::Gone),
    }
}

/// The next packet and not a byte more; `None` at the end of the connection. If it is none the client is told so.
async fn packet<S>(stream: &mut S) -> Result<Option<StartupPacket>, ReceiveError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match read_packet(stream).await {
        Err(ReceiveError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => {
            if let Some(report) = error.report() {
                let mut message = Vec::new();
                BackendMessage::ErrorResponse(report).encode(&mut message);
                stream.write_all(&message).await?;
                stream.flush().await?;
            }
            Err(error)
        }
        read => read.map(Some),
    }
}

async fn read_packet<S: AsyncRead + Unpin>(stream: &mut S) -> Result<StartupPacket, ReceiveError> {
    let mut packet = vec![0; 4];
    stream.read_exact(&mut packet).await?;
    if let Split::Partial { need } = split_startup(&packet)? {
        packet.resize(need, 0);
        stream.read_exact(&mut packet[4..]).await?;
    }
    match split_startup(&packet)? {
        Split::Whole { frame, .. } => Ok(StartupPacket::decode(frame)?),
        Split::Partial { .. } => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}
