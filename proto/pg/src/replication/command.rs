//! Replication commands (`repl_gram.y`).

use std::borrow::Cow;

use crate::Lsn;

/// A command of a walsender connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `IDENTIFY_SYSTEM`.
    IdentifySystem,
    /// `SHOW name`.
    Show(String),
    /// `READ_REPLICATION_SLOT slot`.
    ReadSlot(String),
    /// `CREATE_REPLICATION_SLOT slot [TEMPORARY] LOGICAL plugin options`.
    CreateLogicalSlot {
        /// The slot's name.
        slot: String,
        /// Whether it goes with the connection.
        temporary: bool,
        /// The output plugin.
        plugin: String,
        /// The options, legacy words translated to their modern names (`snapshot`, `two_phase`, `failover`, `reserve_wal`).
        options: Vec<CommandOption>,
        /// Whether it is as version 14 has it: no list of options in brackets, and not the word `TWO_PHASE`.
        legacy: bool,
    },
    /// `CREATE_REPLICATION_SLOT slot [TEMPORARY] PHYSICAL ...`.
    CreatePhysicalSlot {
        /// The slot's name.
        slot: String,
    },
    /// `ALTER_REPLICATION_SLOT slot ( options )`.
    AlterSlot {
        /// The slot's name.
        slot: String,
        /// The options.
        options: Vec<CommandOption>,
    },
    /// `DROP_REPLICATION_SLOT slot [WAIT]`.
    DropSlot {
        /// The slot's name.
        slot: String,
        /// Whether to wait until it is not active.
        wait: bool,
    },
    /// `START_REPLICATION SLOT slot LOGICAL lsn ( options )`.
    StartLogical {
        /// The slot's name.
        slot: String,
        /// Where to start, `0/0` for the slot's own position.
        start: Lsn,
        /// The plugin's options.
        options: Vec<CommandOption>,
    },
    /// `START_REPLICATION [SLOT slot] [PHYSICAL] lsn ...`.
    StartPhysical,
    /// `TIMELINE_HISTORY n`.
    TimelineHistory(u32),
    /// `BASE_BACKUP ...`.
    BaseBackup,
    /// `UPLOAD_MANIFEST`.
    UploadManifest,
}

/// What `CREATE_REPLICATION_SLOT` does with the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotAction {
    /// Export it; the default.
    Export,
    /// Use it in the current transaction.
    Use,
    /// Neither.
    Nothing,
}

/// An option: `name [value]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOption {
    /// Its name, down-cased unless it was quoted.
    pub name: String,
    /// Its value.
    pub value: Option<OptionValue>,
}

/// An option's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// An identifier or a string.
    Text(String),
    /// An integer.
    Integer(i64),
}

/// The text is a replication command by its first word, but not by its grammar: SQLSTATE 42601.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// PostgreSQL's words, such as `syntax error`.
    pub message: String,
}

impl CommandError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

impl CommandOption {
    pub(super) fn bare(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: None,
        }
    }

    pub(super) fn text(name: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: Some(OptionValue::Text(value.to_owned())),
        }
    }

    /// The value as text, of an integer its digits. `None`: there is no value.
    #[must_use]
    pub fn as_text(&self) -> Option<Cow<'_, str>> {
        self.value.as_ref().map(|value| match value {
            OptionValue::Text(text) => Cow::Borrowed(text.as_str()),
            OptionValue::Integer(value) => Cow::Owned(value.to_string()),
        })
    }

    /// The value as a boolean as `defGetBoolean` reads it: no value is true; 0 and 1; true, false, on and off
    /// in any case. `None`: none of these, the error being `name requires a Boolean value`.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match &self.value {
            None | Some(OptionValue::Integer(1)) => Some(true),
            Some(OptionValue::Integer(0)) => Some(false),
            Some(OptionValue::Integer(_)) => None,
            Some(OptionValue::Text(text)) => match text.to_ascii_lowercase().as_str() {
                "true" | "on" => Some(true),
                "false" | "off" => Some(false),
                _ => None,
            },
        }
    }
}

impl SnapshotAction {
    /// The value of the option `snapshot`: `export`, `use` or `nothing`, in lower case.
    #[must_use]
    pub fn from_option(value: &str) -> Option<Self> {
        match value {
            "export" => Some(Self::Export),
            "use" => Some(Self::Use),
            "nothing" => Some(Self::Nothing),
            _ => None,
        }
    }
}
