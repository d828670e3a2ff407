//! Values of command options (`defGetString`, `defGetBoolean` of `define.c`).

use pg_proto::replication::{CommandOption, OptionValue};

use pg_proto::wire::{ErrorFields, sqlstate};

/// An option that may be given once was given again.
pub(crate) fn redundant() -> ErrorFields {
    ErrorFields::error(sqlstate::SYNTAX_ERROR, "conflicting or redundant options")
}

/// Remembers that an option was given; it may be given once.
pub(crate) fn given_once(given: &mut bool) -> Result<(), ErrorFields> {
    if std::mem::replace(given, true) {
        return Err(redundant());
    }
    Ok(())
}

/// The value as text; an option without value is refused.
pub(crate) fn text(option: &CommandOption) -> Result<String, ErrorFields> {
    match &option.value {
        Some(OptionValue::Text(text)) => Ok(text.clone()),
        Some(OptionValue::Integer(number)) => Ok(number.to_string()),
        None => Err(ErrorFields::error(
            sqlstate::SYNTAX_ERROR,
            format!("{} requires a parameter", option.name),
        )),
    }
}

/// `true`, `false`, `on`, `off` in any case, the integers 1 and 0, or nothing, which means true.
pub(crate) fn boolean(option: &CommandOption) -> Option<bool> {
    match &option.value {
        None => Some(true),
        Some(OptionValue::Integer(number)) => match number {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        Some(OptionValue::Text(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "on" => Some(true),
            "false" | "off" => Some(false),
            _ => None,
        },
    }
}

/// As [`boolean`], with PostgreSQL's error.
pub(crate) fn require_boolean(option: &CommandOption) -> Result<bool, ErrorFields> {
    boolean(option).ok_or_else(|| {
        ErrorFields::error(
            sqlstate::SYNTAX_ERROR,
            format!("{} requires a Boolean value", option.name),
        )
    })
}
