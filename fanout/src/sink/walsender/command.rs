//! Replication commands, but for the two big ones: see `slots` and `start`.

use std::io;

use pg_proto::replication::Command;
use pg_proto::wire::{
    BackendMessage, ErrorFields, FieldDescription, ReplicationMode, TransactionStatus, sqlstate,
};

use super::session::{Flow, Session};
use super::settings::show_milliseconds;

/// Asked by pg_recvlogical for the rights of the files that it makes. While the source is away these are narrow.
const DIRECTORY_MODE: (&str, &str) = ("data_directory_mode", "0700");

impl Session<'_> {
    /// Whether the announced version has a command that begins with this word.
    pub(super) fn knows(&self, keyword: &str) -> bool {
        let version = self.source.version;
        match keyword {
            "READ_REPLICATION_SLOT" => version.has_slot_option_lists(),
            "ALTER_REPLICATION_SLOT" | "UPLOAD_MANIFEST" => version.has_failover(),
            _ => true,
        }
    }

    /// Runs a replication command; `text` is what the client sent.
    pub(super) async fn command(&mut self, command: Command, text: &[u8]) -> io::Result<Flow> {
        if self.upstream.status() == TransactionStatus::Failed {
            return self.conclude(Err(aborted())).await;
        }
        if let Err(error) = self.require_replication_role(&command).await {
            return self.conclude(Err(error)).await;
        }
        let result = match command {
            Command::IdentifySystem => {
                self.identify_system();
                Ok(())
            }
            Command::Show(name) => return self.show(&name, text).await,
            Command::CreateLogicalSlot { legacy: false, .. }
                if !self.source.version.has_slot_option_lists() =>
            {
                Err(ErrorFields::error(sqlstate::SYNTAX_ERROR, "syntax error"))
            }
            Command::CreateLogicalSlot {
                slot,
                temporary,
                plugin,
                options,
                ..
            } => self.create_slot(&slot, temporary, &plugin, &options).await,
            Command::CreatePhysicalSlot { .. } => Err(no_physical()),
            Command::DropSlot { slot, wait } => self.drop_slot(&slot, wait).await,
            Command::AlterSlot { slot, options } => self.alter_slot(&slot, &options).await,
            Command::ReadSlot(slot) => self.read_slot(&slot).await,
            Command::StartLogical {
                slot,
                start,
                options,
            } => return Box::pin(self.start(&slot, start, &options)).await,
            Command::StartPhysical => Err(no_physical()),
            Command::TimelineHistory(timeline) => Err(self.no_timeline_history(timeline)),
            Command::BaseBackup => Err(not_here("BASE_BACKUP")),
            Command::UploadManifest => Err(not_here("UPLOAD_MANIFEST")),
        };
        self.conclude(result).await
    }

    fn identify_system(&mut self) {
        let timeline = if self.source.version.timeline_is_int8() {
            FieldDescription::int8("timeline")
        } else {
            FieldDescription::int4("timeline")
        };
        let columns = vec![
            FieldDescription::text("systemid"),
            timeline,
            FieldDescription::text("xlogpos"),
            FieldDescription::text("dbname"),
        ];
        let system = self.source.system_identifier.to_string();
        let timeline = self.source.timeline.to_string();
        let position = self.shared.services.replay.head().to_string();
        let database = self.source.database.clone();
        let database = (self.login.mode == ReplicationMode::Database).then_some(&*database);
        self.row(
            columns,
            &[Some(&system), Some(&timeline), Some(&position), database],
            "IDENTIFY_SYSTEM",
        );
    }

    /// What is known here is answered here, unless the session may have changed it at the source.
    async fn show(&mut self, name: &str, text: &[u8]) -> io::Result<Flow> {
        let timeout = self.wal_sender_timeout.unwrap_or_default();
        let timeout = ("wal_sender_timeout", show_milliseconds(timeout));
        let mut known = if name.eq_ignore_ascii_case(timeout.0) {
            Some((timeout.0.to_owned(), timeout.1))
        } else if self.upstream.is_open() {
            None
        } else {
            let found = self.parameters.find(name);
            found.map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        if known.is_none() && name == DIRECTORY_MODE.0 && self.upstream.open().await.is_err() {
            known = Some((name.to_owned(), DIRECTORY_MODE.1.to_owned()));
        }
        match known {
            Some((name, value)) => {
                self.row(vec![FieldDescription::text(&name)], &[Some(&value)], "SHOW");
                self.conclude(Ok(())).await
            }
            None => self.proxy(text).await,
        }
    }

    /// As a server that never changed its timeline. It says what columns there would be before it looks.
    fn no_timeline_history(&mut self, timeline: u32) -> ErrorFields {
        let column = |name| FieldDescription {
            type_modifier: self.source.version.history_type_modifier(),
            ..FieldDescription::text(name)
        };
        let columns = vec![column("filename"), column("content")];
        let described = BackendMessage::RowDescription(columns);
        self.client.sender.put(&described);
        let message = format!(
            "could not open file \"pg_wal/{timeline:08X}.history\": No such file or directory"
        );
        ErrorFields::error(sqlstate::UNDEFINED_FILE, message)
    }

    /// Logical decoding belongs to a database.
    pub(super) fn require_database(&self) -> Result<(), ErrorFields> {
        if self.login.mode == ReplicationMode::Database {
            return Ok(());
        }
        Err(ErrorFields::error(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "logical decoding requires a database connection",
        ))
    }
}

pub(super) fn aborted() -> ErrorFields {
    ErrorFields::error(
        sqlstate::IN_FAILED_SQL_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

fn no_physical() -> ErrorFields {
    ErrorFields::error(
        sqlstate::FEATURE_NOT_SUPPORTED,
        "physical replication is not served by this endpoint",
    )
    .with_hint("Connect to the source itself.")
}

fn not_here(command: &str) -> ErrorFields {
    ErrorFields::error(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("{command} is not served by this endpoint"),
    )
    .with_hint("Connect to the source itself.")
}
