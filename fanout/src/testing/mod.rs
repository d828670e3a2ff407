//! Small logs to test with.

pub(crate) mod control;
mod log;
mod messages;
mod model;
mod random;
mod staged;

pub(crate) use log::TestLog;
pub(crate) use messages::{name_of, relation, relation_oid, schema_of};
pub(crate) use model::{Expected, Model};
pub(crate) use random::{Action, Item, actions, is_third, publication_states, selection};
pub(crate) use staged::StagedLog;
