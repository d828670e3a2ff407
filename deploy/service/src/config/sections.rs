//! The sections and their defaults. The README's table and `deploy/decant.toml` are checked against these.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The database that is decoded.
    pub source: Source,
    /// The log directory.
    pub log: Log,
    /// The decoder.
    pub decoder: Decoder,
    /// What is kept.
    pub retention: Retention,
    /// A fanout.
    pub fanout: Fanout,
    /// Log output.
    pub telemetry: Telemetry,
}

/// The database that is decoded.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Source {
    /// Host name or address, or the folder of a Unix socket if it begins with a slash.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Where the primary is if the source is a standby; host as above. Empty: the source is a primary.
    pub primary_host: String,
    /// The primary's port; 0: the same as the source's.
    pub primary_port: u16,
    /// Role of the decoder; it needs REPLICATION.
    pub user: String,
    /// Its password.
    #[serde(skip_serializing)]
    pub password: Option<String>,
    /// A file with its password, without the last line end.
    pub password_file: Option<PathBuf>,
    /// Database.
    pub database: String,
    /// The one logical replication slot that Decant has at the source.
    pub slot: String,
    /// The publication that the slot's stream follows.
    pub publication: String,
    /// Whether `decctl init` makes the slot for two-phase commit.
    pub two_phase: TwoPhase,
    /// Whether and how far TLS is asked for, as libpq's `sslmode`.
    pub sslmode: SslMode,
    /// Certificates of the authorities that are trusted (PEM); without it the system's.
    pub sslrootcert: Option<PathBuf>,
    /// Longest time until a connection stands, in milliseconds.
    pub connect_timeout_ms: u64,
}

/// Whether the log gets transactions when they are prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TwoPhase {
    /// If the server can: from version 15 on.
    Auto,
    /// When they commit.
    Off,
}

/// libpq's `sslmode`, without `allow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS if the server has it.
    Prefer,
    /// TLS, whoever the server is.
    Require,
    /// TLS with a certificate of a trusted authority.
    VerifyCa,
    /// The same, and for the host that was asked for.
    VerifyFull,
}

/// The log directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Where it is.
    pub directory: PathBuf,
    /// A segment is finished when it has this size, in bytes.
    pub segment_bytes: u64,
    /// zstd level of sealed segments, 1 to 19.
    pub zstd_level: i32,
}

/// The decoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Decoder {
    /// Address of the control service (gRPC).
    pub control: SocketAddr,
    /// Address for metrics and health (HTTP).
    pub http: SocketAddr,
    /// Memory for transactions that are not committed yet, in bytes; what is more is on disk.
    pub staging_memory_bytes: u64,
    /// Shortest time between two status updates to the source that only say that more is durable, in milliseconds.
    pub feedback_interval_ms: u64,
    /// Shortest time between two records which say that the source moved on without changes, in milliseconds.
    pub progress_interval_ms: u64,
    /// How often the publications are looked at where event triggers are missing, in milliseconds.
    pub catalog_poll_ms: u64,
}

/// What is kept although no slot needs it, and what is not kept although one does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// At least this many bytes of the newest segments stay.
    pub keep_bytes: u64,
    /// Segments younger than this stay, in seconds.
    pub keep_seconds: u64,
    /// Slots that would keep more sealed bytes than this are invalidated; 0: none is, and one that nobody uses keeps all.
    pub slot_keep_bytes_max: u64,
    /// Slots that would keep segments older than this are invalidated, in seconds; 0: none is.
    pub slot_keep_seconds_max: u64,
    /// How often the decoder looks for segments that may go, in seconds; 0: only `decctl gc` does.
    pub interval_seconds: u64,
}

/// From where on a fanout serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Serve {
    /// What is fsynced.
    Durable,
    /// What is written.
    Written,
}

/// Whether clients of a fanout's PostgreSQL endpoint may or must encrypt their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// There is no TLS.
    Disable,
    /// As the client likes.
    Allow,
    /// A connection without TLS is refused.
    Require,
}

/// A fanout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fanout {
    /// Its name; two fanouts of one decoder need different ones.
    pub name: String,
    /// Address of the PostgreSQL endpoint.
    pub postgres: SocketAddr,
    /// Whether its connections may or must be encrypted.
    pub tls: Tls,
    /// Its certificate, followed by those of intermediate authorities (PEM).
    pub tls_cert_file: Option<PathBuf>,
    /// The certificate's private key (PEM).
    pub tls_key_file: Option<PathBuf>,
    /// Who may connect to it, with SCRAM verifiers; without it clients on the same host are trusted.
    pub users_file: Option<PathBuf>,
    /// What roles may read, everything else denied; without it everybody may read everything.
    pub grants_file: Option<PathBuf>,
    /// Address of the gRPC service.
    pub grpc: SocketAddr,
    /// Address for metrics and health (HTTP).
    pub http: SocketAddr,
    /// The decoder's control service.
    pub decoder: String,
    /// Whether subscribers get what is durable, or already what is written.
    pub serve: Serve,
    /// Memory for decompressed blocks, in bytes.
    pub cache_bytes: u64,
    /// A PostgreSQL client that says nothing for this long is dropped, in milliseconds; 0: never.
    pub wal_sender_timeout_ms: u64,
    /// Most bytes that wait for one subscriber's socket.
    pub subscriber_buffer_bytes: u64,
    /// Most PostgreSQL connections at a time.
    pub max_connections: u32,
    /// How many snapshots are tried until one fits the log; then the source makes one with a temporary slot.
    pub snapshot_tries: u32,
    /// How long the log may stand still while a snapshot waits for it, in milliseconds.
    pub snapshot_wait_ms: u64,
}

/// Form of the log output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Log output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// Level, or directives such as `info,fanout::sink=debug`.
    pub log: String,
    /// Form.
    pub format: Format,
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Default for Source {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 5432,
            primary_host: String::new(),
            primary_port: 0,
            user: "postgres".to_owned(),
            password: None,
            password_file: None,
            database: "postgres".to_owned(),
            slot: "decant".to_owned(),
            publication: "decant".to_owned(),
            two_phase: TwoPhase::Auto,
            sslmode: SslMode::Prefer,
            sslrootcert: None,
            connect_timeout_ms: 10_000,
        }
    }
}

/// Leaves the password out.
impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("primary_host", &self.primary_host)
            .field("primary_port", &self.primary_port)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("slot", &self.slot)
            .field("publication", &self.publication)
            .field("sslmode", &self.sslmode)
            .finish_non_exhaustive()
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            directory: PathBuf::from("decant-log"),
            segment_bytes: 64 << 20,
            zstd_level: 1,
        }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            control: loopback(7400),
            http: loopback(7401),
            staging_memory_bytes: 32 << 20,
            feedback_interval_ms: 100,
            progress_interval_ms: 1_000,
            catalog_poll_ms: 2_000,
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            keep_bytes: 1 << 30,
            keep_seconds: 0,
            slot_keep_bytes_max: 0,
            slot_keep_seconds_max: 0,
            interval_seconds: 30,
        }
    }
}

impl Default for Fanout {
    fn default() -> Self {
        Self {
            name: "fanout-1".to_owned(),
            postgres: loopback(6432),
            tls: Tls::Disable,
            tls_cert_file: None,
            tls_key_file: None,
            users_file: None,
            grants_file: None,
            grpc: loopback(7410),
            http: loopback(7411),
            decoder: "http://127.0.0.1:7400".to_owned(),
            serve: Serve::Durable,
            cache_bytes: 64 << 20,
            wal_sender_timeout_ms: 60_000,
            subscriber_buffer_bytes: 1 << 20,
            max_connections: 10_000,
            snapshot_tries: 20,
            snapshot_wait_ms: 30_000,
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            format: Format::Text,
        }
    }
}
