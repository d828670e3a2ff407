//! TLS.

use std::path::Path;
use std::process::Command;

use pg_client::{ConnectError, ConnectOptions, Connection, SslMode};

use crate::support::Server;

const HBA: &str = "
hostssl   all encrypted 127.0.0.1/32 scram-sha-256
hostnossl all plain     127.0.0.1/32 trust
";

/// An authority and a certificate for `localhost` that it signed, and a certificate that signed itself.
const CERTIFICATES: &str = "
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority
openssl req -x509 -newkey rsa:2048 -nodes -keyout other.key -out other.crt -days 2 -subj /CN=other
openssl req -newkey rsa:2048 -nodes -keyout signed.key -out signed.csr -subj /CN=localhost
printf 'subjectAltName=DNS:localhost' > names
openssl x509 -req -in signed.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -sha384 -extfile names -out signed.crt
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout self.key -out self.crt -days 2 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost
";

fn make_certificates(directory: &Path) {
    let mut shell = Command::new("sh");
    let made = shell
        .args(["-e", "-c", CERTIFICATES])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

fn use_certificate(server: &Server, directory: &Path, name: &str) {
    for extension in ["crt", "key"] {
        let content = std::fs::read(directory.join(format!("{name}.{extension}"))).unwrap();
        let file = format!("data/server.{extension}");
        server.give(&file, &content);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(server.path(&file), mode).unwrap();
    }
}

async fn is_encrypted(options: &ConnectOptions) -> bool {
    let mut connection = Connection::connect(options).await.unwrap();
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let says = connection.query_one_value(sql).await.unwrap().unwrap();
    assert_eq!(says == "t", connection.is_encrypted());
    // The server hashes its certificate too: the binding holds only if both hashes are the same.
    assert_eq!(connection.is_channel_bound(), connection.is_encrypted());
    connection.is_encrypted()
}

async fn assert_untrusted(options: &ConnectOptions) {
    let error = Connection::connect(options).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn modes_mean_what_they_mean_to_libpq() {
    let certificates = tempfile::tempdir().unwrap();
    make_certificates(certificates.path());
    let server = Server::start("", HBA).await;
    server
        .execute("CREATE ROLE encrypted LOGIN PASSWORD 'secret'; CREATE ROLE plain LOGIN")
        .await;
    use_certificate(&server, certificates.path(), "signed");
    server.append("data/postgresql.conf", "ssl = on\n");
    server.restart();

    let mut options = server.options("encrypted");
    options.password = Some("secret".into());
    assert_eq!(
        Connection::connect(&options).await.unwrap_err().code(),
        Some("28000")
    );
    for mode in [SslMode::Prefer, SslMode::Require] {
        options.sslmode = mode;
        assert!(is_encrypted(&options).await, "{mode}");
    }
    falls_back_only_if_it_may(&server).await;

    options.sslrootcert = Some(certificates.path().join("other.crt"));
    for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
        options.sslmode = mode;
        assert_untrusted(&options).await;
    }
    options.sslrootcert = Some(certificates.path().join("ca.crt"));
    for mode in [SslMode::Require, SslMode::VerifyCa] {
        options.sslmode = mode;
        assert!(is_encrypted(&options).await, "{mode}");
    }
    options.sslmode = SslMode::VerifyFull;
    assert_untrusted(&options).await;
    options.host = "localhost".into();
    assert!(is_encrypted(&options).await);
    options.password = Some("wrong".into());
    assert_eq!(
        Connection::connect(&options).await.unwrap_err().code(),
        Some("28P01")
    );

    use_certificate(&server, certificates.path(), "self");
    server.restart();
    options.password = Some("secret".into());
    assert_untrusted(&options).await;
    options.sslrootcert = Some(certificates.path().join("self.crt"));
    assert!(is_encrypted(&options).await);
    options.host = "127.0.0.1".into();
    assert_untrusted(&options).await;
    options.sslrootcert = Some(certificates.path().join("missing.crt"));
    let error = Connection::connect(&options).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::RootCertificates { .. }),
        "{error:?}"
    );
}

async fn falls_back_only_if_it_may(server: &Server) {
    let mut options = server.options("plain");
    options.sslmode = SslMode::Prefer;
    assert!(!is_encrypted(&options).await);
    options.sslmode = SslMode::Require;
    let error = Connection::connect(&options).await.unwrap_err();
    assert_eq!(error.code(), Some("28000"));
}
