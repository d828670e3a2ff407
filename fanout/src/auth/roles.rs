//! What the source says of a role: whether it may log in, and whether it may replicate.
//!
//! PostgreSQL looks at a role when a walsender starts (`InitPostgres` in `postinit.c`). Here the source is asked with the
//! connection that the configuration names. What it said holds for a moment, so that many subscribers that come
//! back at once cost it one question; and for as long as it can't be asked, so that they come back without it, too.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use pg_client::{ConnectOptions, Connection};
use pg_proto::quote::literal;
use service::config;
use tokio::time::{Instant, timeout};

/// What a fanout calls itself while it asks.
pub(crate) const APPLICATION_NAME: &str = "decant roles";

/// For how long an answer that lets a role in is not asked for again. One that does not is asked for every time.
const FRESH: Duration = Duration::from_secs(5);
/// How long the source has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// For how long a source that did not answer is not asked again.
const AWAY_PAUSE: Duration = Duration::from_secs(2);
/// Roles that are remembered at most; behind them the one that was asked for longest ago is forgotten.
const REMEMBERED_MAX: usize = 1024;

/// A role's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// There is none of this name.
    Missing,
    /// It is not LOGIN.
    NoLogin,
    /// It may log in, but is neither REPLICATION nor SUPERUSER.
    Plain,
    /// It may replicate.
    Replication,
}

/// The source could not be asked, and it has not been asked for this role before.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the source does not say what the role may do: {reason}")]
pub struct NotAsked {
    reason: String,
}

/// The roles of the source.
#[derive(Debug)]
pub struct Roles {
    options: ConnectOptions,
    known: Mutex<HashMap<String, Known>>,
    /// One question at a time; whoever waits mostly finds the answer. Inside: since when the source is away, and why.
    asking: tokio::sync::Mutex<Option<(Instant, NotAsked)>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    role: Role,
    asked: Instant,
}

impl Roles {
    /// Of the source that is configured.
    #[must_use]
    pub fn new(source: &config::Source) -> Self {
        Self {
            options: source.connect_options(APPLICATION_NAME),
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// A role as it is now, or, while the source can't be asked, as it was when it last could.
    pub async fn look_up(&self, name: &str) -> Result<Role, NotAsked> {
        if let Some(role) = self.fresh(name) {
            return Ok(role);
        }
        let mut away = self.asking.lock().await;
        if let Some(role) = self.fresh(name) {
            return Ok(role);
        }
        let error = match &*away {
            Some((since, error)) if since.elapsed() < AWAY_PAUSE => error.clone(),
            _ => match self.ask(name).await {
                Ok(role) => {
                    *away = None;
                    self.remember(name, role, Instant::now());
                    return Ok(role);
                }
                Err(error) => {
                    tracing::warn!(role = name, %error, "can't ask the source for a role");
                    *away = Some((Instant::now(), error.clone()));
                    error
                }
            },
        };
        let known = self.known.lock().get(name).copied();
        known.map(|known| known.role).ok_or(error)
    }

    fn fresh(&self, name: &str) -> Option<Role> {
        let known = self.known.lock().get(name).copied()?;
        (known.role == Role::Replication && known.asked.elapsed() < FRESH).then_some(known.role)
    }

    fn remember(&self, name: &str, role: Role, asked: Instant) {
        let mut known = self.known.lock();
        if role == Role::Missing {
            // Names that anybody makes up take no room.
            known.remove(name);
            return;
        }
        if known.len() >= REMEMBERED_MAX && !known.contains_key(name) {
            let oldest = known.iter().min_by_key(|(_, known)| known.asked);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                known.remove(&name);
            }
        }
        known.insert(name.to_owned(), Known { role, asked });
    }

    async fn ask(&self, name: &str) -> Result<Role, NotAsked> {
        match timeout(ANSWER_TIMEOUT, self.query(name)).await {
            Ok(answer) => answer,
            Err(_) => Err(not_asked(format!(
                "no answer within {} s",
                ANSWER_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn query(&self, name: &str) -> Result<Role, NotAsked> {
        let connecting = Box::pin(Connection::connect(&self.options));
        let mut connection = connecting.await.map_err(broken)?;
        let sql = format!(
            "SELECT rolcanlogin AS login, rolsuper OR rolreplication AS replication \
             FROM pg_catalog.pg_roles WHERE rolname = {}",
            literal(name)
        );
        let answer = connection.simple_query(&sql).await;
        let results = answer.map_err(broken)?;
        if let Err(error) = connection.close().await {
            tracing::debug!(%error, "the connection to the source did not end in order");
        }
        let result = results.first();
        let result = result.ok_or_else(|| not_asked("it gave no result".to_owned()))?;
        let is = |column| result.value(0, column) == Some("t");
        Ok(match (is("login"), is("replication")) {
            _ if result.rows.is_empty() => Role::Missing,
            (false, _) => Role::NoLogin,
            (true, false) => Role::Plain,
            (true, true) => Role::Replication,
        })
    }
}

fn broken(error: impl std::error::Error + 'static) -> NotAsked {
    not_asked(service::cli::causes(&error))
}

const fn not_asked(reason: String) -> NotAsked {
    NotAsked { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a source that is not there.
    fn nowhere() -> Roles {
        let source = config::Source {
            host: "127.0.0.1".to_owned(),
            port: 1,
            ..config::Source::default()
        };
        Roles::new(&source)
    }

    #[tokio::test]
    async fn while_the_source_is_away_what_it_last_said_holds() {
        let roles = nowhere();
        let error = roles.look_up("alice").await.unwrap_err();
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
        roles.remember("alice", Role::Replication, Instant::now());
        roles.remember("bob", Role::Plain, Instant::now());
        assert_eq!(roles.look_up("alice").await.unwrap(), Role::Replication);
        assert_eq!(roles.look_up("bob").await.unwrap(), Role::Plain);
        roles.remember("alice", Role::Missing, Instant::now());
        assert!(roles.look_up("alice").await.is_err());
    }

    #[test]
    fn no_more_roles_are_remembered_than_there_is_room_for() {
        let roles = nowhere();
        let mut asked = Instant::now();
        for number in 0..=REMEMBERED_MAX {
            roles.remember(&number.to_string(), Role::Replication, asked);
            asked += Duration::from_millis(1);
        }
        let known = roles.known.lock();
        assert_eq!(known.len(), REMEMBERED_MAX);
        assert!(!known.contains_key("0") && known.contains_key("1"));
    }
}
