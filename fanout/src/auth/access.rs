//! The rules of the configuration, and reading them again.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use service::config::{self, Tls};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::grants::{Grant, Grants, GrantsError};
use super::tls::{ServerTls, TlsError};
use super::users::{Users, UsersError};

/// The settings for access can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// TLS without a certificate.
    #[error(
        "fanout.tls is not \"disable\": fanout.tls_cert_file and fanout.tls_key_file must be set"
    )]
    NoCertificate,
    /// Everybody is trusted, and everybody could come.
    #[error(
        "{setting} is {address}, and without fanout.users_file everybody is trusted: set that file, \
         or listen on a loopback address"
    )]
    TrustBeyondLoopback {
        /// The setting.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Calls carry passwords, and everybody on the way could read them.
    #[error(
        "fanout.grpc is {address} and fanout.tls is \"disable\": calls would carry passwords unencrypted; \
         set fanout.tls, or listen on a loopback address"
    )]
    PasswordsUnencrypted {
        /// The address.
        address: SocketAddr,
    },
    /// The certificate or its key (`fanout.tls_cert_file`, `fanout.tls_key_file`).
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The users file (`fanout.users_file`).
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The grants file (`fanout.grants_file`).
    #[error(transparent)]
    Grants(#[from] GrantsError),
}

/// Who may connect.
#[derive(Clone, Debug)]
pub struct Access {
    tls: Option<ServerTls>,
    tls_required: bool,
    users: Option<Users>,
    grants: Option<Arc<Grants>>,
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug)]
pub enum Admission<'a> {
    /// It is believed.
    Trusted,
    /// It has to prove that it is one of these.
    MustProve(&'a Users),
}

/// A connection that the rules have no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// From another host, where everybody is trusted.
    #[error(
        "Without users (fanout.users_file) this endpoint serves clients on the same host only."
    )]
    Stranger,
    /// Not encrypted.
    #[error("This endpoint accepts encrypted connections only (fanout.tls).")]
    NotEncrypted,
}

impl Access {
    /// Reads what the settings name.
    pub fn load(settings: &config::Fanout) -> Result<Self, AccessError> {
        let users = settings.users_file.as_deref().map(load_users).transpose()?;
        let grants = settings.grants_file.as_deref();
        let grants = grants.map(Grants::load).transpose()?;
        let is_open = |address: SocketAddr| !is_same_host(address.ip());
        let listening = [
            ("fanout.postgres", settings.postgres),
            ("fanout.grpc", settings.grpc),
        ];
        let open = listening.into_iter().find(|(_, address)| is_open(*address));
        if let Some((setting, address)) = open.filter(|_| users.is_none()) {
            return Err(AccessError::TrustBeyondLoopback { setting, address });
        }
        if settings.tls == Tls::Disable && is_open(settings.grpc) {
            let address = settings.grpc;
            return Err(AccessError::PasswordsUnencrypted { address });
        }
        let tls = match (
            settings.tls,
            &settings.tls_cert_file,
            &settings.tls_key_file,
        ) {
            (Tls::Disable, ..) => None,
            (_, Some(certificate), Some(key)) => Some(ServerTls::load(certificate, key)?),
            _ => return Err(AccessError::NoCertificate),
        };
        Ok(Self {
            tls,
            tls_required: settings.tls == Tls::Require,
            users,
            grants: grants.map(Arc::new),
        })
    }

    /// What a role may read; `None`: there are no grants, and everybody may read everything.
    #[must_use]
    pub fn grant_of(&self, role: &str) -> Option<Arc<Grant>> {
        self.grants.as_ref().map(|grants| grants.of(role))
    }

    /// What TLS begins with, if there is TLS.
    #[must_use]
    pub const fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    /// Whether connections without TLS are refused.
    #[must_use]
    pub const fn requires_tls(&self) -> bool {
        self.tls_required
    }

    /// Whether and how a connection may go on.
    pub fn admit(&self, peer: IpAddr, encrypted: bool) -> Result<Admission<'_>, Rejected> {
        if self.tls_required && !encrypted {
            return Err(Rejected::NotEncrypted);
        }
        match &self.users {
            Some(users) => Ok(Admission::MustProve(users)),
            None if is_same_host(peer) => Ok(Admission::Trusted),
            None => Err(Rejected::Stranger),
        }
    }
}

/// Whether an address is one of this host that no other one can reach.
#[must_use]
pub fn is_same_host(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn load_users(path: &Path) -> Result<Users, UsersError> {
    let users = Users::load(path)?;
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if users.has_passwords() && mode & 0o007 != 0 {
        let path = path.display();
        tracing::warn!(%path, "the users file holds passwords and can be read by everybody");
    }
    Ok(users)
}

/// The rules in force. A connection keeps those with which it began.
#[derive(Debug)]
pub struct Guard {
    settings: config::Fanout,
    current: RwLock<Arc<Access>>,
}

impl Guard {
    /// Reads the rules for the first time.
    pub fn new(settings: &config::Fanout) -> Result<Arc<Self>, AccessError> {
        let access = Access::load(settings)?;
        Ok(Arc::new(Self {
            settings: settings.clone(),
            current: RwLock::new(Arc::new(access)),
        }))
    }

    /// The rules in force.
    #[must_use]
    pub fn current(&self) -> Arc<Access> {
        Arc::clone(&self.current.read())
    }

    /// Reads certificate, key, users and grants again. Unless all of them can be used nothing changes.
    pub fn reload(&self) -> Result<(), AccessError> {
        let access = Arc::new(Access::load(&self.settings)?);
        *self.current.write() = access;
        Ok(())
    }

    /// Reads them again at every SIGHUP, until `stop` is cancelled. Must be called inside a tokio runtime; from
    /// then on the signal ends no process.
    pub fn reload_on_hangup(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
        let mut hangup = signal(SignalKind::hangup())?;
        Ok(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = hangup.recv() => match self.reload() {
                        Ok(()) => tracing::info!("certificate, users and grants are read again"),
                        Err(error) => {
                            let reason = service::cli::causes(&error);
                            tracing::error!(reason, "certificate, users and grants stay as they were");
                        }
                    }
                }
            }
        })
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
