//! What the announced server version can and how it words things.
//!
//! A client chooses its statements and options by the version that the endpoint announces, which is the
//! source's own. So whatever differs between 14 and 18 is asked here.

use pg_proto::wire::{ErrorFields, sqlstate};

/// The major version of PostgreSQL that this endpoint speaks as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerVersion(u32);

impl ServerVersion {
    /// From the parameter `server_version`, such as `15.18 (Debian 15.18-0+deb12u1)` or `19devel`.
    pub(crate) fn parse(server_version: &str) -> Option<Self> {
        let digits = server_version.trim_start();
        let end = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        digits.get(..end)?.parse().ok().map(Self)
    }

    /// The number.
    pub(crate) const fn major(self) -> u32 {
        self.0
    }

    /// The highest pgoutput protocol version (`LOGICALREP_PROTO_MAX_VERSION_NUM`).
    pub(crate) const fn proto_max(self) -> u32 {
        match self.0 {
            ..=14 => 2,
            15 => 3,
            _ => 4,
        }
    }

    /// Who says "client sent proto_version=...".
    pub(crate) const fn proto_range_subject(self) -> &'static str {
        if self.0 <= 15 { "we" } else { "server" }
    }

    /// Whether missing options are reported by one rule before any other check, and an empty list of
    /// publications is allowed.
    pub(crate) const fn checks_required_options(self) -> bool {
        self.0 >= 17
    }

    /// Whether pgoutput knows `two_phase`.
    pub(crate) const fn has_two_phase_option(self) -> bool {
        self.0 >= 15
    }

    /// Whether pgoutput knows `origin` and `streaming 'parallel'`.
    pub(crate) const fn has_origin_and_parallel(self) -> bool {
        self.0 >= 16
    }

    /// Whether slot commands take a parenthesised option list, and `READ_REPLICATION_SLOT` exists.
    pub(crate) const fn has_slot_option_lists(self) -> bool {
        self.0 >= 15
    }

    /// Whether slots have `failover`, and `ALTER_REPLICATION_SLOT` exists.
    pub(crate) const fn has_failover(self) -> bool {
        self.0 >= 17
    }

    /// Whether `ALTER_REPLICATION_SLOT` takes `two_phase`.
    pub(crate) const fn alters_two_phase(self) -> bool {
        self.0 >= 18
    }

    /// Whether the timeline of `IDENTIFY_SYSTEM` is an int8.
    pub(crate) const fn timeline_is_int8(self) -> bool {
        self.0 >= 16
    }

    /// Whether a missing publication is a warning and not an error.
    pub(crate) const fn tolerates_missing_publication(self) -> bool {
        self.0 >= 18
    }

    /// Whether BEGIN waits for the first change that is sent, and has its position.
    pub(crate) const fn begins_late(self) -> bool {
        self.0 >= 15
    }

    /// What a server says of a slot whose changes are gone.
    pub(crate) fn invalidated_slot(self, slot: &str) -> String {
        let words = match self.0 {
            ..=15 => "cannot read from logical replication slot",
            16 | 17 => "can no longer get changes from replication slot",
            _ => "can no longer access replication slot",
        };
        format!("{words} \"{slot}\"")
    }

    /// Why it can't be used any more, by the word for it in `pg_replication_slots`.
    pub(crate) fn invalidation(self, reason: &str) -> String {
        match reason {
            "forked" => "This slot has been invalidated because its subscriber has transactions that the source never had: \
                         the source failed over to a server that lacked them."
                .to_owned(),
            "wal_removed" if self.0 < 18 => {
                "This slot has been invalidated because it exceeded the maximum reserved size.".to_owned()
            }
            _ => format!("This replication slot has been invalidated due to \"{reason}\"."),
        }
    }

    /// What a server says of `pg_replication_slot_advance` of such a slot, which knows no reason before 18.
    pub(crate) fn not_advanced(self, slot: &str, reason: &str) -> ErrorFields {
        let code = sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE;
        if self.0 >= 18 {
            return ErrorFields::error(code, self.invalidated_slot(slot))
                .with_detail(self.invalidation(reason));
        }
        let message = format!("replication slot \"{slot}\" cannot be advanced");
        ErrorFields::error(code, message)
            .with_detail("This slot has never previously reserved WAL, or it has been invalidated.")
    }

    /// Whether a transaction must be read-only to use the snapshot of a new slot.
    pub(crate) const fn uses_snapshots_read_only(self) -> bool {
        self.0 >= 16
    }

    /// Whether there is `transaction_timeout`.
    pub(crate) const fn has_transaction_timeout(self) -> bool {
        self.0 >= 17
    }

    /// The type modifier that is claimed of the columns of a timeline's history.
    pub(crate) const fn history_type_modifier(self) -> i32 {
        if self.0 < 16 { 0 } else { -1 }
    }

    /// What a role without the attribute REPLICATION is told that wants a walsender.
    pub(crate) fn may_not_start_walsender(self) -> ErrorFields {
        let code = sqlstate::INSUFFICIENT_PRIVILEGE;
        if self.0 < 16 {
            let message = "must be superuser or replication role to start walsender";
            return ErrorFields::fatal(code, message);
        }
        ErrorFields::fatal(code, "permission denied to start WAL sender").with_detail(
            "Only roles with the REPLICATION attribute may start a WAL sender process.",
        )
    }

    /// What a role without the attribute REPLICATION is told that calls a function about slots.
    pub(crate) fn may_not_use_slots(self) -> ErrorFields {
        let code = sqlstate::INSUFFICIENT_PRIVILEGE;
        if self.0 < 16 {
            let message = "must be superuser or replication role to use replication slots";
            return ErrorFields::error(code, message);
        }
        ErrorFields::error(code, "permission denied to use replication slots")
            .with_detail("Only roles with the REPLICATION attribute may use replication slots.")
    }

    /// What a role is told that may not end another's session, or what it does.
    pub(crate) fn may_not_signal(self, terminate: bool) -> ErrorFields {
        let code = sqlstate::INSUFFICIENT_PRIVILEGE;
        let (process, past, act) = if terminate {
            ("process", "terminated", "terminate")
        } else {
            ("query", "canceled", "cancel")
        };
        if self.0 < 16 {
            let message = format!(
                "must be a member of the role whose {process} is being {past} or member of \
                 pg_signal_backend"
            );
            return ErrorFields::error(code, message);
        }
        ErrorFields::error(code, format!("permission denied to {act} {process}")).with_detail(
            format!(
                "Only roles with privileges of the role whose {process} is being {past} or with \
                 privileges of the \"pg_signal_backend\" role may {act} this {process}."
            ),
        )
    }

    /// SQLSTATE of a slot that is to be advanced to nowhere.
    pub(crate) const fn invalid_target_code(self) -> &'static str {
        if self.0 < 17 {
            sqlstate::INTERNAL_ERROR
        } else {
            sqlstate::INVALID_PARAMETER_VALUE
        }
    }

    /// Whether `search_path` is a reported parameter.
    pub(crate) const fn reports_search_path(self) -> bool {
        self.0 >= 18
    }

    /// Whether `scram_iterations` is a reported parameter.
    pub(crate) const fn reports_scram_iterations(self) -> bool {
        self.0 >= 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_major_version() {
        for (text, major) in [
            ("15.18 (Debian 15.18-0+deb12u1)", 15),
            ("18.4", 18),
            ("19devel", 19),
            ("16beta1", 16),
        ] {
            assert_eq!(ServerVersion::parse(text), Some(ServerVersion(major)));
        }
        assert_eq!(ServerVersion::parse(""), None);
        assert_eq!(ServerVersion::parse("PostgreSQL"), None);
    }
}
