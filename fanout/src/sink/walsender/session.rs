//! One client's session: log-in, then statement after statement until it leaves.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use pg_client::Password;
use pg_proto::replication::{command_keyword, parse_command};
use pg_proto::wire::{
    Authentication, BackendMessage, ErrorFields, FieldDescription, FrontendMessage,
    ReplicationMode, StartupMessage, TransactionStatus, sqlstate,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::authentication::{Admitted, NotAdmitted, admit};
use super::backends::Backend;
use super::client::{Client, ClientFrame, ReceiveError};
use super::endpoint::Shared;
use super::login::{Login, negotiation};
use super::opening::Opened;
use super::parameters::Parameters;
use super::replication_role;
use super::snapshot::Exported;
use super::source::Source;
use super::sql::Prepared;
use super::upstream::{Upstream, lost};
use crate::auth::Access;
use crate::positions::Lease;

/// How long a client may take to read the last that it is told.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A message of the client, the end of its connection, or what is wrong with it.
type Received = Result<Option<ClientFrame>, ReceiveError>;

/// What comes after a message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// The next one.
    Next,
    /// The end of the connection.
    End,
}

/// One client's session.
pub(super) struct Session<'a> {
    pub(super) shared: &'a Shared,
    pub(super) client: Client,
    pub(super) login: Login,
    pub(super) peer: SocketAddr,
    pub(super) backend: Backend,
    pub(super) source: Source,
    pub(super) parameters: Parameters,
    pub(super) wal_sender_timeout: Option<Duration>,
    /// The source has said that the role may do what this session is for.
    pub(super) role_is_known: bool,
    /// The connection to the source on which this client's SQL runs, once it has sent some.
    pub(super) upstream: Upstream,
    /// Temporary slots that this session made and keeps; they go with it.
    pub(super) temporary: BTreeMap<String, Lease>,
    /// The snapshot that the last command exported.
    pub(super) exported: Option<Box<Exported>>,
    /// Prepared statements and portals about slots.
    pub(super) prepared: Prepared,
    /// Cancelled when another session ends this one.
    pub(super) terminated: CancellationToken,
    /// A message that was read and belongs to what comes next.
    pub(super) unread: Option<ClientFrame>,
    /// After an error in the extended protocol everything is ignored up to Sync.
    pub(super) skip_to_sync: bool,
    /// The last message led to an error, here or at the source.
    pub(super) had_error: bool,
}

/// Who is there, and under which rules.
pub(super) struct Caller<'a> {
    pub(super) peer: SocketAddr,
    pub(super) access: &'a Access,
    /// By then it has to be let in.
    pub(super) deadline: Instant,
}

/// Tells a client why it can't have a session.
pub(super) async fn refuse(client: &mut Client, error: ErrorFields) {
    client.sender.error(error);
    close(client).await;
}

/// Writes what waits and ends the connection in order. A client that does not read it does not want to know.
async fn close(client: &mut Client) {
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, client.sender.close()).await;
}

/// Serves a client that sent its start-up packet.
pub(super) async fn run(shared: &Shared, opened: Opened, caller: Caller<'_>) {
    let Opened {
        mut client,
        startup,
        encryption,
    } = opened;
    let peer = caller.peer;
    if let Some(message) = negotiation(&startup) {
        client.sender.put(&message);
    }
    let admission = async {
        let admission = admit(&mut client, &startup, caller.access, peer.ip(), &encryption);
        let admitted = admission.await?;
        Ok(Session::log_in(shared, admitted, peer).await?)
    };
    let admitted = tokio::select! {
        admitted = tokio::time::timeout_at(caller.deadline, admission) => admitted,
        () = shared.shutdown.cancelled() => Ok(Err(administrator().into())),
    };
    let logged_in: Result<LogIn<'_>, NotAdmitted> = match admitted {
        Ok(logged_in) => logged_in,
        Err(_) => return tracing::info!(%peer, "the client did not log in in time"),
    };
    let mut session = match logged_in {
        Ok(log_in) => log_in.with(client),
        Err(error) => return turn_away(&mut client, peer, &startup, error).await,
    };
    tracing::debug!(
        %peer, pid = session.backend.pid(), user = session.login.user,
        application_name = session.login.application_name(), encrypted = encryption.is_on(),
        "session begins"
    );
    if let Err(error) = session.serve().await {
        tracing::debug!(%peer, %error, "the client's connection broke");
    }
    session.end().await;
    close(&mut session.client).await;
    tracing::debug!(%peer, pid = session.backend.pid(), "session ends");
}

/// Ends the connection of a client that was not let in.
async fn turn_away(
    client: &mut Client,
    peer: SocketAddr,
    startup: &StartupMessage,
    error: NotAdmitted,
) {
    let user = startup.parameter("user").unwrap_or_default();
    let report = match error {
        NotAdmitted::Told(report) => *report,
        NotAdmitted::Broken(error) => match error.report() {
            Some(report) => report,
            None => return tracing::debug!(%peer, user, %error, "the client left at log-in"),
        },
    };
    let detail = report.detail().unwrap_or_default();
    tracing::info!(%peer, user, error = %report.message(), detail, "connection refused");
    refuse(client, report).await;
}

/// What a session is told that an operator ends.
pub(super) fn administrator() -> ErrorFields {
    ErrorFields::fatal(
        sqlstate::ADMIN_SHUTDOWN,
        "terminating connection due to administrator command",
    )
}

fn not_here(what: &str) -> ErrorFields {
    ErrorFields::error(
        sqlstate::PROTOCOL_VIOLATION,
        format!("{what} not supported in a replication connection"),
    )
}

/// Everything of a session but its socket.
struct LogIn<'a> {
    shared: &'a Shared,
    login: Login,
    source_password: Option<Password>,
    peer: SocketAddr,
    backend: Backend,
    source: Source,
    parameters: Parameters,
    wal_sender_timeout: Option<Duration>,
    role_is_known: bool,
}

impl<'a> LogIn<'a> {
    fn with(self, client: Client) -> Session<'a> {
        let upstream = Upstream::new(
            &self.shared.services.config.source,
            &self.login,
            &self.source,
            self.source_password,
        );
        Session {
            shared: self.shared,
            terminated: self.backend.terminated(),
            client,
            login: self.login,
            peer: self.peer,
            backend: self.backend,
            source: self.source,
            parameters: self.parameters,
            wal_sender_timeout: self.wal_sender_timeout,
            role_is_known: self.role_is_known,
            upstream,
            temporary: BTreeMap::new(),
            exported: None,
            prepared: Prepared::default(),
            unread: None,
            skip_to_sync: false,
            had_error: false,
        }
    }
}

impl<'a> Session<'a> {
    async fn log_in(
        shared: &'a Shared,
        admitted: Admitted,
        peer: SocketAddr,
    ) -> Result<LogIn<'a>, ErrorFields> {
        let login = admitted.login;
        let default = Duration::from_millis(shared.services.config.fanout.wal_sender_timeout_ms);
        let wal_sender_timeout = login.wal_sender_timeout(default)?;
        let source = Source::of(&shared.services.replay)?;
        let admitted_role = replication_role::admit(&shared.services, &login, source.version);
        let role = admitted_role.await?;
        if login.mode == ReplicationMode::Database && login.database != source.database {
            let message = format!("database \"{}\" does not exist", login.database);
            return Err(
                ErrorFields::fatal(sqlstate::INVALID_CATALOG_NAME, message).with_detail(format!(
                    "The changes of database \"{}\" are served here.",
                    source.database
                )),
            );
        }
        let backend = shared.backends.register(&login.user).ok_or_else(|| {
            ErrorFields::fatal(
                sqlstate::INTERNAL_ERROR,
                "could not generate random cancel key",
            )
        })?;
        let parameters = Parameters::of_session(source.version, &source.parameters, &login);
        Ok(LogIn {
            shared,
            login,
            source_password: admitted.source_password,
            peer,
            backend,
            source,
            parameters,
            wal_sender_timeout,
            role_is_known: role.is_ok(),
        })
    }

    async fn serve(&mut self) -> Result<(), ReceiveError> {
        self.greet();
        loop {
            let received = match self.unread.take() {
                Some(frame) => Ok(Some(frame)),
                None => match self.wait().await? {
                    Some(received) => received,
                    None => break,
                },
            };
            let flow = match received {
                Ok(Some(frame)) => self.message(&frame).await?,
                Ok(None) => Flow::End,
                Err(error) => {
                    let report = error.report().ok_or(error)?;
                    self.client.sender.error(report);
                    Flow::End
                }
            };
            if flow == Flow::End {
                break;
            }
            // As after every error at PostgreSQL (`ReplicationSlotCleanup`).
            if std::mem::take(&mut self.had_error) {
                self.drop_temporary().await;
            }
        }
        Ok(self.client.sender.flush().await?)
    }

    /// The client's next message; `None`: the session ends, and the client was told why. What the source says unasked, such
    /// as a notification, is passed on meanwhile.
    async fn wait(&mut self) -> io::Result<Option<Received>> {
        loop {
            self.client.sender.flush().await?;
            tokio::select! {
                received = self.client.receiver.next() => return Ok(Some(received)),
                () = self.shared.shutdown.cancelled() => {
                    self.client.sender.error(administrator());
                    return Ok(None);
                }
                () = self.terminated.cancelled() => {
                    self.client.sender.error(administrator());
                    return Ok(None);
                }
                frame = self.upstream.unasked() => match frame {
                    Ok(frame) if frame.tag() != b'E' => {
                        self.client.sender.put_raw(&frame.wire_bytes());
                    }
                    // The next statement finds another connection.
                    Ok(_) | Err(_) if self.upstream.is_dispensable() && self.is_replication() => {
                        self.upstream.drop_connection();
                    }
                    Ok(frame) => {
                        self.upstream.drop_connection();
                        self.client.sender.put_raw(&frame.wire_bytes());
                        return Ok(None);
                    }
                    Err(error) => {
                        self.upstream.drop_connection();
                        self.client.sender.error(lost(&error));
                        return Ok(None);
                    }
                },
            }
        }
    }

    fn greet(&mut self) {
        let sender = &mut self.client.sender;
        sender.put(&BackendMessage::Authentication(Authentication::Ok));
        for (name, value) in self.parameters.iter() {
            sender.put(&BackendMessage::ParameterStatus {
                name: name.as_bytes(),
                value: value.as_bytes(),
            });
        }
        sender.put(&BackendMessage::BackendKeyData {
            pid: self.backend.pid(),
            key: &self.backend.key(),
        });
        sender.ready(TransactionStatus::Idle);
    }

    async fn message(&mut self, frame: &ClientFrame) -> Result<Flow, ReceiveError> {
        let Some(message) = frame.message() else {
            self.client.sender.error(ErrorFields::fatal(
                sqlstate::PROTOCOL_VIOLATION,
                format!("invalid frontend message type {}", frame.tag()),
            ));
            return Ok(Flow::End);
        };
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                let report = ReceiveError::from(error).report();
                self.client.sender.error(report.unwrap_or_default());
                return Ok(Flow::End);
            }
        };
        match message {
            FrontendMessage::Terminate => return Ok(Flow::End),
            FrontendMessage::Sync => {
                self.skip_to_sync = false;
                self.client.sender.ready(self.upstream.status());
            }
            _ if self.skip_to_sync => {}
            FrontendMessage::Query(text) => return Ok(self.query(text).await?),
            FrontendMessage::Extended(_) if self.is_replication() => {
                self.skip_to_sync = true;
                self.fail(not_here("extended query protocol")).await;
            }
            FrontendMessage::FunctionCall if self.is_replication() => {
                let error = not_here("fastpath function calls");
                return Ok(self.conclude(Err(error)).await?);
            }
            FrontendMessage::Extended(_) | FrontendMessage::FunctionCall => {
                return Ok(Box::pin(self.extended(frame.clone())).await?);
            }
            // A client may still send what belongs to a COPY that has ended for the server already.
            FrontendMessage::CopyData(_)
            | FrontendMessage::CopyDone
            | FrontendMessage::CopyFail(_)
            | FrontendMessage::Flush => {}
            FrontendMessage::AuthenticationResponse(_) => {
                self.client.sender.error(ErrorFields::fatal(
                    sqlstate::PROTOCOL_VIOLATION,
                    "invalid frontend message type 112",
                ));
                return Ok(Flow::End);
            }
        }
        Ok(Flow::Next)
    }

    fn is_replication(&self) -> bool {
        self.login.mode != ReplicationMode::Off
    }

    async fn query(&mut self, text: &[u8]) -> io::Result<Flow> {
        self.end_export().await;
        if text.iter().all(|byte| b"; \t\n\r\x0b\x0c".contains(byte)) {
            self.client.sender.put(&BackendMessage::EmptyQueryResponse);
            return self.conclude(Ok(())).await;
        }
        let words = std::str::from_utf8(text).ok();
        let known = words.filter(|words| {
            // A command that the announced version does not have is SQL to it, and an error of its parser.
            let keyword = command_keyword(words);
            self.is_replication() && keyword.is_some_and(|keyword| self.knows(keyword))
        });
        match known.and_then(parse_command) {
            Some(Ok(command)) => self.command(command, text).await,
            Some(Err(error)) => {
                let error = ErrorFields::error(sqlstate::SYNTAX_ERROR, error.message);
                self.conclude(Err(error)).await
            }
            None => self.sql(text).await,
        }
    }

    /// Ends a statement: its error if it failed, then the state of the transaction.
    pub(super) async fn conclude(&mut self, result: Result<(), ErrorFields>) -> io::Result<Flow> {
        let mut flow = Flow::Next;
        if let Err(error) = result {
            if error.is_fatal() {
                flow = Flow::End;
            }
            self.fail(error).await;
        }
        if flow == Flow::Next {
            self.client.sender.ready(self.upstream.status());
        }
        Ok(flow)
    }

    /// An error that was found here fails the transaction that is open at the source, as it would have there.
    pub(super) async fn fail(&mut self, error: ErrorFields) {
        tracing::debug!(peer = %self.peer, error = %error.message(), code = error.code(), "statement failed");
        self.client.sender.error(error);
        self.had_error = true;
        self.upstream.fail_transaction().await;
    }

    /// A result of one row.
    pub(super) fn row(
        &mut self,
        columns: Vec<FieldDescription<'_>>,
        values: &[Option<&str>],
        tag: &str,
    ) {
        let values = values
            .iter()
            .map(|value| value.map(str::as_bytes))
            .collect();
        self.client
            .sender
            .put(&BackendMessage::RowDescription(columns));
        self.client.sender.put(&BackendMessage::DataRow(values));
        self.client.sender.complete(tag);
    }

    async fn drop_temporary(&mut self) {
        for slot in std::mem::take(&mut self.temporary).into_values() {
            let name = slot.slot().name.clone();
            if let Err(error) = slot.release().await {
                tracing::warn!(slot = name, %error, "can't drop a temporary slot; it goes when its lease runs out");
            }
        }
    }

    /// Gives back what the session holds.
    async fn end(&mut self) {
        self.drop_temporary().await;
        self.end_export().await;
        self.upstream.close().await;
    }
}
