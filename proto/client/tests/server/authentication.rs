//! Getting in, and not getting in.

use std::time::Duration;

use pg_client::{ConnectError, ConnectOptions, Connection, Error, SslMode};
use pg_proto::wire::{Authentication, BackendMessage, TransactionStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::Server;

const HBA: &str = "
host all trusted   127.0.0.1/32 trust
host all cleartext 127.0.0.1/32 password
host all hashed    127.0.0.1/32 md5
host all scram     127.0.0.1/32 scram-sha-256
host all rejected  127.0.0.1/32 reject
";

const ROLES: &str = "
CREATE ROLE trusted LOGIN;
CREATE ROLE cleartext LOGIN PASSWORD 'secret';
SET password_encryption = 'md5';
CREATE ROLE hashed LOGIN PASSWORD 'secret';
SET password_encryption = 'scram-sha-256';
CREATE ROLE scram LOGIN PASSWORD 'secret';
CREATE ROLE rejected LOGIN;
";

async fn user_of(options: &ConnectOptions) -> String {
    let mut connection = Connection::connect(options).await.unwrap();
    let user = connection.query_one_value("SELECT current_user").await;
    user.unwrap().unwrap()
}

async fn refusal(options: &ConnectOptions) -> ConnectError {
    match Connection::connect(options).await {
        Ok(_) => panic!("{options:?} was let in"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn every_way_in() {
    let server = Server::start("", HBA).await;
    server.execute(ROLES).await;
    assert_eq!(user_of(&server.admin_options()).await, "postgres");
    assert_eq!(user_of(&server.options("trusted")).await, "trusted");
    for user in ["cleartext", "hashed", "scram"] {
        let mut options = server.options(user);
        let error = refusal(&options).await;
        assert!(
            matches!(error, ConnectError::PasswordMissing { .. }),
            "{error:?}"
        );
        options.password = Some("wrong".into());
        let error = refusal(&options).await;
        assert_eq!(error.code(), Some("28P01"), "{user}: {error:?}");
        assert!(!error.is_transient());
        options.password = Some("secret".into());
        assert_eq!(user_of(&options).await, user);
    }
    refuses_what_can_not_be(&server).await;
    knows_the_session(&server).await;
}

async fn refuses_what_can_not_be(server: &Server) {
    let mut options = server.options("trusted");
    options.database = Some("nowhere".into());
    assert_eq!(refusal(&options).await.code(), Some("3D000"));
    let mut options = server.options("rejected");
    assert_eq!(refusal(&options).await.code(), Some("28000"));
    options.sslmode = SslMode::Prefer;
    assert_eq!(refusal(&options).await.code(), Some("28000"));
    let mut options = server.options("trusted");
    options.sslmode = SslMode::Require;
    let error = refusal(&options).await;
    assert!(
        matches!(error, ConnectError::TlsRefused { .. }),
        "{error:?}"
    );
    options.sslmode = SslMode::Prefer;
    assert_eq!(user_of(&options).await, "trusted");
    options.port = 1;
    let error = refusal(&options).await;
    assert!(matches!(error, ConnectError::Dial { .. }), "{error:?}");
    assert!(error.is_transient());
    options.host = "/nonexistent".into();
    assert!(matches!(refusal(&options).await, ConnectError::Dial { .. }));
    options.host = "name.invalid".into();
    assert!(refusal(&options).await.is_transient());
}

async fn knows_the_session(server: &Server) {
    let mut options = server.admin_options();
    options.application_name = Some("test".into());
    options.parameters = vec![("DateStyle".into(), "ISO, YMD".into())];
    let mut connection = Connection::connect(&options).await.unwrap();
    assert_eq!(connection.parameter("application_name"), Some("test"));
    assert_eq!(connection.parameter("DateStyle"), Some("ISO, YMD"));
    assert_eq!(connection.parameter("client_encoding"), Some("UTF8"));
    assert_eq!(connection.transaction_status(), TransactionStatus::Idle);
    assert!(!connection.is_encrypted());
    let pid = connection.query_one_value("SELECT pg_backend_pid()").await;
    assert_eq!(pid.unwrap().unwrap(), connection.backend_pid().to_string());
    connection.close().await.unwrap();
}

/// A server that says what it is told to, whatever the client says.
async fn impostor(messages: Vec<BackendMessage<'static>>) -> ConnectOptions {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = ConnectOptions::new("127.0.0.1", 0, "u");
    options.port = listener.local_addr().unwrap().port();
    options.sslmode = SslMode::Disable;
    options.password = Some("secret".into());
    options.connect_timeout = Duration::from_millis(500);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        for message in messages {
            message.encode(&mut bytes);
        }
        stream.write_all(&bytes).await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
    });
    options
}

#[tokio::test]
async fn a_server_that_does_not_prove_itself_is_refused() {
    let mechanisms = vec![&b"SCRAM-SHA-256"[..]];
    let ready = BackendMessage::ReadyForQuery(TransactionStatus::Idle);
    let ok = BackendMessage::Authentication(Authentication::Ok);
    let sasl = BackendMessage::Authentication(Authentication::Sasl { mechanisms });
    let options = impostor(vec![sasl.clone(), ok.clone(), ready.clone()]).await;
    let error = refusal(&options).await;
    let ConnectError::Refused { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(
        matches!(source, Error::Unexpected { tag: b'R', .. }),
        "{error:?}"
    );
    let first = BackendMessage::Authentication(Authentication::SaslContinue(b"r=x,s=QQ==,i=4096"));
    let error = refusal(&impostor(vec![sasl, first]).await).await;
    assert!(matches!(error, ConnectError::Scram { .. }), "{error:?}");
    let error = refusal(&impostor(vec![ready]).await).await;
    assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    let gss = BackendMessage::Authentication(Authentication::Other(7));
    let error = refusal(&impostor(vec![gss]).await).await;
    assert!(error.to_string().contains("GSSAPI"), "{error}");
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let options = impostor(vec![]).await;
    let error = refusal(&options).await;
    assert!(matches!(error, ConnectError::Timeout { .. }), "{error:?}");
    assert!(error.is_transient());
}
