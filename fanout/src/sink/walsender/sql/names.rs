//! The relations and functions of PostgreSQL that are about slots, walsenders and sessions: here they mean this endpoint's.

/// A system view of which the rows are known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum View {
    /// `pg_replication_slots`.
    Slots,
    /// `pg_stat_replication`.
    Senders,
    /// `pg_stat_replication_slots`.
    SlotStatistics,
    /// Decant's own publications, for `pg_publication` and its kin: see [`super::publications`].
    Publications,
}

impl View {
    /// Those that are read in place of the source's.
    const ALL: [Self; 3] = [Self::Slots, Self::Senders, Self::SlotStatistics];

    /// Its name in `pg_catalog`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Slots => "pg_replication_slots",
            Self::Senders => "pg_stat_replication",
            Self::SlotStatistics => "pg_stat_replication_slots",
            Self::Publications => "pg_publication",
        }
    }

    /// The session's setting at the source that holds its rows as JSON.
    pub(super) const fn setting(self) -> &'static str {
        match self {
            Self::Slots => "decant.replication_slots",
            Self::Senders => "decant.stat_replication",
            Self::SlotStatistics => "decant.stat_replication_slots",
            Self::Publications => super::publications::SETTING,
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.name() == name)
    }
}

/// A function that does something to a slot or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// `pg_create_logical_replication_slot`.
    CreateSlot,
    /// `pg_drop_replication_slot`.
    DropSlot,
    /// `pg_replication_slot_advance`.
    AdvanceSlot,
    /// `pg_copy_logical_replication_slot`.
    CopySlot,
    /// `pg_terminate_backend`.
    Terminate,
    /// `pg_cancel_backend`.
    Cancel,
}

/// What a function gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gives {
    /// Nothing.
    Void,
    /// Yes or no; of other sessions' numbers than those of this endpoint the source's own function decides.
    Boolean,
    /// A slot's name and the position of this name.
    Position(&'static str),
}

/// A function's parameter: its name, its type, and what holds if it is not given.
pub(super) type ParameterOf = (&'static str, &'static str, Option<&'static str>);

impl Function {
    const ALL: [Self; 6] = [
        Self::CreateSlot,
        Self::DropSlot,
        Self::AdvanceSlot,
        Self::CopySlot,
        Self::Terminate,
        Self::Cancel,
    ];

    /// Its name in `pg_catalog`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::CreateSlot => "pg_create_logical_replication_slot",
            Self::DropSlot => "pg_drop_replication_slot",
            Self::AdvanceSlot => "pg_replication_slot_advance",
            Self::CopySlot => "pg_copy_logical_replication_slot",
            Self::Terminate => "pg_terminate_backend",
            Self::Cancel => "pg_cancel_backend",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|function| function.name() == name)
    }

    /// Its parameters (`pg_proc.dat`). `failover` came with version 17.
    pub(super) const fn parameters(self, has_failover: bool) -> &'static [ParameterOf] {
        const CREATE: &[ParameterOf] = &[
            ("slot_name", "name", None),
            ("plugin", "name", None),
            ("temporary", "bool", Some("false")),
            ("twophase", "bool", Some("false")),
            ("failover", "bool", Some("false")),
        ];
        match self {
            Self::CreateSlot if has_failover => CREATE,
            Self::CreateSlot => CREATE.split_at(4).0,
            Self::DropSlot => &[("slot_name", "name", None)],
            Self::AdvanceSlot => &[("slot_name", "name", None), ("upto_lsn", "pg_lsn", None)],
            Self::CopySlot => &[
                ("src_slot_name", "name", None),
                ("dst_slot_name", "name", None),
                ("temporary", "bool", Some("false")),
                ("plugin", "name", Some("''")),
            ],
            Self::Terminate => &[("pid", "int4", None), ("timeout", "int8", Some("0"))],
            Self::Cancel => &[("pid", "int4", None)],
        }
    }

    /// What it gives.
    pub(super) const fn gives(self) -> Gives {
        match self {
            Self::CreateSlot | Self::CopySlot => Gives::Position("lsn"),
            Self::AdvanceSlot => Gives::Position("end_lsn"),
            Self::DropSlot => Gives::Void,
            Self::Terminate | Self::Cancel => Gives::Boolean,
        }
    }
}

/// Functions that would tell of, or change, slots and walsenders of the source.
const NOT_HERE: [&str; 11] = [
    "pg_create_physical_replication_slot",
    "pg_copy_physical_replication_slot",
    "pg_logical_slot_get_changes",
    "pg_logical_slot_get_binary_changes",
    "pg_logical_slot_peek_changes",
    "pg_logical_slot_peek_binary_changes",
    "pg_get_replication_slots",
    "pg_stat_get_wal_senders",
    "pg_stat_get_replication_slot",
    "pg_stat_reset_replication_slot",
    "pg_sync_replication_slots",
];

/// Their numbers and those of [`Function`] (`pg_proc.dat`), for calls by number.
const NUMBERS: [u32; 20] = [
    2096, 2171, 3099, 3779, 3780, 3781, 3782, 3783, 3784, 3785, 3786, 3878, 4220, 4221, 4222, 4223,
    4224, 6169, 6170, 6344,
];

/// Whether a function of this name is not to be called through this endpoint.
pub(super) fn is_not_here(name: &str) -> bool {
    NOT_HERE.contains(&name)
}

/// Whether a function of this number is one of those that are not passed on.
pub(super) fn is_special_number(number: u32) -> bool {
    NUMBERS.contains(&number)
}

/// Whether a text that is not looked into, such as the body of DO, has one of the names in it.
pub(super) fn is_mentioned_in(text: &[u8]) -> bool {
    let functions = Function::ALL.map(Function::name);
    let views = View::ALL.map(View::name);
    let names = functions.iter().chain(&views).chain(&NOT_HERE);
    let text = text.to_ascii_lowercase();
    names
        .into_iter()
        .any(|name| text.windows(name.len()).any(|part| part == name.as_bytes()))
}

/// Whether a text may have one of the names in it: the cheap question, asked of every statement.
pub(super) fn may_be_mentioned_in(text: &[u8]) -> bool {
    const PARTS: [&[u8]; 5] = [
        b"_replication",
        b"_logical_slot",
        b"_terminate_backend",
        b"_cancel_backend",
        b"_wal_senders",
    ];
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'_') {
        let from = rest.get(at..).unwrap_or_default();
        let begins = |part: &&[u8]| {
            let start = from.get(..part.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(part))
        };
        if PARTS.iter().any(begins) {
            return true;
        }
        rest = from.get(1..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_by_the_cheap_question() {
        let functions = Function::ALL.map(Function::name);
        let views = View::ALL.map(View::name);
        for name in functions.iter().chain(&views).chain(&NOT_HERE) {
            let text = format!("select x_y, {} ", name.to_ascii_uppercase());
            assert!(may_be_mentioned_in(text.as_bytes()));
            assert!(is_mentioned_in(text.as_bytes()));
        }
        assert!(!may_be_mentioned_in(b"select * from pg_publication_tables"));
    }
}
