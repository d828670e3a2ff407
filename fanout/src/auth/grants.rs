//! What a role may read: the grants file.
//!
//! TOML, one `[[role]]` for each role, with what it is allowed. Everything else is denied, and so is everybody who is not
//! there. Clients of the gRPC service that need not say who they are, since there is no users file, are the role `grpc`.
//!
//! ```toml
//! [[role]]
//! name = "reporting"
//! publications = ["orders_eu"]    # "*": all, and gRPC streams without publications
//! messages = true                 # logical messages
//!
//! [[role.table]]                  # without any: all that the publications publish
//! schema = "public"
//! name = "orders"
//! columns = ["id", "total"]       # without: all
//! ```

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

/// The role of gRPC clients that are not asked who they are.
pub const GRPC_ROLE: &str = "grpc";

/// Stands for every publication.
const ALL: &str = "*";

/// The grants file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GrantsError {
    /// It can't be read.
    #[error("cannot read the grants file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not of the form.
    #[error("the grants file {} is not understood", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<toml::de::Error>,
    },
    /// A role is there twice.
    #[error("the grants file {} has role \"{role}\" twice", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The role.
        role: String,
    },
}

/// What all roles may read.
#[derive(Debug, Default)]
pub struct Grants {
    by_role: HashMap<String, Arc<Grant>>,
}

/// What one role may read. The default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The role.
    #[serde(rename = "name")]
    role: String,
    #[serde(default)]
    publications: Vec<String>,
    #[serde(default)]
    messages: bool,
    #[serde(default, rename = "table")]
    tables: Vec<TableGrant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableGrant {
    schema: String,
    name: String,
    columns: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    role: Vec<Grant>,
}

impl Grants {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, GrantsError> {
        let text = std::fs::read_to_string(path).map_err(|source| GrantsError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, GrantsError> {
        let file: File = toml::from_str(text).map_err(|source| GrantsError::Form {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        let mut by_role = HashMap::new();
        for grant in file.role {
            let role = grant.role.clone();
            if by_role.insert(role.clone(), Arc::new(grant)).is_some() {
                let path = path.to_owned();
                return Err(GrantsError::Twice { path, role });
            }
        }
        Ok(Self { by_role })
    }

    /// What a role may read; nothing, if it is not in the file.
    #[must_use]
    pub fn of(&self, role: &str) -> Arc<Grant> {
        self.by_role.get(role).cloned().unwrap_or_default()
    }
}

impl Grant {
    /// Whether a publication may be named.
    #[must_use]
    pub fn allows_publication(&self, name: &str) -> bool {
        self.allows_everything() || self.publications.iter().any(|one| one == name)
    }

    /// Whether a stream may do without publications.
    #[must_use]
    pub fn allows_everything(&self) -> bool {
        self.publications.iter().any(|one| one == ALL)
    }

    /// Whether logical messages may be asked for.
    #[must_use]
    pub const fn allows_messages(&self) -> bool {
        self.messages
    }

    /// Whether a table may be read at all.
    #[must_use]
    pub fn allows_table(&self, schema: &str, name: &str) -> bool {
        self.tables.is_empty() || self.table(schema, name).is_some()
    }

    /// Whether a column of a table may be read.
    #[must_use]
    pub fn allows_column(&self, schema: &str, name: &str, column: &str) -> bool {
        if self.tables.is_empty() {
            return true;
        }
        let columns = self.table(schema, name).map(|table| table.columns.as_ref());
        columns.is_some_and(|list| list.is_none_or(|list| list.iter().any(|one| one == column)))
    }

    fn table(&self, schema: &str, name: &str) -> Option<&TableGrant> {
        let mut tables = self.tables.iter();
        tables.find(|table| table.schema == schema && table.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[role]]
        name = "reporting"
        publications = ["orders_eu"]
        [[role.table]]
        schema = "public"
        name = "orders"
        columns = ["id", "total"]
        [[role.table]]
        schema = "public"
        name = "regions"
        [[role]]
        name = "all"
        publications = ["*"]
        messages = true"#;

    fn parse(text: &str) -> Result<Grants, GrantsError> {
        Grants::parse(text, Path::new("grants.toml"))
    }

    #[test]
    fn what_is_not_said_is_denied() {
        let grants = parse(FILE).unwrap();
        let nobody = grants.of("nobody");
        assert!(!nobody.allows_publication("orders_eu") && !nobody.allows_messages());
        let reporting = grants.of("reporting");
        assert!(reporting.allows_publication("orders_eu"));
        assert!(!reporting.allows_publication("others") && !reporting.allows_everything());
        assert!(reporting.allows_column("public", "orders", "total"));
        assert!(!reporting.allows_column("public", "orders", "card"));
        assert!(reporting.allows_column("public", "regions", "anything"));
        assert!(!reporting.allows_table("public", "cards"));
        assert!(!reporting.allows_column("public", "cards", "id"));
        let all = grants.of("all");
        assert!(all.allows_everything() && all.allows_publication("x") && all.allows_messages());
        assert!(all.allows_column("a", "b", "c"));
        assert!(parse("").unwrap().of("all").publications.is_empty());
    }

    #[test]
    fn a_file_that_is_not_understood_is_an_error() {
        let twice = parse("[[role]]\nname = \"a\"\n[[role]]\nname = \"a\"");
        assert!(matches!(twice, Err(GrantsError::Twice { .. })));
        for text in [
            "[[roles]]",
            "[[role]]",
            "[[role]]\nname = \"a\"\ntables = []",
        ] {
            assert!(
                matches!(parse(text), Err(GrantsError::Form { .. })),
                "{text}"
            );
        }
    }
}
