//! The options of `START_REPLICATION ... LOGICAL`: what pgoutput accepts, by version, and how it refuses the
//! rest (`parse_output_parameters`, `pgoutput_startup`).

use pg_proto::replication::CommandOption;

use super::identifiers;
use super::option_value::{boolean, given_once, require_boolean, text};
use super::version::ServerVersion;
use pg_proto::wire::{ErrorFields, sqlstate};

/// pgoutput's version from which in-progress transactions may be streamed.
const PROTO_STREAMING: u32 = 2;
/// pgoutput's version from which prepared transactions may be sent as such.
const PROTO_TWO_PHASE: u32 = 3;
/// pgoutput's version from which streamed transactions may be applied in parallel.
const PROTO_PARALLEL: u32 = 4;

/// Whether the client takes transactions before they commit. It is a permission, not a duty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Streaming {
    /// Whole transactions only.
    #[default]
    Off,
    /// In pieces.
    On,
    /// In pieces, with the positions of aborts.
    Parallel,
}

/// What a client asked of its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartOptions {
    /// 1 to 4.
    pub(crate) proto_version: u32,
    /// In the order given.
    pub(crate) publications: Vec<String>,
    /// Values in binary are welcome; text remains legal.
    pub(crate) binary: bool,
    /// Transactions in pieces are welcome.
    pub(crate) streaming: Streaming,
    /// Prepared transactions are welcome as such.
    pub(crate) two_phase: bool,
    /// Logical messages are wanted.
    pub(crate) messages: bool,
    /// Only transactions that began at the source are wanted.
    pub(crate) origin_none: bool,
}

/// Checks the options in PostgreSQL's order. The errors carry the context that names `slot`.
pub(crate) fn parse(
    version: ServerVersion,
    slot: &str,
    options: &[CommandOption],
) -> Result<StartOptions, ErrorFields> {
    read(version, options)
        .and_then(|parsed| check(version, parsed))
        .map_err(|report| report.with_context(startup_context(slot)))
}

/// Where pgoutput's start-up errors come from.
fn startup_context(slot: &str) -> String {
    format!("slot \"{slot}\", output plugin \"pgoutput\", in the startup callback")
}

/// Which of the options that may be given once have been.
#[derive(Default)]
struct Given {
    proto_version: bool,
    publications: bool,
    binary: bool,
    streaming: bool,
    two_phase: bool,
    messages: bool,
    origin: bool,
}

fn read(version: ServerVersion, options: &[CommandOption]) -> Result<StartOptions, ErrorFields> {
    let mut parsed = StartOptions::default();
    let mut given = Given::default();
    for option in options {
        match option.name.as_str() {
            "proto_version" => {
                given_once(&mut given.proto_version)?;
                parsed.proto_version = proto_version(&text(option)?)?;
            }
            "publication_names" => {
                given_once(&mut given.publications)?;
                parsed.publications = publications(&text(option)?)?;
            }
            "binary" => {
                given_once(&mut given.binary)?;
                parsed.binary = require_boolean(option)?;
            }
            "messages" => {
                given_once(&mut given.messages)?;
                parsed.messages = require_boolean(option)?;
            }
            "streaming" => {
                given_once(&mut given.streaming)?;
                parsed.streaming = streaming(version, option)?;
            }
            "two_phase" if version.has_two_phase_option() => {
                given_once(&mut given.two_phase)?;
                parsed.two_phase = require_boolean(option)?;
            }
            "origin" if version.has_origin_and_parallel() => {
                given_once(&mut given.origin)?;
                parsed.origin_none = origin_none(&text(option)?)?;
            }
            unknown => {
                return Err(ErrorFields::error(
                    sqlstate::INTERNAL_ERROR,
                    format!("unrecognized pgoutput option: {unknown}"),
                ));
            }
        }
    }
    if version.checks_required_options() {
        require(given.proto_version, "proto_version")?;
        require(given.publications, "publication_names")?;
    }
    Ok(parsed)
}

fn require(given: bool, name: &str) -> Result<(), ErrorFields> {
    if given {
        return Ok(());
    }
    Err(invalid(format!("option \"{name}\" missing")))
}

fn invalid(message: impl Into<String>) -> ErrorFields {
    ErrorFields::error(sqlstate::INVALID_PARAMETER_VALUE, message)
}

/// The rule of `strtoul`: leading white space and a sign are taken, anything after the digits is not.
fn proto_version(value: &str) -> Result<u32, ErrorFields> {
    let digits = value.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
    let negative = digits.starts_with('-');
    let digits = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid("invalid proto_version"));
    }
    if digits.is_empty() {
        // strtoul takes an empty text for 0, unless only white space or a sign was eaten.
        return if value.is_empty() {
            Ok(0)
        } else {
            Err(invalid("invalid proto_version"))
        };
    }
    let number = digits
        .parse::<u64>()
        .map_err(|_| invalid("invalid proto_version"))?;
    // It takes the sign and wraps around.
    let number = if negative {
        number.wrapping_neg()
    } else {
        number
    };
    u32::try_from(number).map_err(|_| invalid(format!("proto_version \"{value}\" out of range")))
}

fn publications(value: &str) -> Result<Vec<String>, ErrorFields> {
    identifiers::split(value)
        .map_err(|_| ErrorFields::error(sqlstate::INVALID_NAME, "invalid publication_names syntax"))
}

fn streaming(version: ServerVersion, option: &CommandOption) -> Result<Streaming, ErrorFields> {
    if !version.has_origin_and_parallel() {
        return require_boolean(option).map(|on| if on { Streaming::On } else { Streaming::Off });
    }
    match boolean(option) {
        Some(true) => Ok(Streaming::On),
        Some(false) => Ok(Streaming::Off),
        None if text(option)?.eq_ignore_ascii_case("parallel") => Ok(Streaming::Parallel),
        None => Err(ErrorFields::error(
            sqlstate::SYNTAX_ERROR,
            format!("{} requires a Boolean value or \"parallel\"", option.name),
        )),
    }
}

fn origin_none(value: &str) -> Result<bool, ErrorFields> {
    match value.to_ascii_lowercase().as_str() {
        "none" => Ok(true),
        "any" => Ok(false),
        _ => Err(invalid(format!("unrecognized origin value: \"{value}\""))),
    }
}

/// What depends on more than one option.
fn check(version: ServerVersion, parsed: StartOptions) -> Result<StartOptions, ErrorFields> {
    let proto = parsed.proto_version;
    let range = |bound: u32, word: &str| {
        ErrorFields::error(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!(
                "client sent proto_version={proto} but {} only support{} protocol {bound} or {word}",
                version.proto_range_subject(),
                if version.proto_range_subject() == "we" {
                    ""
                } else {
                    "s"
                },
            ),
        )
    };
    if proto > version.proto_max() {
        return Err(range(version.proto_max(), "lower"));
    }
    if proto < 1 {
        return Err(range(1, "higher"));
    }
    if parsed.publications.is_empty() && !version.checks_required_options() {
        return Err(invalid("publication_names parameter missing"));
    }
    let needs = |need: u32, what: &str| {
        invalid(format!(
            "requested proto_version={proto} does not support {what}, need {need} or higher"
        ))
    };
    match parsed.streaming {
        Streaming::On if proto < PROTO_STREAMING => Err(needs(PROTO_STREAMING, "streaming")),
        Streaming::Parallel if proto < PROTO_PARALLEL => {
            Err(needs(PROTO_PARALLEL, "parallel streaming"))
        }
        _ if parsed.two_phase && proto < PROTO_TWO_PHASE => {
            Err(needs(PROTO_TWO_PHASE, "two-phase commit"))
        }
        _ => Ok(parsed),
    }
}

#[cfg(test)]
#[path = "start_options_tests.rs"]
mod tests;
