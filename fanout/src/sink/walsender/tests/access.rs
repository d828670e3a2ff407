//! Encryption and passwords.

use std::path::Path;
use std::process::Command;

use pg_client::{ConnectError, SslMode};
use pg_proto::wire::{BackendMessage, ErrorFields, Frame, Split, StartupPacket, split_frame};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use service::config::Tls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::auth::verifier::testing::verifier_text;

const CERTIFICATES: &str = "
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=localhost
printf 'subjectAltName=DNS:localhost' > names
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -sha384 -extfile names -out server.crt
chmod 600 server.key
";

/// An endpoint with a certificate for `localhost` and the user alice, whose password is `secret`.
struct Guarded {
    harness: Harness,
    files: TempDir,
}

impl Guarded {
    async fn start(tls: Tls) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        let made = shell.args(["-e", "-c", CERTIFICATES]);
        let made = made.current_dir(files.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let verifier = verifier_text("secret", b"salt", 4096);
        let users = format!("\"alice\" \"{verifier}\" \"at the source\"\n");
        std::fs::write(files.path().join("users"), users).unwrap();
        let file = |name: &str| Some(files.path().join(name));
        let harness = Harness::of_version("15.18", |config| {
            config.fanout.tls = tls;
            config.fanout.tls_cert_file = file("server.crt");
            config.fanout.tls_key_file = file("server.key");
            config.fanout.users_file = file("users");
        });
        Self {
            harness: harness.await,
            files,
        }
    }

    fn options(&self, mode: SslMode) -> ConnectOptions {
        let mut options = self.harness.options();
        options.password = Some("secret".into());
        options.sslmode = mode;
        options
    }

    async fn socket(&self) -> TcpStream {
        TcpStream::connect(self.harness.address).await.unwrap()
    }
}

async fn refusal(options: &ConnectOptions) -> ErrorFields {
    let error = Connection::connect(options).await.unwrap_err();
    error.server().expect("the server says why").clone()
}

#[tokio::test]
async fn all_modes_of_clients() {
    let guarded = Guarded::start(Tls::Allow).await;
    for (mode, encrypted) in [
        (SslMode::Disable, false),
        (SslMode::Prefer, true),
        (SslMode::Require, true),
    ] {
        let connection = Connection::connect(&guarded.options(mode)).await.unwrap();
        assert_eq!(connection.is_encrypted(), encrypted, "{mode}");
        assert_eq!(connection.is_channel_bound(), encrypted, "{mode}");
    }
    let mut options = guarded.options(SslMode::VerifyFull);
    options.sslrootcert = Some(guarded.files.path().join("ca.crt"));
    let error = Connection::connect(&options).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
    options.host = "localhost".to_owned();
    let mut connection = Connection::connect(&options).await.unwrap();
    assert!(connection.is_channel_bound());
    let answer = run(&mut connection, "IDENTIFY_SYSTEM").await;
    assert_eq!(answer.rows.len(), 1);
}

#[tokio::test]
async fn wrong_passwords_and_unknown_users_are_refused_alike() {
    let guarded = Guarded::start(Tls::Allow).await;
    for mode in [SslMode::Disable, SslMode::Require] {
        for (user, password) in [("alice", "wrong"), ("nobody", "secret")] {
            let mut options = guarded.options(mode);
            options.user = user.to_owned();
            options.password = Some(password.into());
            let said = refusal(&options).await;
            let expected = format!("password authentication failed for user \"{user}\"");
            assert_eq!((said.code(), said.message()), ("28P01", expected.as_str()));
        }
    }
    // Who is not let in learns nothing about databases.
    let mut options = guarded.options(SslMode::Disable);
    options.database = Some("nosuch".to_owned());
    assert_eq!(refusal(&options).await.code(), "3D000");
    options.password = Some("wrong".into());
    assert_eq!(refusal(&options).await.code(), "28P01");
    options.password = None;
    let error = Connection::connect(&options).await.unwrap_err();
    assert!(matches!(error, ConnectError::PasswordMissing { .. }));
}

#[tokio::test]
async fn encryption_can_be_required_and_can_be_absent() {
    let guarded = Guarded::start(Tls::Require).await;
    let said = refusal(&guarded.options(SslMode::Disable)).await;
    assert_eq!(
        (said.code(), said.message()),
        (
            "28000",
            "no pg_hba.conf entry for host \"127.0.0.1\", user \"alice\", database \"app\", no encryption"
        )
    );
    let options = guarded.options(SslMode::Prefer);
    assert!(Connection::connect(&options).await.unwrap().is_encrypted());

    let guarded = Guarded::start(Tls::Disable).await;
    let options = guarded.options(SslMode::Prefer);
    assert!(!Connection::connect(&options).await.unwrap().is_encrypted());
    let error = Connection::connect(&guarded.options(SslMode::Require)).await;
    assert!(matches!(error, Err(ConnectError::TlsRefused { .. })));
    assert_eq!(handshake(&guarded, &[b"postgresql"]).await, None);
}

/// A client that begins with TLS and asks for these protocols; the first byte of the answer to a start-up packet.
async fn handshake(guarded: &Guarded, protocols: &[&[u8]]) -> Option<u8> {
    let root = CertificateDer::from_pem_file(guarded.files.path().join("ca.crt")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, guarded.socket().await).await.ok()?;
    // The server may have closed by then.
    stream.write_all(&startup()).await.ok()?;
    stream.flush().await.ok()?;
    stream.read_u8().await.ok()
}

fn startup() -> Vec<u8> {
    let parameters = [("user", "alice"), ("database", "app")];
    let mut packet = Vec::new();
    StartupPacket::Startup(pg_proto::wire::StartupMessage {
        version: pg_proto::wire::ProtocolVersion::V3_0,
        parameters: parameters
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    })
    .encode(&mut packet);
    packet
}

#[tokio::test]
async fn tls_at_once_is_for_clients_of_this_protocol() {
    let guarded = Guarded::start(Tls::Require).await;
    assert_eq!(
        handshake(&guarded, &[b"http/1.1", b"postgresql"]).await,
        Some(b'R')
    );
    assert_eq!(handshake(&guarded, &[]).await, None);
    assert_eq!(handshake(&guarded, &[b"http/1.1"]).await, None);
}

#[tokio::test]
async fn nothing_unencrypted_is_taken_for_encrypted() {
    let guarded = Guarded::start(Tls::Allow).await;
    let mut socket = guarded.socket().await;
    let mut packets = Vec::new();
    StartupPacket::SslRequest.encode(&mut packets);
    packets.extend_from_slice(&startup());
    socket.write_all(&packets).await.unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    // A TLS alert may follow, but no authentication request.
    assert_eq!(answer[0], b'S');
    assert!(!answer[1..].contains(&b'R'), "{}", answer.escape_ascii());
}

/// What an unencrypted client is told that answers the request for SCRAM with this frame.
async fn told(guarded: &Guarded, answer: &[u8]) -> ErrorFields {
    let mut socket = guarded.socket().await;
    socket.write_all(&startup()).await.unwrap();
    socket.write_all(answer).await.unwrap();
    let mut heard = Vec::new();
    let _ = socket.read_to_end(&mut heard).await;
    let mut rest = heard.as_slice();
    while let Split::Whole { frame, len } = split_frame(rest, 1 << 20).unwrap() {
        if let BackendMessage::ErrorResponse(error) = decode(frame) {
            assert!(error.is_fatal());
            return error;
        }
        rest = &rest[len..];
    }
    panic!("no error: {}", heard.escape_ascii());
}

fn decode(frame: Frame<'_>) -> BackendMessage<'_> {
    BackendMessage::decode(frame).unwrap()
}

#[tokio::test]
async fn answers_that_have_no_place_in_the_exchange() {
    let guarded = Guarded::start(Tls::Allow).await;
    let sasl = |mechanism: &[u8], data: &[u8]| {
        let mut frame = Vec::new();
        let data = Some(data);
        pg_proto::wire::SaslInitialResponse { mechanism, data }.encode(&mut frame);
        frame
    };
    for (answer, words) in [
        (
            b"Q\0\0\0\x06;\0".to_vec(),
            "expected SASL response, got message type 81",
        ),
        (b"p\0\0\x10\0".to_vec(), "invalid message length"),
        (b"p\0\0\0\x05x".to_vec(), "invalid message format"),
        (
            sasl(b"SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=abc"),
            "client selected an invalid SASL authentication mechanism",
        ),
        (
            sasl(b"SCRAM-SHA-256", b"p=tls-server-end-point,,n=,r=abc"),
            "malformed SCRAM message",
        ),
    ] {
        let error = told(&guarded, &answer).await;
        assert_eq!((error.code(), error.message()), ("08P01", words));
    }
}

#[tokio::test]
async fn changes_come_encrypted_as_soon_as_they_are_there() {
    let mut guarded = Guarded::start(Tls::Require).await;
    let options = guarded.options(SslMode::Require);
    let mut connection = Connection::connect(&options).await.unwrap();
    run(&mut connection, &create("s")).await;
    let command =
        "START_REPLICATION SLOT \"s\" LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    let mut stream = connection.start_copy_both(command).await.unwrap();
    // Larger than what TLS and the socket hold, and one that is smaller than a record.
    let large = "x".repeat(4 << 20);
    for (commit, value) in [(0x200, large.as_str()), (0x300, "small"), (0x400, &large)] {
        guarded.harness.log.insert(commit, value);
        let mut arrived = false;
        while !arrived {
            let next = tokio::time::timeout(PATIENCE, stream.receiver().next()).await;
            let content = next.expect("nothing came").unwrap().unwrap();
            arrived = content.ends_with(&value.as_bytes()[value.len() - 5..]);
        }
    }
}

#[tokio::test]
async fn users_and_certificates_are_read_again() {
    let guarded = Guarded::start(Tls::Allow).await;
    let users: &Path = &guarded.files.path().join("users");
    let verifier = verifier_text("changed", b"salt", 4096);
    std::fs::write(users, format!("\"alice\" \"{verifier}\"\n")).unwrap();
    let mut options = guarded.options(SslMode::Require);
    assert!(Connection::connect(&options).await.is_ok());
    guarded.harness.guard.reload().unwrap();
    assert_eq!(refusal(&options).await.code(), "28P01");
    options.password = Some("changed".into());
    assert!(Connection::connect(&options).await.is_ok());
}
