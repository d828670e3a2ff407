//! The server's side of TLS.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_client::server_end_point;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a client that begins with TLS at once must ask for, so that no other protocol's client can be led here.
const ALPN: &[u8] = b"postgresql";
/// The same for gRPC.
const ALPN_HTTP2: &[u8] = b"h2";

/// Certificate and key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("cannot read the {what} {}", path.display())]
    Read {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is in a file is not what should be there.
    #[error("no {what} in PEM form is in {}", path.display())]
    Missing {
        /// What should be there.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A file is damaged.
    #[error("{} is not valid PEM", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PemError,
    },
    /// Others could read the key.
    #[error(
        "the private key {} can be read by others (mode {mode:04o}): make it 0600, or 0640 if it belongs to root",
        path.display()
    )]
    KeyIsOpen {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The key is not the certificate's, or one of both is of a kind that is not supported.
    #[error("the certificate {} can't be used with the key {}", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// A certificate with its key, ready for connections.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
    http2: TlsAcceptor,
    end_point: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads a certificate chain, the server's own certificate first, and its key.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = read_chain(certificate)?;
        let end_point = chain.first().and_then(|first| server_end_point(first));
        let pair = |source| TlsError::Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            source,
        };
        let private = read_key(key)?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(pair)?
                .with_no_client_auth()
                .with_single_cert(chain, private)
                .map_err(pair)?;
        // Connections are few and long: nobody comes back with a ticket, as with PostgreSQL.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let acceptor = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsAcceptor::from(Arc::new(config))
        };
        Ok(Self {
            acceptor: acceptor(ALPN),
            http2: acceptor(ALPN_HTTP2),
            end_point: end_point.map(Arc::from),
        })
    }

    /// The hash of the certificate to which clients can bind; some kinds of certificates have none.
    #[must_use]
    pub fn end_point(&self) -> Option<Arc<[u8]>> {
        self.end_point.clone()
    }

    /// Lets a client begin with TLS.
    pub async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        Box::pin(self.acceptor.accept(socket)).await
    }

    /// The same for a client of HTTP/2.
    pub async fn accept_http2(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        Box::pin(self.http2.accept(socket)).await
    }
}

/// The type of the record that every TLS handshake begins with.
const HANDSHAKE: u8 = 0x16;

/// Whether a client begins with TLS at once, without taking what it sent. PostgreSQL's start-up packets and HTTP/2 begin in other ways.
pub async fn begins_with_tls(socket: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(socket.peek(&mut first).await? == 1 && first == [HANDSHAKE])
}

/// Whether the client asked for PostgreSQL's protocol by name.
#[must_use]
pub fn asked_for_postgresql(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(ALPN)
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        what,
        path: path.to_owned(),
        source,
    })
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read("certificate", path)?;
    let chain: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|source| not_pem("certificate", path, source))?;
    if chain.is_empty() {
        return Err(not_pem("certificate", path, PemError::NoItemsFound));
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read("private key", path)?;
    check_permissions(path)?;
    PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|source| not_pem("private key without a passphrase", path, source))
}

fn not_pem(what: &'static str, path: &Path, source: PemError) -> TlsError {
    let path = path.to_owned();
    match source {
        PemError::NoItemsFound => TlsError::Missing { what, path },
        source => TlsError::Pem { path, source },
    }
}

/// The rule of PostgreSQL: only the owner may read it, or also a group if it belongs to root.
fn check_permissions(path: &Path) -> Result<(), TlsError> {
    let metadata = std::fs::metadata(path).map_err(|source| TlsError::Read {
        what: "private key",
        path: path.to_owned(),
        source,
    })?;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return Err(TlsError::KeyIsOpen {
            path: path.to_owned(),
            mode: metadata.mode() & 0o7777,
        });
    }
    Ok(())
}
