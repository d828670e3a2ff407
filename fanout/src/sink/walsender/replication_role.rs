//! The attribute REPLICATION, which the role of a walsender must have.
//!
//! As at PostgreSQL it is looked at when the session begins (`InitPostgres` in `postinit.c`). While the source is away, a role
//! that it was never asked for gets a session in which it can only go on with a slot that it made itself, for which
//! it had to have the attribute, or that an operator made for it (`decctl slot create --owner`). A subscriber thus survives an outage of the source in which its fanout is started anew.

use pg_proto::replication::Command;
use pg_proto::wire::{ErrorFields, ReplicationMode, sqlstate};

use super::login::Login;
use super::session::Session;
use super::version::ServerVersion;
use crate::auth::{NotAsked, Role};
use crate::sink::Services;

/// Whether the role of a session is known to be allowed what the session is for; an error if it is not allowed.
pub(super) async fn admit(
    services: &Services,
    login: &Login,
    version: ServerVersion,
) -> Result<Result<(), NotAsked>, ErrorFields> {
    if login.mode == ReplicationMode::Off {
        // Each of its statements is for the source to judge.
        return Ok(Ok(()));
    }
    let user = &login.user;
    let no_entry = |message| {
        let code = sqlstate::INVALID_AUTHORIZATION_SPECIFICATION;
        Err(ErrorFields::fatal(code, message))
    };
    match services.roles.look_up(user).await {
        Ok(Role::Replication) => Ok(Ok(())),
        Ok(Role::Plain) => Err(version.may_not_start_walsender()),
        Ok(Role::NoLogin) => no_entry(format!("role \"{user}\" is not permitted to log in")),
        Ok(Role::Missing) => no_entry(format!("role \"{user}\" does not exist")),
        Err(error) => Ok(Err(error)),
    }
}

impl Session<'_> {
    /// Whether the session's role may have this command run.
    pub(super) async fn require_replication_role(
        &mut self,
        command: &Command,
    ) -> Result<(), ErrorFields> {
        let is_harmless = matches!(command, Command::IdentifySystem | Command::Show(_));
        if self.role_is_known || is_harmless {
            return Ok(());
        }
        let services = &self.shared.services;
        let error = match admit(services, &self.login, self.source.version).await? {
            Ok(()) => {
                self.role_is_known = true;
                return Ok(());
            }
            Err(error) => error,
        };
        if let Command::StartLogical { slot, .. } = command {
            let found = services.positions.slot(slot).await;
            let found = found.map_err(|error| self.slot_error(&error))?;
            // An unknown slot has an error of its own.
            let is_own = |creator: &str| !creator.is_empty() && creator == self.login.user;
            if found.is_none_or(|found| is_own(&found.creator)) {
                return Ok(());
            }
        }
        Err(not_known(&self.login.user, &error))
    }
}

fn not_known(user: &str, error: &NotAsked) -> ErrorFields {
    let message = format!("could not find out whether role \"{user}\" may replicate");
    ErrorFields::error(sqlstate::CONNECTION_FAILURE, message)
        .with_detail(error.to_string())
        .with_hint(
            "Until the source answers, a role can only stream from slots that it made itself, or that \
             were made for it (decctl slot create --owner).",
        )
}
