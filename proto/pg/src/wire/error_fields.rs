//! The fields of ErrorResponse and NoticeResponse.

use std::fmt;

use super::frame::put_cstr;
use crate::read::{ReadError, Reader};

/// The types of fields (`protocol.sgml`, "Error and Notice Message Fields").
pub mod field {
    /// Severity, translated.
    pub const SEVERITY: u8 = b'S';
    /// Severity, never translated.
    pub const SEVERITY_PLAIN: u8 = b'V';
    /// SQLSTATE.
    pub const CODE: u8 = b'C';
    /// The message.
    pub const MESSAGE: u8 = b'M';
    /// Detail.
    pub const DETAIL: u8 = b'D';
    /// Hint.
    pub const HINT: u8 = b'H';
    /// Position in the query, in characters from 1.
    pub const POSITION: u8 = b'P';
    /// Position in a query of the server's own.
    pub const INTERNAL_POSITION: u8 = b'p';
    /// That query.
    pub const INTERNAL_QUERY: u8 = b'q';
    /// Where: the context.
    pub const CONTEXT: u8 = b'W';
    /// Schema.
    pub const SCHEMA: u8 = b's';
    /// Table.
    pub const TABLE: u8 = b't';
    /// Column.
    pub const COLUMN: u8 = b'c';
    /// Data type.
    pub const DATA_TYPE: u8 = b'd';
    /// Constraint.
    pub const CONSTRAINT: u8 = b'n';
    /// Source file of the server.
    pub const FILE: u8 = b'F';
    /// Line of that file.
    pub const LINE: u8 = b'L';
    /// Function of that file.
    pub const ROUTINE: u8 = b'R';
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// The server ends.
    Panic,
    /// A warning.
    Warning,
    /// A notice.
    Notice,
    /// For developers.
    Debug,
    /// Asked for by the client.
    Info,
    /// For the server's log.
    Log,
}

impl Severity {
    /// PostgreSQL's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Panic => "PANIC",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Log => "LOG",
        }
    }
}

/// The fields of an error or a notice, in the order in which they travel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFields {
    fields: Vec<(u8, String)>,
}

impl ErrorFields {
    /// Severity (translated and not), code and message: what every error has.
    #[must_use]
    pub fn new(severity: Severity, code: &str, message: impl Into<String>) -> Self {
        Self::default()
            .with(field::SEVERITY, severity.as_str())
            .with(field::SEVERITY_PLAIN, severity.as_str())
            .with(field::CODE, code)
            .with(field::MESSAGE, message)
    }

    /// An ERROR.
    #[must_use]
    pub fn error(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    /// A FATAL error.
    #[must_use]
    pub fn fatal(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Fatal, code, message)
    }

    /// Appends a field.
    #[must_use]
    pub fn with(mut self, field: u8, text: impl Into<String>) -> Self {
        self.fields.push((field, text.into()));
        self
    }

    /// Appends a detail.
    #[must_use]
    pub fn with_detail(self, text: impl Into<String>) -> Self {
        self.with(field::DETAIL, text)
    }

    /// Appends a hint.
    #[must_use]
    pub fn with_hint(self, text: impl Into<String>) -> Self {
        self.with(field::HINT, text)
    }

    /// Appends a context.
    #[must_use]
    pub fn with_context(self, text: impl Into<String>) -> Self {
        self.with(field::CONTEXT, text)
    }

    /// A field's text.
    #[must_use]
    pub fn get(&self, field: u8) -> Option<&str> {
        let found = self.fields.iter().find(|(kind, _)| *kind == field);
        found.map(|(_, text)| text.as_str())
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &str)> {
        self.fields
            .iter()
            .map(|(kind, text)| (*kind, text.as_str()))
    }

    /// The severity's word, not translated if the server says it so (9.6 and later do).
    #[must_use]
    pub fn severity(&self) -> &str {
        let plain = self.get(field::SEVERITY_PLAIN);
        plain
            .or_else(|| self.get(field::SEVERITY))
            .unwrap_or("ERROR")
    }

    /// Whether the server ends the connection with it.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self.severity(), "FATAL" | "PANIC")
    }

    /// SQLSTATE.
    #[must_use]
    pub fn code(&self) -> &str {
        self.get(field::CODE).unwrap_or_default()
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        self.get(field::MESSAGE).unwrap_or_default()
    }

    /// The detail.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.get(field::DETAIL)
    }

    /// The hint.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.get(field::HINT)
    }

    /// Decodes the body of ErrorResponse or NoticeResponse. Text that is not UTF-8 (a server that could not
    /// convert its message yet) is read with replacement characters: an error must always be readable.
    pub fn decode(body: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(body);
        let mut fields = Vec::new();
        loop {
            match reader.u8("error field type")? {
                0 => break,
                kind => {
                    let text = String::from_utf8_lossy(reader.cstr("error field")?);
                    fields.push((kind, text.into_owned()));
                }
            }
        }
        reader.finish("the error")?;
        Ok(Self { fields })
    }

    /// Appends the body of ErrorResponse or NoticeResponse.
    pub fn encode_body(&self, out: &mut Vec<u8>) {
        for (kind, text) in self.fields.iter().filter(|(kind, _)| *kind != 0) {
            out.push(*kind);
            put_cstr(text.as_bytes(), out);
        }
        out.push(0);
    }
}

impl fmt::Display for ErrorFields {
    /// As psql prints it, on one line: `ERROR: text (SQLSTATE 42704), detail: ..., hint: ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (SQLSTATE {})",
            self.severity(),
            self.message(),
            self.code()
        )?;
        for (name, text) in [("detail", self.detail()), ("hint", self.hint())] {
            if let Some(text) = text {
                write!(f, ", {name}: {text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ErrorFields {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_a_person_needs() {
        let error =
            ErrorFields::error("42704", "publication \"x\" does not exist").with_hint("make it");
        assert_eq!(
            error.to_string(),
            "ERROR: publication \"x\" does not exist (SQLSTATE 42704), hint: make it"
        );
        assert!(!error.is_fatal());
        assert!(ErrorFields::fatal("57P03", "no").is_fatal());
    }
}
