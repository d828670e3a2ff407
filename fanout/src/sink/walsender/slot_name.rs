//! The rule for names of slots (`ReplicationSlotValidateName`).

use pg_proto::wire::{ErrorFields, sqlstate};

/// `NAMEDATALEN`: a name and its terminating zero fit in it.
const NAME_DATA_LEN: usize = 64;

/// Refuses a name that PostgreSQL refuses, with its words.
pub(crate) fn validate(name: &str) -> Result<(), ErrorFields> {
    let refuse =
        |code, fault| ErrorFields::error(code, format!("replication slot name \"{name}\" {fault}"));
    if name.is_empty() {
        return Err(refuse(sqlstate::INVALID_NAME, "is too short"));
    }
    if name.len() >= NAME_DATA_LEN {
        return Err(refuse(sqlstate::NAME_TOO_LONG, "is too long"));
    }
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    if !name.bytes().all(allowed) {
        return Err(
            refuse(sqlstate::INVALID_NAME, "contains invalid character").with_hint(
                "Replication slot names may only contain lower case letters, numbers, and the \
                 underscore character.",
            ),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_what_postgresql_allows() {
        let longest = "s".repeat(63);
        for name in [
            "a",
            "0",
            "_",
            "pg_16449_sync_16397_7710463241471203634",
            &longest,
        ] {
            assert_eq!(validate(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn refuses_with_the_words_of_postgresql() {
        let long = "s".repeat(64);
        for (name, code, message) in [
            (
                "",
                "42602",
                "replication slot name \"\" is too short".to_owned(),
            ),
            (
                "Bad",
                "42602",
                "replication slot name \"Bad\" contains invalid character".to_owned(),
            ),
            (
                "a-b",
                "42602",
                "replication slot name \"a-b\" contains invalid character".to_owned(),
            ),
            (
                "ä",
                "42602",
                "replication slot name \"ä\" contains invalid character".to_owned(),
            ),
            (
                &long,
                "42622",
                format!("replication slot name \"{long}\" is too long"),
            ),
        ] {
            let report = validate(name).unwrap_err();
            assert_eq!(
                (report.code(), report.message().to_owned()),
                (code, message)
            );
            assert_eq!(report.hint().is_some(), !name.is_empty() && name.len() < 64);
        }
    }
}
