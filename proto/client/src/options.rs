//! Where to connect, and as whom.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A password. Debug output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The password itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(password: String) -> Self {
        Self(password)
    }
}

impl From<&str> for Password {
    fn from(password: &str) -> Self {
        Self(password.to_owned())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Whether and how a connection over TCP is encrypted; the words and meanings of libpq's `sslmode`. A Unix
/// socket is never encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server can; without, if it can't or refuses.
    #[default]
    Prefer,
    /// Always; whose certificate it is does not matter unless there is a root certificate file, in which case
    /// this means [`SslMode::VerifyCa`].
    Require,
    /// Always, and a trusted authority has signed the certificate.
    VerifyCa,
    /// The same, and the certificate is for this host: one of its subject alternative names is. A common name
    /// alone does not count, other than with libpq.
    VerifyFull,
}

/// A text that names no [`SslMode`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no sslmode: expected disable, prefer, require, verify-ca or verify-full")]
pub struct UnknownSslMode(pub String);

impl FromStr for SslMode {
    type Err = UnknownSslMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            other => Err(UnknownSslMode(other.to_owned())),
        }
    }
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        })
    }
}

/// Everything that [`Connection::connect`](crate::Connection::connect) needs to know.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// A name, an address, or the absolute path of the directory of a Unix socket.
    pub host: String,
    /// The port, which is also part of a Unix socket's name.
    pub port: u16,
    /// The role.
    pub user: String,
    /// Its password.
    pub password: Option<Password>,
    /// The database; the server takes the role's name if there is none.
    pub database: Option<String>,
    /// What `pg_stat_activity` and `pg_stat_replication` show.
    pub application_name: Option<String>,
    /// Whether to ask for a walsender connected to the database (`replication=database`).
    pub replication: bool,
    /// Encryption.
    pub sslmode: SslMode,
    /// Certificates to trust (PEM); the system's own if there is none and the mode verifies.
    pub sslrootcert: Option<PathBuf>,
    /// Settings for the session. `client_encoding` is UTF8 unless it is here.
    pub parameters: Vec<(String, String)>,
    /// How long connecting may take, from resolving the name until the server is ready for a query.
    pub connect_timeout: Duration,
}

impl ConnectOptions {
    /// Options with defaults: `sslmode=prefer`, 10 s, no password.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16, user: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port,
            user: user.into(),
            password: None,
            database: None,
            application_name: None,
            replication: false,
            sslmode: SslMode::default(),
            sslrootcert: None,
            parameters: Vec::new(),
            connect_timeout: Duration::from_secs(10),
        }
    }

    /// The path of the Unix socket, if the host is a directory.
    pub(crate) fn socket_path(&self) -> Option<PathBuf> {
        self.host
            .starts_with('/')
            .then(|| PathBuf::from(format!("{}/.s.PGSQL.{}", self.host, self.port)))
    }

    /// The server, for messages.
    pub(crate) fn address(&self) -> String {
        match self.socket_path() {
            Some(path) => path.display().to_string(),
            None if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    /// The parameters of the StartupMessage.
    pub(crate) fn startup_parameters(&self) -> Vec<(String, String)> {
        let mut parameters = vec![("user".to_owned(), self.user.clone())];
        let mut add = |name: &str, value: &str| parameters.push((name.into(), value.into()));
        if let Some(database) = &self.database {
            add("database", database);
        }
        if self.replication {
            add("replication", "database");
        }
        if let Some(name) = &self.application_name {
            add("application_name", name);
        }
        let own = |name: &String| name.eq_ignore_ascii_case("client_encoding");
        if !self.parameters.iter().any(|(name, _)| own(name)) {
            add("client_encoding", "UTF8");
        }
        parameters.extend(self.parameters.iter().cloned());
        parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_server() {
        assert_eq!(
            ConnectOptions::new("::1", 5432, "u").address(),
            "[::1]:5432"
        );
        assert_eq!(ConnectOptions::new("h", 1, "u").address(), "h:1");
        let unix = ConnectOptions::new("/run/pg", 5432, "u");
        assert_eq!(unix.address(), "/run/pg/.s.PGSQL.5432");
    }

    #[test]
    fn a_setting_may_replace_the_client_encoding() {
        let mut options = ConnectOptions::new("h", 1, "u");
        let encoding = ("client_encoding".to_owned(), "UTF8".to_owned());
        assert!(options.startup_parameters().contains(&encoding));
        options.parameters = vec![("Client_Encoding".into(), "LATIN1".into())];
        assert!(!options.startup_parameters().contains(&encoding));
    }

    #[test]
    fn hides_the_password() {
        let mut options = ConnectOptions::new("h", 1, "u");
        options.password = Some("secret".into());
        assert!(!format!("{options:?}").contains("secret"));
    }
}
