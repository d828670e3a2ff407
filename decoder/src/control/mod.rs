//! The control service (gRPC): what fanouts and `decctl` ask of the one process that owns the log and the registry.
//!
//! | module | what |
//! |---|---|
//! | `service` | the calls of `decant.v1.Control` |
//! | `heads` | the log's head, told again and again |
//! | `slots` | making a slot: where it may start |
//! | `publications` | Decant's own publications |
//! | `versions` | from where on their definitions count |
//! | `convert` | facts and errors in the words of the contract |
//! | `server` | the listener, with the health and reflection services beside it |
//! | `maintenance` | what the registry needs every second |

mod convert;
mod heads;
mod maintenance;
mod publications;
mod server;
mod service;
mod slots;
#[cfg(test)]
mod tests;
mod versions;

pub use maintenance::maintain_registry;
pub use server::{ControlError, serve};
pub use service::{About, ControlService};
