//! What can go wrong, and whether trying again may help.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pg_proto::ReadError;
use pg_proto::wire::{ErrorFields, FrameError, sqlstate};

/// A connection that was established failed, or a statement on it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error. Unless it is fatal the connection can go on.
    #[error("{0}")]
    Server(Box<ErrorFields>),
    /// Reading or writing failed.
    #[error("{doing} failed")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The server closed the connection where it should have gone on.
    #[error("the server closed the connection while {doing}")]
    Closed {
        /// What was being done.
        doing: &'static str,
    },
    /// A message's length can't be true.
    #[error("the server broke the protocol")]
    Frame(#[from] FrameError),
    /// A message's content is not what its type promises.
    #[error("the server sent a malformed message")]
    Message(#[from] ReadError),
    /// A message that has no place here.
    #[error("the server sent a message of type '{}' while {doing}", tag.escape_ascii())]
    Unexpected {
        /// The message's type byte.
        tag: u8,
        /// What was being done.
        doing: &'static str,
    },
    /// A value that is not UTF-8, since `client_encoding` is something else.
    #[error(
        "column \"{column}\" holds bytes that are not UTF-8: set client_encoding to UTF8 for queries"
    )]
    NotUtf8 {
        /// The column.
        column: String,
    },
    /// A query did not give the one value that it should.
    #[error("the query gave {rows} rows where one row with one column was expected")]
    NotOneValue {
        /// Rows that it gave.
        rows: usize,
    },
    /// Two halves that are not of the same stream were put together.
    #[error("the receiving and the sending half belong to different connections")]
    NotOnePair,
}

impl Error {
    /// The server's error, if it is one.
    #[must_use]
    pub fn server(&self) -> Option<&ErrorFields> {
        match self {
            Self::Server(error) => Some(error),
            _ => None,
        }
    }

    /// SQLSTATE of the server's error, if it is one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.server().map(ErrorFields::code)
    }

    /// Whether the same may succeed on another connection, later, without anybody doing anything about it.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Server(error) => is_transient_code(error.code()),
            Self::Io { .. } | Self::Closed { .. } => true,
            Self::Frame(_)
            | Self::Message(_)
            | Self::Unexpected { .. }
            | Self::NotUtf8 { .. }
            | Self::NotOneValue { .. }
            | Self::NotOnePair => false,
        }
    }
}

/// A connection could not be established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host's name has no address.
    #[error("cannot find the address of {host}")]
    Resolve {
        /// The host.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody answers.
    #[error("cannot connect to {address}")]
    Dial {
        /// The server.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// It took too long.
    #[error("{address} did not let us in within {after:?}")]
    Timeout {
        /// The server.
        address: String,
        /// The time allowed.
        after: Duration,
    },
    /// The server has no TLS and the mode demands it.
    #[error("{address} does not offer TLS, which the sslmode demands")]
    TlsRefused {
        /// The server.
        address: String,
    },
    /// The TLS handshake failed; also, the certificate is not trusted or is not for this host.
    #[error("TLS with {address} failed")]
    Tls {
        /// The server.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The host can't be the name in a certificate.
    #[error("\"{host}\" is not a name that a certificate can be for")]
    TlsName {
        /// The host.
        host: String,
    },
    /// The root certificates can't be used.
    #[error("cannot use the root certificates of {}", path.display())]
    RootCertificates {
        /// The file, or what stands for the system's store.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// TLS can't be set up.
    #[error("cannot set up TLS")]
    TlsSetup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server asks for a password and none was given.
    #[error("{address} asks for the password of \"{user}\", and none is configured")]
    PasswordMissing {
        /// The server.
        address: String,
        /// The role.
        user: String,
    },
    /// The server asks for a kind of authentication that this client does not have.
    #[error("{address} asks for authentication by {method}, which is not supported")]
    UnsupportedAuthentication {
        /// The server.
        address: String,
        /// What it asks for.
        method: String,
    },
    /// The exchange of secrets failed on this side: the server could not prove that it knows the password.
    #[error("SCRAM authentication with {address} failed")]
    Scram {
        /// The server.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The server refused, or the connection broke.
    #[error("{address} did not let us in")]
    Refused {
        /// The server.
        address: String,
        /// Why.
        source: Error,
    },
}

impl ConnectError {
    /// The server's error, if it is one.
    #[must_use]
    pub fn server(&self) -> Option<&ErrorFields> {
        match self {
            Self::Refused { source, .. } => source.server(),
            _ => None,
        }
    }

    /// SQLSTATE of the server's error, if it is one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.server().map(ErrorFields::code)
    }

    /// Whether the same may succeed later without anybody doing anything about it.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Resolve { .. } | Self::Dial { .. } | Self::Timeout { .. } => true,
            // rustls reports what it does not accept as invalid data; the rest is the network.
            Self::Tls { source, .. } => source.kind() != io::ErrorKind::InvalidData,
            Self::Refused { source, .. } => source.is_transient(),
            Self::TlsRefused { .. }
            | Self::TlsName { .. }
            | Self::RootCertificates { .. }
            | Self::TlsSetup(_)
            | Self::PasswordMissing { .. }
            | Self::UnsupportedAuthentication { .. }
            | Self::Scram { .. } => false,
        }
    }
}

/// Connection failures, lack of resources, a slot that its last user has not let go, and a server that is
/// starting or stopping. Not a limit of the configuration, which stays until somebody raises it.
fn is_transient_code(code: &str) -> bool {
    let lack = code.starts_with("53") && code != sqlstate::CONFIGURATION_LIMIT_EXCEEDED;
    let connection = code.starts_with("08") && code != sqlstate::PROTOCOL_VIOLATION;
    lack || connection
        || matches!(
            code,
            sqlstate::OBJECT_IN_USE
                | sqlstate::ADMIN_SHUTDOWN
                | sqlstate::CRASH_SHUTDOWN
                | sqlstate::CANNOT_CONNECT_NOW
                | sqlstate::IDLE_SESSION_TIMEOUT
                | sqlstate::QUERY_CANCELED
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_time_heals() {
        let server = |code: &str| Error::Server(Box::new(ErrorFields::fatal(code, "x")));
        for code in ["57P01", "57P03", "55006", "53300", "08006"] {
            assert!(server(code).is_transient(), "{code}");
        }
        for code in ["28P01", "42704", "53400", "08P01", "55000", "3D000"] {
            assert!(!server(code).is_transient(), "{code}");
        }
        assert!(Error::Closed { doing: "waiting" }.is_transient());
    }
}
