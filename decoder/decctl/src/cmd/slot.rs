//! `decctl slot`.

use pg_proto::{Lsn, PgTimestamp};
use proto::v1::{
    AlterSlotRequest, CreateSlotRequest, DropSlotRequest, ListSlotsRequest, SlotStatus,
};
use serde::Serialize;
use service::config::Config;

use crate::cli::{OutputArgs, SlotCommand};
use crate::error::Error;
use crate::{output, rpc};

/// A slot as it is printed.
#[derive(Serialize)]
pub(crate) struct SlotView {
    name: String,
    confirmed_lsn: Lsn,
    restart_lsn: Lsn,
    lag_bytes: u64,
    active: bool,
    holder: Option<String>,
    temporary: bool,
    two_phase: bool,
    failover: bool,
    plugin: String,
    creator: String,
    created_at_unix_us: i64,
    /// Why it can't be used any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    invalidation_reason: Option<String>,
}

impl From<SlotStatus> for SlotView {
    fn from(slot: SlotStatus) -> Self {
        Self {
            name: slot.name,
            confirmed_lsn: Lsn(slot.confirmed_lsn),
            restart_lsn: Lsn(slot.restart_lsn),
            lag_bytes: slot.lag_bytes,
            active: !slot.holder.is_empty(),
            holder: Some(slot.holder).filter(|holder| !holder.is_empty()),
            temporary: slot.temporary,
            two_phase: slot.two_phase,
            failover: slot.failover,
            plugin: slot.plugin,
            creator: slot.creator,
            created_at_unix_us: slot.created_at,
            invalidation_reason: Some(slot.invalidation_reason).filter(|reason| !reason.is_empty()),
        }
    }
}

/// Prints slots as a table.
pub(crate) fn print(slots: &[SlotView]) -> Result<(), Error> {
    let rows = slots.iter().map(|slot| {
        vec![
            slot.name.clone(),
            slot.confirmed_lsn.to_string(),
            output::bytes(slot.lag_bytes),
            match (&slot.invalidation_reason, &slot.holder) {
                (Some(reason), _) => format!("invalidated: {reason}"),
                (None, holder) => holder.clone().unwrap_or_else(|| "-".to_owned()),
            },
            match slot.creator.as_str() {
                "" => "-".to_owned(),
                owner => owner.to_owned(),
            },
            output::since(slot.created_at_unix_us),
        ]
    });
    output::table(
        &["SLOT", "CONFIRMED", "LAG", "HELD BY", "OWNER", "AGE"],
        &[2],
        rows.collect(),
    )
}

/// Runs `decctl slot ...`.
pub(crate) async fn run(config: &Config, command: SlotCommand) -> Result<(), Error> {
    let mut control = rpc::control(config).await?;
    match command {
        SlotCommand::List(args) => {
            let slots = control
                .list_slots(ListSlotsRequest {})
                .await?
                .into_inner()
                .slots;
            let slots: Vec<SlotView> = slots.into_iter().map(SlotView::from).collect();
            if args.json {
                output::json(&slots)
            } else {
                print(&slots)
            }
        }
        SlotCommand::Create {
            name,
            at,
            owner,
            output: args,
        } => {
            let request = CreateSlotRequest {
                start_lsn: at.at.map(|lsn| lsn.0),
                start_time: at.at_time.map(PgTimestamp::unix_micros),
                ..new_slot(name, owner)
            };
            let slot = control.create_slot(request).await?.into_inner().slot;
            tell("created", slot, args)
        }
        SlotCommand::Rewind {
            name,
            at,
            output: args,
        } => {
            let request = AlterSlotRequest {
                name,
                confirmed_lsn: at.at.map(|lsn| lsn.0),
                confirmed_time: at.at_time.map(PgTimestamp::unix_micros),
                ..Default::default()
            };
            let slot = control.alter_slot(request).await?.into_inner().slot;
            tell("moved", slot, args)
        }
        SlotCommand::Clone {
            from,
            name,
            owner,
            output: args,
        } => {
            let request = CreateSlotRequest {
                copy_of: from,
                ..new_slot(name, owner)
            };
            let slot = control.create_slot(request).await?.into_inner().slot;
            tell("created", slot, args)
        }
        SlotCommand::Drop { name, force } => {
            let request = DropSlotRequest {
                name: name.clone(),
                force,
                ..Default::default()
            };
            control.drop_slot(request).await?;
            output::write_line(&format!("dropped slot {name}"))
        }
    }
}

fn new_slot(name: String, owner: Option<String>) -> CreateSlotRequest {
    CreateSlotRequest {
        name,
        creator: owner.unwrap_or_default(),
        plugin: "pgoutput".to_owned(),
        ..Default::default()
    }
}

fn tell(done: &str, slot: Option<SlotStatus>, args: OutputArgs) -> Result<(), Error> {
    let slot = SlotView::from(slot.unwrap_or_default());
    if args.json {
        return output::json(&slot);
    }
    output::write_line(&format!(
        "{done} slot {} at {}",
        slot.name, slot.confirmed_lsn
    ))
}
