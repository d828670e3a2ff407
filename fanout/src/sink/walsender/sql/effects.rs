//! What functions about slots and sessions do: here, never at the source.

use pg_proto::Lsn;
use pg_proto::wire::{BackendMessage, ErrorFields, Severity, sqlstate};
use serde_json::{Map, Value, json};

use super::super::backends::Signalled;
use super::super::session::Session;
use super::super::slot_name;
use super::super::slots::{PLUGIN, exists, no_plugin, unknown};
use super::call::FIRST_PID;
use super::names::Function;
use crate::positions::{NewSlot, PositionsError};

/// A statement that tells whether the role may use slots, and signal other sessions.
pub(super) const RIGHTS: &str = "SELECT pg_catalog.json_build_array(rolsuper OR rolreplication, \
                                 pg_catalog.pg_has_role('pg_signal_backend', 'USAGE'))::pg_catalog.text \
                                 FROM pg_catalog.pg_roles WHERE rolname = current_user";

/// What the answer to [`RIGHTS`] means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    slots: bool,
    signals: bool,
}

impl Rights {
    pub(super) fn parse(rows: Vec<Option<String>>) -> Self {
        let row = rows.into_iter().next().flatten().unwrap_or_default();
        let (slots, signals) = serde_json::from_str(&row).unwrap_or_default();
        Self { slots, signals }
    }
}

/// Calls, row by row, as they were asked for: of each its function and arguments, as JSON.
pub(super) struct Calls {
    keys: Vec<String>,
}

/// A call.
struct Arguments {
    function: Function,
    values: Vec<Value>,
}

impl Calls {
    /// Reads the rows that the source gave.
    pub(super) fn parse(rows: Vec<Option<String>>) -> Result<Self, ErrorFields> {
        let mut keys = Vec::new();
        for row in rows.into_iter().flatten() {
            keys.extend(serde_json::from_str::<Vec<String>>(&row).map_err(|_| not_understood())?);
        }
        Ok(Self { keys })
    }
}

fn arguments(key: &str) -> Result<Arguments, ErrorFields> {
    let mut values: Vec<Value> = serde_json::from_str(key).map_err(|_| not_understood())?;
    if values.is_empty() {
        return Err(not_understood());
    }
    let function = values.remove(0);
    let function = function.as_str().and_then(Function::of_name);
    Ok(Arguments {
        function: function.ok_or_else(not_understood)?,
        values,
    })
}

impl Arguments {
    fn text(&self, position: usize) -> &str {
        let value = self.values.get(position).and_then(Value::as_str);
        value.unwrap_or_default()
    }

    fn flag(&self, position: usize) -> bool {
        let value = self.values.get(position).and_then(Value::as_bool);
        value.unwrap_or_default()
    }

    fn lsn(&self, position: usize) -> Lsn {
        self.text(position).parse().unwrap_or_default()
    }

    fn pid(&self) -> u32 {
        let value = self.values.first().and_then(Value::as_u64);
        value
            .and_then(|value| u32::try_from(value).ok())
            .unwrap_or_default()
    }
}

impl Session<'_> {
    /// Makes the calls in their order. What each gave, by function and arguments, as JSON. What was done before an error stays
    /// done, as at PostgreSQL, where slots are no part of a transaction either.
    pub(super) async fn make_calls(
        &mut self,
        calls: &Calls,
        rights: Rights,
    ) -> Result<String, ErrorFields> {
        let mut results = Map::new();
        for key in &calls.keys {
            let call = arguments(key)?;
            if call.values.contains(&Value::Null) {
                continue;
            }
            let result = self.make_call(&call, rights).await?;
            results.insert(key.clone(), result);
        }
        Ok(Value::Object(results).to_string())
    }

    async fn make_call(&mut self, call: &Arguments, rights: Rights) -> Result<Value, ErrorFields> {
        let about_sessions = matches!(call.function, Function::Terminate | Function::Cancel);
        if !about_sessions && !rights.slots {
            return Err(self.source.version.may_not_use_slots());
        }
        match call.function {
            Function::CreateSlot => {
                let new = NewSlot {
                    name: call.text(0).to_owned(),
                    plugin: call.text(1).to_owned(),
                    temporary: call.flag(2),
                    two_phase: call.flag(3),
                    failover: call.flag(4),
                    ..NewSlot::default()
                };
                self.create_by_call(new).await
            }
            Function::CopySlot => self.copy_by_call(call).await,
            Function::AdvanceSlot => self.advance_by_call(call.text(0), call.lsn(1)).await,
            Function::DropSlot => {
                self.drop_now(call.text(0), false).await?;
                Ok(json!(0))
            }
            Function::Terminate => Ok(json!(self.signal(call.pid(), rights, true)?)),
            Function::Cancel => Ok(json!(self.signal(call.pid(), rights, false)?)),
        }
    }

    async fn create_by_call(&mut self, mut new: NewSlot) -> Result<Value, ErrorFields> {
        slot_name::validate(&new.name)?;
        let existing = self.shared.services.positions.slot(&new.name).await;
        if existing.map_err(|error| self.slot_error(&error))?.is_some() {
            return Err(exists(&new.name));
        }
        if new.plugin != PLUGIN {
            return Err(no_plugin(&new.plugin));
        }
        new.creator.clone_from(&self.login.user);
        let created = self.make_slot(new).await?;
        Ok(json!({ "slot_name": created.name, "lsn": Lsn(created.confirmed_lsn).to_string() }))
    }

    async fn copy_by_call(&mut self, call: &Arguments) -> Result<Value, ErrorFields> {
        let source = call.text(0);
        let found = self.shared.services.positions.slot(source).await;
        let found = found.map_err(|error| self.slot_error(&error))?;
        let found = found.ok_or_else(|| unknown(source))?;
        if !found.invalidation_reason.is_empty() {
            // In the server's words; a copy would begin where its subscriber must not.
            let message = "cannot copy a replication slot that doesn't reserve WAL";
            let code = sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE;
            return Err(ErrorFields::error(code, message));
        }
        let plugin = match call.text(3) {
            "" => found.plugin,
            plugin => plugin.to_owned(),
        };
        // A copy is one of now and takes over neither what was asked of two-phase transactions nor of failover.
        self.create_by_call(NewSlot {
            name: call.text(1).to_owned(),
            start: Some(Lsn(found.confirmed_lsn)),
            temporary: if call.values.len() > 2 && call.flag(2) {
                true
            } else {
                found.temporary
            },
            plugin,
            ..NewSlot::default()
        })
        .await
    }

    async fn advance_by_call(&mut self, slot: &str, upto: Lsn) -> Result<Value, ErrorFields> {
        if !upto.is_valid() {
            let code = self.source.version.invalid_target_code();
            return Err(ErrorFields::error(code, "invalid target WAL LSN"));
        }
        let own = self.temporary.remove(slot);
        let is_own = own.is_some();
        let lease = match own {
            Some(lease) => lease,
            None => {
                let (positions, pid) = (&self.shared.services.positions, self.backend.pid());
                let acquired = positions.acquire_for(slot, pid).await;
                acquired.map_err(|error| match &error {
                    PositionsError::Invalidated { reason, .. } => {
                        self.source.version.not_advanced(slot, reason)
                    }
                    _ => self.slot_error(&error),
                })?
            }
        };
        let head = self.shared.services.replay.head();
        let (minimum, target) = (lease.confirmed(), upto.min(head));
        if target >= minimum {
            lease.confirm(target, head);
            lease.settle(self.shared.services.replay.log()).await;
        }
        let end = lease.confirmed();
        if is_own {
            self.temporary.insert(slot.to_owned(), lease);
        } else {
            let released = lease.release().await;
            released.map_err(|error| self.slot_error(&error))?;
        }
        if target < minimum {
            let message =
                format!("cannot advance replication slot to {target}, minimum is {minimum}");
            return Err(ErrorFields::error(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                message,
            ));
        }
        Ok(json!({ "slot_name": slot, "end_lsn": end.to_string() }))
    }

    /// Ends another session, or what it does. False: there is no such session.
    fn signal(&mut self, pid: u32, rights: Rights, terminate: bool) -> Result<bool, ErrorFields> {
        if pid < FIRST_PID {
            // The source's own function decides; this result is not looked at.
            return Ok(false);
        }
        let user = &self.login.user;
        match self
            .shared
            .backends
            .signal(pid, user, rights.signals, terminate)
        {
            Signalled::Done => Ok(true),
            Signalled::NotAllowed => Err(self.source.version.may_not_signal(terminate)),
            Signalled::NoSuchSession => {
                let message = format!("PID {pid} is not a PostgreSQL backend process");
                let warning = ErrorFields::new(Severity::Warning, sqlstate::WARNING, message);
                let warning = BackendMessage::NoticeResponse(warning);
                self.client.sender.put(&warning);
                Ok(false)
            }
        }
    }
}

fn not_understood() -> ErrorFields {
    ErrorFields::error(
        sqlstate::INTERNAL_ERROR,
        "the source's answer about a function's arguments is not understood",
    )
}
