//! Slots: the client of the decoder's control service.
//!
//! A sink that serves a slot takes a [`Lease`] first, tells it what its client has confirmed, and drops it (or
//! releases it) at the end. Confirmed positions go to the decoder once a second, rounded down to the end of a whole
//! transaction; that also renews the lease. While the decoder is away everything that is connected goes on,
//! and positions are told when it is back. A lease that the decoder gave to somebody else, or whose slot
//! was dropped, ends the stream that it belongs to: [`Lease::lost`].

mod client;
mod error;
mod lease;
mod report;
mod round;
#[cfg(test)]
mod tests;

pub use client::{InvalidAddress, NewSlot, Positions};
pub use error::PositionsError;
pub use lease::Lease;
pub use report::report;
pub(crate) use round::whole_transaction;
