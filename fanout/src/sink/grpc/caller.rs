//! Who calls, and whether it may.
//!
//! With a users file each call has the metadata `authorization: Basic base64(user:password)`. Whoever streams or has to do with slots is a role
//! that may replicate at the source, as at the PostgreSQL endpoint, with the same exception while the source is away. Without
//! a users file clients on the same host are trusted, and all are the role `grpc`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::connection::Peer;
use super::service::FanoutService;
use crate::auth::access::is_same_host;
use crate::auth::{Admission, GRPC_ROLE, NotAsked, Role, Users};

/// Longest header; PostgreSQL takes no longer passwords either.
const HEADER_LEN_MAX: usize = 4096;

/// Who calls.
#[derive(Debug)]
pub(super) struct Caller {
    user: Option<String>,
}

impl Caller {
    /// Whose grants count.
    pub(super) fn role(&self) -> &str {
        self.user.as_deref().unwrap_or(GRPC_ROLE)
    }

    /// Its name, if it has proven one.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl FanoutService {
    /// Who calls: it is known, and may ask what there is.
    pub(super) async fn identify<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let Some(peer) = request.extensions().get::<Peer>().copied() else {
            return Err(Status::internal("a call without a connection"));
        };
        let access = self.services.guard.current();
        let address = peer.address.ip();
        let admission = access.admit(address, peer.encrypted);
        match admission.map_err(|rejected| Status::unauthenticated(rejected.to_string()))? {
            Admission::Trusted => Ok(Caller { user: None }),
            Admission::MustProve(users) => {
                if !peer.encrypted && !is_same_host(address) {
                    let message = "A password is taken over an encrypted connection only (https).";
                    return Err(Status::unauthenticated(message));
                }
                self.prove(users, request.metadata(), peer).await
            }
        }
    }

    /// Who calls: it may stream, and do something with `slot`, or with any if it names none.
    pub(super) async fn admit<T>(
        &self,
        request: &Request<T>,
        slot: Option<&str>,
    ) -> Result<Caller, Status> {
        let caller = self.identify(request).await?;
        let Some(user) = caller.user() else {
            return Ok(caller);
        };
        let message = match self.services.roles.look_up(user).await {
            Ok(Role::Replication) => return Ok(caller),
            Ok(Role::Plain) => format!(
                "role \"{user}\" may not replicate: only roles with the REPLICATION attribute may"
            ),
            Ok(Role::NoLogin) => format!("role \"{user}\" is not permitted to log in"),
            Ok(Role::Missing) => format!("role \"{user}\" does not exist"),
            Err(error) => {
                self.require_own(user, slot, &error).await?;
                return Ok(caller);
            }
        };
        Err(Status::permission_denied(message))
    }

    async fn prove(
        &self,
        users: &Users,
        metadata: &MetadataMap,
        peer: Peer,
    ) -> Result<Caller, Status> {
        let Some((user, password)) = credentials(metadata) else {
            return Err(Status::unauthenticated(
                "This fanout has users: calls need the metadata \"authorization: Basic base64(user:password)\".",
            ));
        };
        if self.passwords.check(users, &user, &password).await {
            return Ok(Caller { user: Some(user) });
        }
        tracing::info!(peer = %peer.address, user, "password authentication failed");
        let message = format!("password authentication failed for user \"{user}\"");
        Err(Status::unauthenticated(message))
    }

    /// While the source can't be asked for a role it never was asked for, that can go on with its own slots.
    async fn require_own(
        &self,
        user: &str,
        slot: Option<&str>,
        error: &NotAsked,
    ) -> Result<(), Status> {
        if let Some(slot) = slot {
            let found = self.services.positions.slot(slot).await?;
            // An unknown slot has an error of its own.
            if found.is_none_or(|found| found.creator == user) {
                return Ok(());
            }
        }
        Err(Status::unavailable(format!(
            "could not find out whether role \"{user}\" may replicate: {error}; until the source answers, a role can only \
             stream from slots that it made itself, or that were made for it"
        )))
    }
}

/// User and password of a call.
fn credentials(metadata: &MetadataMap) -> Option<(String, String)> {
    let header = metadata.get("authorization")?.to_str().ok()?;
    if header.len() > HEADER_LEN_MAX {
        return None;
    }
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str) -> Option<(String, String)> {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", header.parse().ok()?);
        credentials(&metadata)
    }

    #[test]
    fn credentials_are_read_or_not_there() {
        let basic = |text: &str| format!("Basic {}", BASE64.encode(text));
        let read_text = |text: &str| read(&basic(text));
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read_text("alice:secret"), pair("alice", "secret"));
        assert_eq!(read_text("alice:a:b "), pair("alice", "a:b "));
        assert_eq!(read_text("ü:é"), pair("ü", "é"));
        assert_eq!(read("basic YTpi"), pair("a", "b"));
        let long = basic(&format!("a:{}", "x".repeat(5000)));
        for bad in [
            "",
            "Basic",
            "Basic ",
            "Bearer YTpi",
            "Basic ???",
            "Basic YQ==",
            &long,
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(credentials(&MetadataMap::new()), None);
    }
}
