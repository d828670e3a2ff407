//! Small logs to test with.

mod log;
mod messages;
mod model;
mod random;

pub(crate) use log::TestLog;
pub(crate) use model::{Expected, Model};
pub(crate) use random::{Action, Item, actions, publication_states, selection};
