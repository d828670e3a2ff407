//! Who may connect, and how a connection proves who it is.
//!
//! | module | what |
//! |---|---|
//! | [`access`] | the rules of the configuration: encryption, users, trust; read again on SIGHUP |
//! | [`grants`] | what a role may read; read again on SIGHUP |
//! | [`roles`] | what the source says of a role |
//! | [`tls`] | certificate and key, the server's side of the handshake |
//! | [`users`] | the users file |
//! | [`verifier`] | a password as PostgreSQL stores it |
//! | [`password`] | a password that is shown, over gRPC |
//! | [`scram`] | the server's side of SCRAM-SHA-256, without I/O |
//!
//! # Rules
//!
//! Without a users file everybody on the same host is trusted, and nobody else is served. With one, every connection
//! must prove that it knows its user's password. Whether connections may be unencrypted is a setting of its own.
//! A password never crosses a connection of the PostgreSQL endpoint. A call over gRPC shows it, and is believed over TLS or on
//! the same host only. It is never stored: what the users file holds is a verifier.

pub mod access;
pub mod grants;
pub mod password;
pub mod roles;
pub mod scram;
pub mod tls;
pub mod users;
pub mod verifier;

pub use access::{Access, AccessError, Admission, Guard};
pub use grants::{GRPC_ROLE, Grant, Grants, GrantsError};
pub use password::Passwords;
pub use roles::{NotAsked, Role, Roles};
pub use tls::ServerTls;
pub use users::{User, Users};
pub use verifier::Verifier;
