//! Where the programs are and what they are given.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::postgres::profile_directory;

/// A command for one of the programs with its configuration and nothing of this process's own settings.
pub(super) fn command(program: &str, config: &Path) -> Command {
    let mut command = Command::new(program_path(program));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DECANT_") {
            command.env_remove(name);
        }
    }
    command.arg("--config").arg(config);
    command
}

/// All that a program printed.
pub fn text_of(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Beside the tests' own program, unless `DECANT_BIN_DIR` names another folder.
pub(super) fn program_path(program: &str) -> PathBuf {
    let directory = std::env::var_os("DECANT_BIN_DIR").map(PathBuf::from);
    let directory = directory.unwrap_or_else(profile_directory);
    let path = directory.join(program);
    assert!(
        path.is_file(),
        "{} is not built: `make test` builds it (cargo build --bins)",
        path.display()
    );
    path
}

/// `section.key` with values that are numbers or text.
pub(super) fn to_toml(settings: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    let mut current = "";
    for (key, value) in settings {
        let (section, key) = key.split_once('.').expect("section.key");
        if section != current {
            writeln!(text, "[{section}]").expect("text can be written");
            current = section;
        }
        let plain = value.parse::<i64>().is_ok() && key != "password";
        let value = if plain {
            value.clone()
        } else {
            format!("{value:?}")
        };
        writeln!(text, "{key} = {value}").expect("text can be written");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_toml() {
        let settings = [
            ("log.directory", "/a b"),
            ("source.port", "1"),
            ("source.host", "x"),
        ];
        let owned = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let text = to_toml(&BTreeMap::from(owned));
        let expected = "[log]\ndirectory = \"/a b\"\n[source]\nhost = \"x\"\nport = 1\n";
        assert_eq!(text, expected);
    }
}
