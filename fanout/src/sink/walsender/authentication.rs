//! Who is let in: the rules of access, and the exchange in which a client proves that it knows its user's password.

use std::net::IpAddr;

use aws_lc_rs::rand;
use pg_client::Password;
use pg_proto::wire::{
    Authentication, BackendMessage, ErrorFields, FrontendMessage, ReplicationMode,
    SaslInitialResponse, StartupMessage, sqlstate,
};

use super::client::{Client, ClientFrame, ReceiveError};
use super::login::Login;
use super::opening::Encryption;
use crate::auth::scram::{Mechanism, NONCE_LEN, Scram, ScramError};
use crate::auth::{Access, Admission, Users};

/// The longest message of the exchange, as in PostgreSQL: nobody knows yet who sends it.
const MAX_MESSAGE: usize = 1024;

/// A client that was let in.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) login: Login,
    /// Its password at the source, if it is known here.
    pub(super) source_password: Option<Password>,
}

/// A client was not let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAdmitted {
    /// It is told why.
    #[error("{0}")]
    Told(Box<ErrorFields>),
    /// It left, or broke the protocol.
    #[error(transparent)]
    Broken(#[from] ReceiveError),
}

impl From<ErrorFields> for NotAdmitted {
    fn from(error: ErrorFields) -> Self {
        Self::Told(Box::new(error))
    }
}

impl From<std::io::Error> for NotAdmitted {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.into())
    }
}

/// Lets a client in that sent its start-up packet, or not.
pub(super) async fn admit(
    client: &mut Client,
    startup: &StartupMessage,
    access: &Access,
    peer: IpAddr,
    encryption: &Encryption,
) -> Result<Admitted, NotAdmitted> {
    let login = Login::from_startup(startup)?;
    let source_password = match access.admit(peer, encryption.is_on()) {
        Ok(Admission::Trusted) => None,
        Ok(Admission::MustProve(users)) => {
            authenticate(client, users, &login.user, encryption).await?;
            let user = users.get(&login.user);
            user.and_then(|user| user.source_password.clone())
        }
        Err(rejected) => {
            let error = no_entry(&login, peer, encryption.is_on());
            return Err(error.with_detail(rejected.to_string()).into());
        }
    };
    Ok(Admitted {
        login,
        source_password,
    })
}

/// In the words in which PostgreSQL says that no line of `pg_hba.conf` fits: clients choose by them whether to try again
/// with or without TLS.
fn no_entry(login: &Login, peer: IpAddr, encrypted: bool) -> ErrorFields {
    let encryption = if encrypted {
        "SSL encryption"
    } else {
        "no encryption"
    };
    let (peer, user) = (peer.to_canonical(), &login.user);
    let message = if login.mode == ReplicationMode::Physical {
        format!(
            "no pg_hba.conf entry for replication connection from host \"{peer}\", user \"{user}\", \
             {encryption}"
        )
    } else {
        let database = &login.database;
        format!(
            "no pg_hba.conf entry for host \"{peer}\", user \"{user}\", database \"{database}\", \
             {encryption}"
        )
    };
    ErrorFields::fatal(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, message)
}

async fn authenticate(
    client: &mut Client,
    users: &Users,
    user: &str,
    encryption: &Encryption,
) -> Result<(), NotAdmitted> {
    let refused = |error: ScramError| error.report(user);
    let end_point = encryption.end_point();
    let offered = Mechanism::offered(end_point.is_some());
    let mechanisms = offered.iter().map(|offer| offer.name().as_bytes());
    let mechanisms = mechanisms.collect();
    ask(client, Authentication::Sasl { mechanisms }).await?;
    let response = answer(client).await?;
    let initial = SaslInitialResponse::decode(body(&response)).map_err(ReceiveError::from)?;
    let verifier = users.verifier(user);
    let scram = Scram::new(verifier, initial.mechanism, end_point, &nonce()?).map_err(refused)?;
    let (challenge, challenged) = match initial.data {
        Some(first) => scram.first(first),
        None => {
            ask(client, Authentication::SaslContinue(b"")).await?;
            scram.first(body(&answer(client).await?))
        }
    }
    .map_err(refused)?;
    ask(client, Authentication::SaslContinue(challenge.as_bytes())).await?;
    let last = answer(client).await?;
    let proof = challenged.last(body(&last)).map_err(refused)?;
    let request = Authentication::SaslFinal(proof.as_bytes());
    client.sender.put(&BackendMessage::Authentication(request));
    Ok(())
}

fn nonce() -> Result<[u8; NONCE_LEN], ErrorFields> {
    let mut nonce = [0; NONCE_LEN];
    rand::fill(&mut nonce).map_err(|_| {
        ErrorFields::fatal(sqlstate::INTERNAL_ERROR, "could not generate random nonce")
    })?;
    Ok(nonce)
}

async fn ask(client: &mut Client, request: Authentication<'_>) -> std::io::Result<()> {
    client.sender.put(&BackendMessage::Authentication(request));
    client.sender.flush().await
}

async fn answer(client: &mut Client) -> Result<ClientFrame, NotAdmitted> {
    let frame = client.receiver.next_within(MAX_MESSAGE).await?;
    let frame = frame.ok_or(ReceiveError::Io(std::io::ErrorKind::UnexpectedEof.into()))?;
    match frame.message() {
        Some(Ok(FrontendMessage::AuthenticationResponse(_))) => Ok(frame),
        _ => {
            let message = format!("expected SASL response, got message type {}", frame.tag());
            Err(ErrorFields::fatal(sqlstate::PROTOCOL_VIOLATION, message).into())
        }
    }
}

fn body(frame: &ClientFrame) -> &[u8] {
    match frame.message() {
        Some(Ok(FrontendMessage::AuthenticationResponse(body))) => body,
        _ => &[],
    }
}
