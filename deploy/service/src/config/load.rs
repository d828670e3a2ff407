//! From file, environment and flags to a checked [`Config`].

use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::{Table, Value};

use super::error::ConfigError;
use super::sections::Config;

/// The file that is read when none is named, if it exists.
pub const DEFAULT_FILE: &str = "decant.toml";

const VARIABLE_PREFIX: &str = "DECANT_";

/// One `section.key=value` from a flag or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    section: String,
    key: String,
    value: String,
}

impl Override {
    /// For a flag of its own, such as `--log-directory`.
    #[must_use]
    pub fn new(section: &str, key: &str, value: impl Into<String>) -> Self {
        Self {
            section: section.to_owned(),
            key: key.to_owned(),
            value: value.into(),
        }
    }

    /// A number or a truth value is one where the setting has that type; all else is text. Which it is says the
    /// default configuration, so that a password of digits stays text.
    fn to_value(&self, default: Option<&Value>) -> Value {
        let parsed = match default {
            Some(Value::Integer(_)) => self.value.parse().ok().map(Value::Integer),
            Some(Value::Boolean(_)) => self.value.parse().ok().map(Value::Boolean),
            _ => None,
        };
        parsed.unwrap_or_else(|| Value::String(self.value.clone()))
    }
}

impl FromStr for Override {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let form = || ConfigError::OverrideForm {
            origin: format!("--set {text}"),
        };
        let (name, value) = text.split_once('=').ok_or_else(form)?;
        let (section, key) = name.trim().split_once('.').ok_or_else(form)?;
        if section.is_empty() || key.is_empty() || key.contains('.') {
            return Err(form());
        }
        Ok(Self::new(section, key, value.trim()))
    }
}

impl Config {
    /// Reads `path` (without one: [`DEFAULT_FILE`], if it exists), then the process's environment, then
    /// `overrides`.
    pub fn load(path: Option<&Path>, overrides: &[Override]) -> Result<Self, ConfigError> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::load_with(path, variables, overrides)
    }

    fn load_with(
        path: Option<&Path>,
        variables: impl IntoIterator<Item = (String, String)>,
        overrides: &[Override],
    ) -> Result<Self, ConfigError> {
        let file = path.map(Path::to_owned).or_else(default_file);
        let mut table = file
            .as_deref()
            .map(read_table)
            .transpose()?
            .unwrap_or_default();
        let defaults = Table::try_from(Self::default()).unwrap_or_default();
        for variable in from_variables(variables, &defaults)? {
            apply(&mut table, &defaults, &variable);
        }
        for flag in overrides {
            apply(&mut table, &defaults, flag);
        }
        let origins = file.map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
        let mut config: Self = Value::Table(table).try_into().map_err(|source| {
            let origins = format!("{origins}, {VARIABLE_PREFIX}* variables, flags");
            ConfigError::Value {
                origins,
                source: Box::new(source),
            }
        })?;
        config.read_password_file()?;
        config.check()?;
        Ok(config)
    }

    fn read_password_file(&mut self) -> Result<(), ConfigError> {
        let Some(path) = &self.source.password_file else {
            return Ok(());
        };
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        self.source.password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
        Ok(())
    }

    fn check(&self) -> Result<(), ConfigError> {
        let invalid = |key, problem: String| Err(ConfigError::Invalid { key, problem });
        if !(1..=19).contains(&self.log.zstd_level) {
            return invalid(
                "log.zstd_level",
                format!("is {}, not 1 to 19", self.log.zstd_level),
            );
        }
        if self.log.segment_bytes < 1 << 20 {
            return invalid("log.segment_bytes", "is below 1048576 (1 MiB)".to_owned());
        }
        if self.decoder.staging_memory_bytes < 1 << 20 {
            return invalid(
                "decoder.staging_memory_bytes",
                "is below 1048576 (1 MiB)".to_owned(),
            );
        }
        if self.fanout.name.is_empty() || self.fanout.name.contains('/') {
            return invalid(
                "fanout.name",
                "must not be empty nor contain a slash".to_owned(),
            );
        }
        for (key, name) in [
            ("source.slot", &self.source.slot),
            ("source.publication", &self.source.publication),
        ] {
            if name.is_empty() || name.len() > 63 {
                return invalid(key, "must have 1 to 63 bytes".to_owned());
            }
        }
        Ok(())
    }
}

fn default_file() -> Option<PathBuf> {
    let path = PathBuf::from(DEFAULT_FILE);
    path.is_file().then_some(path)
}

fn read_table(path: &Path) -> Result<Table, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    text.parse().map_err(|source| ConfigError::Syntax {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

/// Variables whose section is known. Those of no section (`DECANT_BIN_DIR` of somebody's script) are an error
/// only if they start with the name of one.
fn from_variables(
    variables: impl IntoIterator<Item = (String, String)>,
    defaults: &Table,
) -> Result<Vec<Override>, ConfigError> {
    let mut found = Vec::new();
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix(VARIABLE_PREFIX) else {
            continue;
        };
        let lower = rest.to_ascii_lowercase();
        let Some((section, key)) = lower.split_once('_') else {
            continue;
        };
        if !defaults.contains_key(section) {
            continue;
        }
        if key.is_empty() {
            return Err(ConfigError::UnknownVariable { name });
        }
        found.push(Override::new(section, key, value));
    }
    found.sort_by(|a, b| (&a.section, &a.key).cmp(&(&b.section, &b.key)));
    Ok(found)
}

fn apply(table: &mut Table, defaults: &Table, change: &Override) {
    let default = defaults
        .get(&change.section)
        .and_then(|section| section.get(&change.key));
    let section = table
        .entry(change.section.clone())
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(change.key.clone(), change.to_value(default));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<Config, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("decant.toml");
        std::fs::write(&path, file).unwrap();
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let flags: Vec<Override> = flags.iter().map(|flag| flag.parse().unwrap()).collect();
        Config::load_with(Some(&path), variables, &flags)
    }

    fn chain(error: &dyn std::error::Error) -> String {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    }

    #[test]
    fn flags_win_over_variables_over_the_file_over_defaults() {
        let file = "[source]\nport = 1\nuser = 'file'\ndatabase = 'file'\n";
        let variables = [
            ("DECANT_SOURCE_USER", "variable"),
            ("DECANT_SOURCE_DATABASE", "variable"),
        ];
        let config = load(file, &variables, &["source.database=flag"]).unwrap();
        assert_eq!(config.source.port, 1);
        assert_eq!(config.source.user, "variable");
        assert_eq!(config.source.database, "flag");
        assert_eq!(config.source.slot, "decant");
    }

    #[test]
    fn unknown_keys_are_errors_wherever_they_stand() {
        for result in [
            load("[source]\nprot = 1\n", &[], &[]),
            load("[sauce]\nport = 1\n", &[], &[]),
            load("", &[("DECANT_SOURCE_PROT", "1")], &[]),
            load("", &[], &["source.prot=1"]),
        ] {
            let text = chain(&result.unwrap_err());
            assert!(text.contains("unknown field"), "{text}");
        }
        assert!(load("", &[("DECANT_BIN_DIR", "/x")], &[]).is_ok());
    }

    #[test]
    fn a_value_takes_the_type_of_its_setting() {
        let flags = [
            "source.port=6000",
            "source.password=12345",
            "fanout.serve=written",
        ];
        let config = load("", &[("DECANT_LOG_SEGMENT_BYTES", "2097152")], &flags).unwrap();
        assert_eq!(config.source.port, 6000);
        assert_eq!(config.source.password.as_deref(), Some("12345"));
        assert_eq!(config.log.segment_bytes, 2_097_152);
        assert_eq!(config.fanout.serve, crate::config::Serve::Written);
        assert!(!format!("{config:?}").contains("12345"));
    }

    #[test]
    fn limits_are_checked_and_named() {
        for (flag, key) in [
            ("log.zstd_level=20", "log.zstd_level"),
            ("log.segment_bytes=1", "log.segment_bytes"),
            ("fanout.name=a/b", "fanout.name"),
            ("source.slot=", "source.slot"),
        ] {
            let text = load("", &[], &[flag]).unwrap_err().to_string();
            assert!(text.contains(key), "{text}");
        }
        assert!("source".parse::<Override>().is_err());
        assert!("source.port".parse::<Override>().is_err());
        assert!(".port=1".parse::<Override>().is_err());
    }

    #[test]
    fn the_password_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "secret\n").unwrap();
        let flag = format!("source.password_file={}", path.display());
        let config = load("", &[], &[&flag]).unwrap();
        assert_eq!(config.source.password.as_deref(), Some("secret"));
        let missing = load("", &[], &["source.password_file=/nonexistent/file"]).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/file"));
    }

    #[test]
    fn the_example_file_shows_every_setting_with_its_default() {
        let text = include_str!("../../../decant.toml");
        assert_eq!(load(text, &[], &[]).unwrap(), Config::default());
        let shown: Table = text.parse().unwrap();
        let defaults = Table::try_from(Config::default()).unwrap();
        for (section, keys) in defaults {
            for key in keys.as_table().unwrap().keys() {
                assert!(shown[&section].get(key).is_some(), "{section}.{key}");
            }
        }
    }
}
