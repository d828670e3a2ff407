//! The registry: the subscribers' slots, kept durably beside the log.
//!
//! # Content
//!
//! A slot is a named position: every whole transaction that ends at or below its confirmed LSN is safe at the
//! subscriber, and the log is kept from its restart LSN on. Beside the slots the registry keeps the secrets that
//! prove messages of the source, and Decant's own publications (see [`crate::catalog`]).
//!
//! # Leases
//!
//! One fanout serves a slot at a time: it holds the slot's lease and renews it with its reports. A holder is
//! `name/incarnation`; a newer incarnation of a name takes over at once what older ones held, since those processes
//! are gone. A temporary slot lives as long as its lease. Leases are measured with the process's own clock, so that a
//! step of the system's time changes nothing, and they are extended if this process itself was stopped.
//!
//! # Durability
//!
//! What is answered is in memory; [`Registry::create`] and [`Registry::drop_slot`] answer after a flush, positions
//! are flushed by [`Registry::persist`] once a second. Losing the last second of positions is harmless: they are then
//! lower than the truth, and more of the log is kept, since nothing is deleted for a position that is not durable
//! ([`Registry::needs`]). A position never moves back while the process lives, unless an
//! operator moves it back ([`Registry::alter`]).
//!
//! # Loss
//!
//! The log does not need the registry. One that is new although there is a log says so ([`Registry::is_lost`]), and
//! nothing is deleted then until an operator asks for it. A damaged value is an error at start, never a slot less.

mod error;
mod invalidate;
mod meta;
#[cfg(test)]
mod model_tests;
mod operations;
mod publications;
mod sled_store;
mod slot;
mod store;
mod table;
mod value;

pub use error::RegistryError;
pub use operations::{LEASE, Registry, SLOTS_MAX, SWEEP_INTERVAL};
pub use sled_store::SledStore;
pub use slot::{Holder, InvalidHolder, Invalidation, Lease, NewSlot, Slot, SlotChange};
#[cfg(test)]
pub(crate) use store::MemoryStore;
pub use store::{Pairs, Store, StoreError};
