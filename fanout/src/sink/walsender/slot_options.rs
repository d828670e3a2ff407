//! The options of `CREATE_REPLICATION_SLOT` and `ALTER_REPLICATION_SLOT`
//! (`parseCreateReplSlotOptions`, `ParseAlterReplSlotOptions`).

use pg_proto::replication::{CommandOption, SnapshotAction};

use super::option_value::{given_once, redundant, require_boolean, text};
use super::version::ServerVersion;
use pg_proto::wire::{ErrorFields, sqlstate};

/// What a logical slot is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreateOptions {
    pub(crate) snapshot: SnapshotAction,
    pub(crate) two_phase: bool,
    pub(crate) failover: bool,
}

/// What changes of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AlterOptions {
    pub(crate) failover: Option<bool>,
    pub(crate) two_phase: Option<bool>,
}

fn unrecognized(name: &str) -> ErrorFields {
    ErrorFields::error(
        sqlstate::INTERNAL_ERROR,
        format!("unrecognized option: {name}"),
    )
}

/// Options of a new logical slot.
pub(crate) fn create(
    version: ServerVersion,
    options: &[CommandOption],
) -> Result<CreateOptions, ErrorFields> {
    let mut snapshot = None;
    let mut two_phase = None;
    let mut failover = None;
    for option in options {
        match option.name.as_str() {
            "snapshot" if snapshot.is_none() => snapshot = Some(snapshot_action(option)?),
            "two_phase" if two_phase.is_none() => two_phase = Some(require_boolean(option)?),
            "failover" if !version.has_failover() => return Err(unrecognized("failover")),
            "failover" if failover.is_none() => failover = Some(require_boolean(option)?),
            // The last one is for physical slots only.
            "snapshot" | "two_phase" | "failover" | "reserve_wal" => return Err(redundant()),
            unknown => return Err(unrecognized(unknown)),
        }
    }
    Ok(CreateOptions {
        snapshot: snapshot.unwrap_or(SnapshotAction::Export),
        two_phase: two_phase.unwrap_or(false),
        failover: failover.unwrap_or(false),
    })
}

fn snapshot_action(option: &CommandOption) -> Result<SnapshotAction, ErrorFields> {
    let action = text(option)?;
    match action.as_str() {
        "export" => Ok(SnapshotAction::Export),
        "use" => Ok(SnapshotAction::Use),
        "nothing" => Ok(SnapshotAction::Nothing),
        _ => Err(ErrorFields::error(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!(
                "unrecognized value for CREATE_REPLICATION_SLOT option \"{}\": \"{action}\"",
                option.name
            ),
        )),
    }
}

/// Changes of a slot.
pub(crate) fn alter(
    version: ServerVersion,
    options: &[CommandOption],
) -> Result<AlterOptions, ErrorFields> {
    let mut parsed = AlterOptions::default();
    let (mut failover_given, mut two_phase_given) = (false, false);
    for option in options {
        match option.name.as_str() {
            "failover" => {
                given_once(&mut failover_given)?;
                parsed.failover = Some(require_boolean(option)?);
            }
            "two_phase" if version.alters_two_phase() => {
                given_once(&mut two_phase_given)?;
                parsed.two_phase = Some(require_boolean(option)?);
            }
            unknown => return Err(unrecognized(unknown)),
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use pg_proto::replication::OptionValue;

    use super::*;

    fn version(major: u32) -> ServerVersion {
        ServerVersion::parse(&major.to_string()).unwrap()
    }

    fn option(name: &str, value: Option<&str>) -> CommandOption {
        CommandOption {
            name: name.to_owned(),
            value: value.map(|value| OptionValue::Text(value.to_owned())),
        }
    }

    #[test]
    fn a_new_slot_exports_its_snapshot_unless_told() {
        assert_eq!(
            create(version(15), &[]).unwrap(),
            CreateOptions {
                snapshot: SnapshotAction::Export,
                two_phase: false,
                failover: false
            }
        );
        let parsed = create(
            version(17),
            &[
                option("failover", None),
                option("two_phase", Some("on")),
                option("snapshot", Some("nothing")),
            ],
        );
        assert_eq!(
            parsed.unwrap(),
            CreateOptions {
                snapshot: SnapshotAction::Nothing,
                two_phase: true,
                failover: true
            }
        );
    }

    #[test]
    fn refuses_with_the_words_of_postgresql() {
        let twice = [option("two_phase", None), option("two_phase", None)];
        for (major, options, code, message) in [
            (
                15,
                &[option("failover", None)][..],
                "XX000",
                "unrecognized option: failover",
            ),
            (
                17,
                &[option("foo", None)],
                "XX000",
                "unrecognized option: foo",
            ),
            (15, &twice, "42601", "conflicting or redundant options"),
            (
                15,
                &[option("reserve_wal", None)],
                "42601",
                "conflicting or redundant options",
            ),
            (
                15,
                &[option("two_phase", Some("maybe"))],
                "42601",
                "two_phase requires a Boolean value",
            ),
            (
                15,
                &[option("snapshot", None)],
                "42601",
                "snapshot requires a parameter",
            ),
            (
                15,
                &[option("snapshot", Some("keep"))],
                "22023",
                "unrecognized value for CREATE_REPLICATION_SLOT option \"snapshot\": \"keep\"",
            ),
        ] {
            let report = create(version(major), options).unwrap_err();
            assert_eq!((report.code(), report.message()), (code, message));
        }
    }

    #[test]
    fn alters_what_the_version_knows() {
        let parsed = alter(
            version(18),
            &[
                option("failover", Some("true")),
                option("two_phase", Some("false")),
            ],
        );
        assert_eq!(
            parsed.unwrap(),
            AlterOptions {
                failover: Some(true),
                two_phase: Some(false)
            }
        );
        let report = alter(version(17), &[option("two_phase", None)]).unwrap_err();
        assert_eq!(report.message(), "unrecognized option: two_phase");
    }
}
