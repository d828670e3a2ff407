//! What goes wrong at a row.

use std::borrow::Cow;

/// A run-time error of an expression, with PostgreSQL's SQLSTATE and message. A walsender ends at such a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FilterError {
    /// Five characters.
    pub sqlstate: Cow<'static, str>,
    /// The primary message.
    pub message: Cow<'static, str>,
}

impl FilterError {
    /// 22003 and similar, with a fixed text.
    pub(crate) const fn new(sqlstate: &'static str, message: &'static str) -> Self {
        Self {
            sqlstate: Cow::Borrowed(sqlstate),
            message: Cow::Borrowed(message),
        }
    }

    pub(crate) const fn division_by_zero() -> Self {
        Self::new("22012", "division by zero")
    }

    pub(crate) fn out_of_range(kind: &'static str) -> Self {
        Self {
            sqlstate: Cow::Borrowed("22003"),
            message: format!("{kind} out of range").into(),
        }
    }

    pub(crate) const fn overflow() -> Self {
        Self::new("22003", "value out of range: overflow")
    }

    pub(crate) const fn underflow() -> Self {
        Self::new("22003", "value out of range: underflow")
    }

    /// A column's bytes are not what the type's output function prints. The log is damaged, or of another making.
    pub(crate) fn unreadable(what: &'static str) -> Self {
        Self {
            sqlstate: Cow::Borrowed("XX001"),
            message: format!("a column value is not a {what} as PostgreSQL prints it").into(),
        }
    }

    /// The filter reads a TOASTed value that the change left alone and that the old row does not have either.
    pub(crate) const fn unchanged() -> Self {
        Self::new(
            "XX000",
            "a row filter reads an unchanged TOAST value that is not in the log",
        )
    }

    /// What the compiler has excluded. Never seen; an answer in place of a panic.
    pub(crate) const fn internal() -> Self {
        Self::new(
            "XX000",
            "a row filter's operands are not of the types it was compiled for",
        )
    }
}
