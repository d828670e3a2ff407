//! The users file.
//!
//! One line for each user, in the form of pgbouncer's `userlist.txt`: the name, the verifier of the password as PostgreSQL
//! stores it, and, if SQL of this user is to be passed on to a source that asks for a password, that password. Each in
//! double quotes, a double quote inside doubled. Empty lines and those that begin with `#` or `;` do not count.
//!
//! ```text
//! # user   verifier                                        password at the source
//! "alice"  "SCRAM-SHA-256$4096:salt$StoredKey:ServerKey"
//! "bob"    "SCRAM-SHA-256$4096:salt$StoredKey:ServerKey"   "secret"
//! ```

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use pg_client::Password;

use super::verifier::{InvalidVerifier, Verifier};

/// The users file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// It can't be read.
    #[error("cannot read the users file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{}, line {line}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, from 1 on.
        line: usize,
        /// What is wrong.
        source: LineError,
    },
    /// It has no users.
    #[error("the users file {} has no users: nobody could connect", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// A line of the users file is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Not what a line consists of.
    #[error(
        "expected \"user\" \"verifier\" and perhaps \"password at the source\", in double quotes"
    )]
    Form,
    /// A user without a name.
    #[error("the user has no name")]
    NoName,
    /// The second field.
    #[error("what is stored for \"{user}\" {invalid}")]
    Verifier {
        /// The user.
        user: String,
        /// What it is.
        invalid: InvalidVerifier,
    },
    /// A user is there twice.
    #[error("\"{user}\" is there for the second time")]
    Twice {
        /// The user.
        user: String,
    },
}

/// A user who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// How the password is checked.
    pub verifier: Verifier,
    /// With which password SQL of this user is taken to the source.
    pub source_password: Option<Password>,
}

/// All users.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: HashMap<String, User>,
    /// That of the first line: a user who does not exist looks alike.
    model: Verifier,
}

impl Users {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, UsersError> {
        let text = std::fs::read_to_string(path).map_err(|source| UsersError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, UsersError> {
        let mut by_name = HashMap::new();
        let mut model = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let parsed = parse_line(line).and_then(|(name, user)| {
                model.get_or_insert_with(|| user.verifier.clone());
                match by_name.insert(name.clone(), user) {
                    Some(_) => Err(LineError::Twice { user: name }),
                    None => Ok(()),
                }
            });
            parsed.map_err(|source| UsersError::Line {
                path: path.to_owned(),
                line: index + 1,
                source,
            })?;
        }
        let model = model.ok_or_else(|| UsersError::Empty {
            path: path.to_owned(),
        })?;
        Ok(Self { by_name, model })
    }

    /// A user, if there is one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&User> {
        self.by_name.get(name)
    }

    /// With what a client that gives this name is challenged; nobody can tell from it whether there is such a user.
    #[must_use]
    pub fn verifier(&self, name: &str) -> Verifier {
        match self.get(name) {
            Some(user) => user.verifier.clone(),
            None => Verifier::fake(&self.model, name),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Whether the file holds passwords, which nobody else should read.
    #[must_use]
    pub fn has_passwords(&self) -> bool {
        let mut users = self.by_name.values();
        users.any(|user| user.source_password.is_some())
    }
}

fn parse_line(line: &str) -> Result<(String, User), LineError> {
    let fields = fields(line).ok_or(LineError::Form)?;
    let (name, verifier, source_password) = match fields.as_slice() {
        [name, verifier] => (name, verifier, None),
        [name, verifier, password] => (name, verifier, Some(password.as_str())),
        _ => return Err(LineError::Form),
    };
    if name.is_empty() {
        return Err(LineError::NoName);
    }
    let verifier = verifier.parse().map_err(|invalid| LineError::Verifier {
        user: name.clone(),
        invalid,
    })?;
    let source_password = source_password
        .filter(|password| !password.is_empty())
        .map(Password::from);
    let user = User {
        verifier,
        source_password,
    };
    Ok((name.clone(), user))
}

/// The quoted fields of a line. `None`: something is not quoted, or a quote is not closed.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        rest = rest.strip_prefix('"')?;
        let mut field = String::new();
        loop {
            let (part, behind) = rest.split_once('"')?;
            field.push_str(part);
            rest = behind;
            match rest.strip_prefix('"') {
                Some(behind) => {
                    field.push('"');
                    rest = behind;
                }
                None => break,
            }
        }
        fields.push(field);
        let separated = rest.trim_start();
        if separated.len() == rest.len() && !rest.is_empty() {
            return None;
        }
        rest = separated;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::verifier::testing::verifier_text;

    fn parse(text: &str) -> Result<Users, UsersError> {
        Users::parse(text, Path::new("users"))
    }

    fn line_error(text: &str) -> (usize, LineError) {
        match parse(text).unwrap_err() {
            UsersError::Line { line, source, .. } => (line, source),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn reads_users() {
        let verifier = verifier_text("a", b"salt", 4096);
        let text = format!(
            "# users\n\n; more\n\"alice\" \"{verifier}\"\r\n  \"b \"\"ob\"\t\"{verifier}\"  \"pass\"\"word\"\n\
             \"carol\" \"{verifier}\" \"\"\n"
        );
        let users = parse(&text).unwrap();
        assert_eq!((users.count(), users.has_passwords()), (3, true));
        assert!(users.get("alice").unwrap().source_password.is_none());
        let bob = users.get("b \"ob").unwrap();
        let password = bob.source_password.as_ref().map(Password::expose);
        assert_eq!(password, Some("pass\"word"));
        assert!(users.get("carol").unwrap().source_password.is_none());
        assert_eq!(users.verifier("alice"), verifier.parse().unwrap());
        assert_eq!(users.get("ALICE"), None);
        assert_ne!(users.verifier("ALICE"), users.verifier("alice"));
    }

    #[test]
    fn names_the_line_that_is_wrong_and_shows_no_secret() {
        let verifier = verifier_text("a", b"salt", 4096);
        let good = format!("\"alice\" \"{verifier}\"");
        for (bad, expected) in [
            ("alice".to_owned(), LineError::Form),
            ("\"alice\"".to_owned(), LineError::Form),
            (format!("\"x\" \"{verifier}\" \"y\" \"z\""), LineError::Form),
            (format!("\"x\"\"{verifier}\""), LineError::Form),
            (format!("\"x\" \"{verifier}"), LineError::Form),
            (format!("\"\" \"{verifier}\""), LineError::NoName),
            (
                good.clone(),
                LineError::Twice {
                    user: "alice".to_owned(),
                },
            ),
            (
                "\"x\" \"secret\"".to_owned(),
                LineError::Verifier {
                    user: "x".to_owned(),
                    invalid: InvalidVerifier::Other,
                },
            ),
        ] {
            let (line, error) = line_error(&format!("{good}\n{bad}\n"));
            assert_eq!((line, &error), (2, &expected), "{bad}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn a_file_without_users_locks_everybody_out() {
        assert!(matches!(parse("# nobody\n"), Err(UsersError::Empty { .. })));
        let missing = Users::load(Path::new("/nonexistent/users")).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/users"));
    }
}
