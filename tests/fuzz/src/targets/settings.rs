//! Configuration, users, grants, and what a client says of its password.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use fanout::auth::scram::Scram;
use fanout::auth::{Grants, Users, Verifier};
use rustix::fs::MemfdFlags;
use service::config::Config;

/// Calls `read` with the path of a file that has this content.
fn with_file<T>(content: &[u8], read: impl FnOnce(&std::path::Path) -> T) -> T {
    let memory = rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC);
    let file = File::from(memory.expect("there is memory"));
    file.write_all_at(content, 0).expect("there is memory");
    read(&PathBuf::from(format!(
        "/proc/self/fd/{}",
        file.as_raw_fd()
    )))
}

pub(super) fn run_configuration(bytes: &[u8]) -> bool {
    // It may name any file of this machine as the one with the password.
    if bytes.windows(4).any(|word| word == b"file") {
        return false;
    }
    with_file(bytes, |path| Config::load(Some(path), &[]).is_ok())
}

pub(super) fn seeds_of_configuration() -> Vec<Vec<u8>> {
    let settings = "[source]\nhost = \"127.0.0.1\"\nport = 5432\nuser = \"decant\"\ndatabase = \"shop\"\nslot = \"decant\"\n\
         sslmode = \"prefer\"\ntwo_phase = \"auto\"\n\n[log]\ndirectory = \"decant-log\"\nsegment_bytes = 67108864\n\n\
         [decoder]\ncontrol = \"127.0.0.1:7400\"\nprogress_interval_ms = 1000\n\n[fanout]\nname = \"a\"\nserve = \"written\"\n\
         tls = \"allow\"\n\n[retention]\nkeep_bytes = 1\n";
    vec![settings.as_bytes().to_vec(), b"".to_vec()]
}

pub(super) fn run_users_and_grants(bytes: &[u8]) -> bool {
    with_file(bytes, |path| {
        let users = Users::load(path);
        if let Ok(users) = &users {
            let _ = (users.count(), users.verifier("nobody"));
        }
        let grants = Grants::load(path);
        if let Ok(grants) = &grants {
            let grant = grants.of("app");
            let _ = grant.allows_column("public", "accounts", "balance");
        }
        users.is_ok() || grants.is_ok()
    })
}

const USERS: &str = "\"app\" \"SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$n6hQv8w5g3OtQdW3qfgKRL7LLVHKPSfgJSbYPPMmmn8=:\
     jbIOMkpGvTAcVi5UW+O9gKFkqLTVrRZBWz+s2LI6rno=\" \"password\"\n; comment\n";

pub(super) fn seeds_of_users_and_grants() -> Vec<Vec<u8>> {
    let grants = "[[role]]\nname = \"app\"\npublications = [\"one\"]\nmessages = true\n\n[[role.table]]\nschema = \"public\"\n\
         name = \"accounts\"\ncolumns = [\"id\", \"balance\"]\n";
    vec![USERS.as_bytes().to_vec(), grants.as_bytes().to_vec()]
}

/// Both messages of a client, with a zero byte between them.
pub(super) fn run_scram(bytes: &[u8]) -> bool {
    let mut messages = bytes.split(|byte| *byte == 0);
    let (Some(first), last) = (messages.next(), messages.next()) else {
        return false;
    };
    with_file(USERS.as_bytes(), |path| {
        let verifier: Option<Verifier> = Users::load(path).ok().map(|users| users.verifier("app"));
        let scram = verifier
            .and_then(|verifier| Scram::new(verifier, b"SCRAM-SHA-256", None, &[7; 18]).ok());
        let Some(Ok((_, challenged))) = scram.map(|scram| scram.first(first)) else {
            return false;
        };
        let _ = challenged.last(last.unwrap_or_default());
        true
    })
}

pub(super) fn seeds_of_scram() -> Vec<Vec<u8>> {
    vec![
        b"n,,n=,r=fyko+d2lbbFgONRv9qkxdawL\0c=biws,r=fyko+d2lbbFgONRv9qkxdawLBwcHBwcHBwcHBwcHBwcHBwcH,\
          p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
            .to_vec(),
        b"y,,n=user,r=x".to_vec(),
        b"p=tls-server-end-point,,n=,r=x\0c=,r=,p=".to_vec(),
    ]
}
