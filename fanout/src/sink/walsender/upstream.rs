//! This client's own connection to the source, for the SQL that only the source can answer.
//!
//! It is opened when the first such statement comes, as the client's user, to its database, with its settings,
//! with the password that the users file has for it, and never with the decoder's rights: what the client may do
//! there is what its own role may do. A subscriber that
//! only streams never has one.

use pg_client::{
    ConnectError, ConnectOptions, Connection, Error, Password, RawFrame, TransactionStatus,
};
use pg_proto::wire::{ErrorFields, ReplicationMode, sqlstate};
use service::config;

use super::login::Login;
use super::source::Source;

/// Fails at the source, so that the transaction there is aborted, and says in its log why.
const FAIL_TRANSACTION: &str = "ROLLBACK TO SAVEPOINT a_replication_command_failed";

/// Where an error comes from that has nothing to do with the statement itself.
const CONNECTING: &str = "connecting to the source for this statement";

/// The connection, open or not.
#[derive(Debug)]
pub(super) struct Upstream {
    options: ConnectOptions,
    connection: Option<Connection>,
    /// A statement answered here that the source has to hear of when it is asked something.
    replayed: Option<String>,
    /// Whether statements changed something that lives as long as the connection.
    has_state: bool,
}

impl Upstream {
    /// Not open yet.
    pub(super) fn new(
        config: &config::Source,
        login: &Login,
        source: &Source,
        password: Option<Password>,
    ) -> Self {
        let mut options = ConnectOptions::new(&config.host, config.port, &login.user);
        options.password = password;
        options.database = Some(if login.mode == ReplicationMode::Physical {
            source.database.clone()
        } else {
            login.database.clone()
        });
        options.sslmode = config.sslmode.into();
        options.sslrootcert.clone_from(&config.sslrootcert);
        options.connect_timeout = std::time::Duration::from_millis(config.connect_timeout_ms);
        options.parameters.clone_from(&login.settings);
        if login.setting("client_encoding").is_none()
            && let Some(encoding) = source.parameters.get("server_encoding")
        {
            let own = ("client_encoding".to_owned(), encoding.clone());
            options.parameters.push(own);
        }
        Self {
            options,
            connection: None,
            replayed: None,
            has_state: false,
        }
    }

    /// How this client is connected.
    pub(super) const fn options(&self) -> &ConnectOptions {
        &self.options
    }

    /// The state of the transaction: that of the source, or none.
    pub(super) fn status(&self) -> TransactionStatus {
        let open = self.connection.as_ref();
        open.map_or(TransactionStatus::Idle, Connection::transaction_status)
    }

    /// Whether the client has a connection to the source.
    pub(super) const fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Has `statement` run whenever a connection is opened, before anything else.
    pub(super) fn replay(&mut self, statement: &str) {
        self.replayed = Some(statement.to_owned());
    }

    /// The connection, opened if need be.
    pub(super) async fn open(&mut self) -> Result<&mut Connection, ErrorFields> {
        if self.connection.is_none() {
            let connecting = Box::pin(Connection::connect(&self.options));
            let mut connection = connecting
                .await
                .map_err(|error| not_connected(&error, &self.options))?;
            if let Some(statement) = &self.replayed {
                let replayed = connection.simple_query(statement).await;
                replayed.map_err(|error| lost(&error))?;
            }
            self.connection = Some(connection);
        }
        self.connection.as_mut().ok_or_else(no_connection)
    }

    /// The connection, if it is open.
    pub(super) const fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// What the source says without having been asked. Cancel safe.
    pub(super) async fn unasked(&mut self) -> Result<RawFrame, Error> {
        match &mut self.connection {
            Some(connection) => connection.next_frame().await,
            None => std::future::pending().await,
        }
    }

    /// Whether closing the connection loses nothing.
    pub(super) fn is_dispensable(&self) -> bool {
        !self.has_state && self.status() == TransactionStatus::Idle
    }

    /// Notes what a statement was, by its command tag.
    pub(super) fn completed(&mut self, tag: &[u8]) {
        const WITHOUT_STATE: [&[u8]; 6] = [
            b"SELECT",
            b"SHOW",
            b"COPY",
            b"BEGIN",
            b"COMMIT",
            b"ROLLBACK",
        ];
        let word = tag.split(|byte| *byte == b' ').next().unwrap_or(tag);
        self.has_state |= !WITHOUT_STATE.contains(&word);
    }

    /// Closes the connection if nothing is lost by it: a subscriber that streams for days needs none.
    pub(super) async fn set_aside(&mut self) {
        if self.is_dispensable() {
            self.close().await;
        }
    }

    /// Aborts the transaction that is open at the source, if there is one.
    pub(super) async fn fail_transaction(&mut self) {
        if self.status() != TransactionStatus::Transaction {
            return;
        }
        if let Some(connection) = &mut self.connection
            && !matches!(
                connection.simple_query(FAIL_TRANSACTION).await,
                Err(Error::Server(_))
            )
        {
            self.connection = None;
        }
    }

    /// Forgets the connection without a word.
    pub(super) fn drop_connection(&mut self) {
        self.connection = None;
    }

    /// Ends the connection.
    pub(super) async fn close(&mut self) {
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "the connection to the source did not end in order");
        }
    }
}

/// An error and all that led to it, in one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The source can't be asked. What it said itself is passed on as it is.
pub(super) fn not_connected(error: &ConnectError, options: &ConnectOptions) -> ErrorFields {
    let user = &options.user;
    if let Some(said) = error.server() {
        let mut report = ErrorFields::error(said.code(), said.message());
        if let Some(detail) = said.detail() {
            report = report.with_detail(detail);
        }
        let is_access = matches!(
            said.code(),
            sqlstate::INVALID_PASSWORD | sqlstate::INVALID_AUTHORIZATION_SPECIFICATION
        );
        if let Some(hint) = said.hint() {
            report = report.with_hint(hint);
        } else if is_access && options.password.is_some() {
            report = report.with_hint(format!(
                "The password of \"{user}\" at the source is the third field of its line in \
                 fanout.users_file."
            ));
        } else if is_access {
            report = report.with_hint(password_hint(user));
        }
        return report.with_context(CONNECTING);
    }
    if let ConnectError::PasswordMissing { .. } = error {
        let message = format!("password authentication failed for user \"{user}\"");
        return ErrorFields::error(sqlstate::INVALID_PASSWORD, message)
            .with_detail("The source asks for this user's password, which is not known here.")
            .with_hint(password_hint(user))
            .with_context(CONNECTING);
    }
    no_connection().with_detail(with_causes(error))
}

fn password_hint(user: &str) -> String {
    format!(
        "Give the password of \"{user}\" at the source as the third field of its line in \
         fanout.users_file, or let the source trust this fanout's host."
    )
}

fn no_connection() -> ErrorFields {
    ErrorFields::error(
        sqlstate::CONNECTION_FAILURE,
        "could not connect to the source",
    )
    .with_hint(
        "Changes are served from the log also while the source is away; this statement needs the source.",
    )
}

/// The connection broke while the source was being asked.
pub(super) fn lost(error: &Error) -> ErrorFields {
    ErrorFields::fatal(
        sqlstate::CONNECTION_FAILURE,
        "terminating connection because the connection to the source was lost",
    )
    .with_detail(with_causes(error))
    .with_hint("Reconnect and try again.")
}
