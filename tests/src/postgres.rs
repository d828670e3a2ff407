//! Finds PostgreSQL installations and runs their programs without root's rights.
//!
//! Version N comes from the first of these that has it: `PG_BIN_N`, `PG_BIN` (if that is version N),
//! `/usr/lib/postgresql/N/bin`, `target/postgres/N/bin` (`make postgres VERSIONS=N`).

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::run_successfully;

/// The server programs of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The major version.
    pub major: u32,
    bin: PathBuf,
}

impl Installation {
    /// The installation of a major version. Panics with what to do when there is none.
    pub fn find(major: u32) -> Self {
        let found = candidates(major)
            .into_iter()
            .find(|bin| version_of(bin) == Some(major));
        let bin = found.unwrap_or_else(|| {
            panic!(
                "PostgreSQL {major} is not installed: run `make postgres VERSIONS={major}`, or set \
                 PG_BIN_{major} to the bin folder of an installation"
            )
        });
        Self {
            major,
            bin: reachable(&bin, major),
        }
    }

    /// A command that runs one of its programs as an ordinary user.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        clean_environment(&mut command);
        if let Some(account) = server_account() {
            // libpq in a server looks for certificates at home, and root's is not its own.
            command.uid(account.uid).gid(account.gid).env_remove("HOME");
        }
        command
    }
}

/// The newest major version of which all programs of a server and its clients are installed.
pub fn newest_complete() -> u32 {
    let complete = |major: &u32| {
        let places = candidates(*major)
            .into_iter()
            .filter(|bin| version_of(bin) == Some(*major));
        let programs = ["initdb", "pgbench"];
        places
            .into_iter()
            .any(|bin| programs.iter().all(|program| bin.join(program).is_file()))
    };
    (14..=30)
        .rev()
        .find(complete)
        .expect("PostgreSQL 14 or later is not installed: `make tools` installs it, or set PG_BIN")
}

/// A client program (`psql`, `pgbench`, `pg_recvlogical`) of whatever installation has it.
pub fn client(program: &str) -> Command {
    let from_environment = std::env::var_os("PG_BIN").map(PathBuf::from);
    let system = (14..=30).map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = from_environment
        .into_iter()
        .chain(system)
        .chain(std::env::split_paths(&path));
    let found = places
        .map(|place| place.join(program))
        .find(|file| file.is_file());
    let file = found.unwrap_or_else(|| {
        panic!("{program} is not installed: `make tools` installs it, or set PG_BIN")
    });
    let mut command = Command::new(file);
    clean_environment(&mut command);
    command
}

/// Who owns the servers' files: nobody else when not root, since PostgreSQL refuses to run as root.
pub(crate) fn server_account() -> Option<Account> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let account = ["postgres", "nobody"]
        .iter()
        .find_map(|name| parse_account(&passwd, name));
    Some(account.expect("/etc/passwd has a user postgres or nobody"))
}

/// A user of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

fn parse_account(passwd: &str, name: &str) -> Option<Account> {
    let line = passwd
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(Account {
        uid: fields.next()?.parse().ok()?,
        gid: fields.next()?.parse().ok()?,
    })
}

/// Variables such as PGHOST must not lead a program to another server.
fn clean_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C").current_dir("/");
}

fn candidates(major: u32) -> Vec<PathBuf> {
    let variables = [format!("PG_BIN_{major}"), "PG_BIN".to_owned()];
    let from_environment = variables.iter().filter_map(std::env::var_os);
    from_environment
        .map(PathBuf::from)
        .chain([
            PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")),
            target_directory().join(format!("postgres/{major}/bin")),
        ])
        .collect()
}

/// The folder `target/<profile>` in which this program is. Tests are in its folder `deps`.
pub(crate) fn profile_directory() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows its own path");
    let folder = program.parent().expect("a program is in a folder");
    let profile = if folder.ends_with("deps") {
        folder.parent()
    } else {
        Some(folder)
    };
    profile
        .expect("this program runs from Cargo's target directory")
        .to_owned()
}

/// Cargo's target directory.
pub fn target_directory() -> PathBuf {
    let profile = profile_directory();
    profile.parent().expect("target/<profile>").to_owned()
}

fn version_of(bin: &Path) -> Option<u32> {
    let output = Command::new(bin.join("postgres"))
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let number = text.split_whitespace().nth(2)?;
    number.split('.').next()?.parse().ok()
}

/// Below a home folder that only root may enter, the servers' user can't run it: then a copy that it can.
fn reachable(bin: &Path, major: u32) -> PathBuf {
    let open = |folder: &Path| {
        folder
            .metadata()
            .is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
    };
    if server_account().is_none() || bin.ancestors().all(open) {
        return bin.to_owned();
    }
    let inode = bin.metadata().map_or(0, |metadata| metadata.ino());
    let copy = std::env::temp_dir().join(format!("decant-postgres-{major}-{inode}"));
    if !copy.join("bin/postgres").is_file() {
        let unfinished = copy.with_extension(std::process::id().to_string());
        let from = bin.parent().expect("a bin folder has a parent");
        run_successfully(Command::new("cp").arg("-a").arg(from).arg(&unfinished));
        if std::fs::rename(&unfinished, &copy).is_err() {
            // Another test process was faster.
            let _ = std::fs::remove_dir_all(&unfinished);
        }
    }
    copy.join("bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\npostgres:x:113:121:,,,:/var/lib/postgresql:/bin/bash\n";
        let expected = Some(Account { uid: 113, gid: 121 });
        assert_eq!(parse_account(passwd, "postgres"), expected);
        assert_eq!(parse_account(passwd, "nobody"), None);
    }
}
