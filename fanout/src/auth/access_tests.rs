use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::auth::verifier::testing::verifier_text;

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// A certificate and a users file.
fn settings() -> (TempDir, config::Fanout) {
    let directory = tempfile::tempdir().unwrap();
    let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out crt \
                -days 2 -subj /CN=x 2>&1 && chmod 600 key";
    let made = Command::new("sh")
        .args(["-c", make])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let path = |name: &str| Some(directory.path().join(name));
    let settings = config::Fanout {
        tls: Tls::Allow,
        tls_cert_file: path("crt"),
        tls_key_file: path("key"),
        users_file: path("users"),
        ..config::Fanout::default()
    };
    write_user(&settings, "alice");
    (directory, settings)
}

fn write_user(settings: &config::Fanout, name: &str) {
    let line = format!("\"{name}\" \"{}\"\n", verifier_text("x", b"salt", 4096));
    fs::write(settings.users_file.as_ref().unwrap(), line).unwrap();
}

fn problem(settings: &config::Fanout) -> String {
    service::cli::causes(&Access::load(settings).unwrap_err())
}

#[test]
fn trust_is_for_the_same_host() {
    let settings = config::Fanout::default();
    let access = Access::load(&settings).unwrap();
    assert!(access.tls().is_none());
    assert!(matches!(
        access.admit(LOOPBACK, false),
        Ok(Admission::Trusted)
    ));
    let mapped = "::ffff:127.0.0.1".parse().unwrap();
    assert!(access.admit(mapped, false).is_ok());
    assert_eq!(
        access.admit(ELSEWHERE, true).unwrap_err(),
        Rejected::Stranger
    );
    let open = config::Fanout {
        postgres: "0.0.0.0:0".parse().unwrap(),
        ..settings.clone()
    };
    assert!(problem(&open).contains("fanout.users_file"));
    let open = config::Fanout {
        grpc: "[::]:0".parse().unwrap(),
        ..settings
    };
    let problem = problem(&open);
    assert!(problem.contains("fanout.grpc is [::]:0") && problem.contains("fanout.users_file"));
}

#[test]
fn users_must_prove_themselves_from_everywhere() {
    let (_directory, mut settings) = settings();
    settings.postgres = "0.0.0.0:0".parse().unwrap();
    let access = Access::load(&settings).unwrap();
    assert!(access.tls().unwrap().end_point().is_some());
    for (peer, encrypted) in [(LOOPBACK, false), (ELSEWHERE, false), (ELSEWHERE, true)] {
        let admission = access.admit(peer, encrypted);
        assert!(matches!(admission, Ok(Admission::MustProve(_))));
    }
    settings.tls = Tls::Require;
    let access = Access::load(&settings).unwrap();
    assert_eq!(
        access.admit(LOOPBACK, false).unwrap_err(),
        Rejected::NotEncrypted
    );
    assert!(access.admit(ELSEWHERE, true).is_ok());
    settings.tls = Tls::Disable;
    assert!(Access::load(&settings).unwrap().tls().is_none());
}

#[test]
fn what_can_not_be_used_is_named() {
    let (directory, settings) = settings();
    let with = |change: &dyn Fn(&mut config::Fanout)| {
        let mut changed = settings.clone();
        change(&mut changed);
        problem(&changed)
    };
    let missing = || Some(directory.path().join("missing"));
    for (text, words) in [
        (with(&|s| s.tls_cert_file = None), "fanout.tls_cert_file"),
        (
            with(&|s| s.tls_cert_file = missing()),
            "cannot read the certificate",
        ),
        (
            with(&|s| s.tls_key_file = missing()),
            "cannot read the private key",
        ),
        (
            with(&|s| s.tls_cert_file.clone_from(&s.tls_key_file)),
            "no certificate in PEM form",
        ),
        (
            with(&|s| {
                let secret = directory.path().join("no-key");
                fs::write(&secret, "nothing").unwrap();
                fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
                s.tls_key_file = Some(secret);
            }),
            "no private key without a passphrase",
        ),
        (
            with(&|s| s.users_file = missing()),
            "cannot read the users file",
        ),
    ] {
        assert!(text.contains(words), "{text}");
    }
    let key = settings.tls_key_file.as_ref().unwrap();
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(
        problem(&settings).contains("mode 0644"),
        "{}",
        problem(&settings)
    );
}

#[test]
fn a_reload_changes_all_or_nothing() {
    let (_directory, settings) = settings();
    let guard = Guard::new(&settings).unwrap();
    let knows = |name: &str| match guard.current().admit(LOOPBACK, false) {
        Ok(Admission::MustProve(users)) => users.get(name).is_some(),
        other => panic!("{other:?}"),
    };
    write_user(&settings, "bob");
    guard.reload().unwrap();
    assert!(knows("bob") && !knows("alice"));
    write_user(&settings, "carol");
    fs::write(settings.tls_key_file.as_ref().unwrap(), "damaged").unwrap();
    assert!(guard.reload().is_err());
    assert!(knows("bob") && !knows("carol"));
}
