//! What can be wrong with a request to the registry, or with the registry.

use std::time::Duration;

use pg_proto::ReadError;

use super::slot::{Holder, InvalidHolder, Invalidation};
use super::store::StoreError;

/// A request was refused, or the registry can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// There is a slot of that name.
    #[error("replication slot \"{name}\" already exists")]
    Exists {
        /// The slot.
        name: String,
    },
    /// There is none.
    #[error("replication slot \"{name}\" does not exist")]
    NotFound {
        /// The slot.
        name: String,
    },
    /// The name is not one that PostgreSQL would take.
    #[error(
        "replication slot name \"{name}\" {problem}: 1 to 63 lower case letters, digits and underscores"
    )]
    InvalidName {
        /// The name.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Another holder's lease is in force.
    #[error("replication slot \"{name}\" is held by {holder}, for {} ms without a report", left.as_millis())]
    Held {
        /// The slot.
        name: String,
        /// Who has it.
        holder: Holder,
        /// The number of the session there, or 0.
        pid: u32,
        /// How long the lease still holds.
        left: Duration,
    },
    /// It was invalidated. The words are PostgreSQL's, the fanout puts its version's before them.
    #[error("replication slot \"{name}\" has been invalidated ({}): drop it and make it anew", reason.as_str())]
    Invalidated {
        /// The slot.
        name: String,
        /// Why.
        reason: Invalidation,
    },
    /// A newer incarnation of the same name has been seen.
    #[error(
        "{holder} has been replaced by incarnation {newest}: two fanouts have the same name, or this one is gone"
    )]
    Superseded {
        /// The older one.
        holder: Holder,
        /// The newer incarnation.
        newest: u64,
    },
    /// The holder's name is not understood.
    #[error(transparent)]
    InvalidHolder(#[from] InvalidHolder),
    /// A temporary slot needs somebody whose lease it lives by.
    #[error("temporary replication slot \"{name}\" needs a holder")]
    HolderMissing {
        /// The slot.
        name: String,
    },
    /// There are too many.
    #[error("there are {count} replication slots already: drop those that nobody uses")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// The store failed.
    #[error("the registry of slots failed")]
    Store(#[from] StoreError),
    /// A stored value is not understood.
    #[error(
        "the registry's value of \"{key}\" is damaged. Slots must not be guessed: restore the registry folder, or move it \
         away, which forgets all slots; the log itself does not need it"
    )]
    Value {
        /// The key.
        key: String,
        /// What is wrong.
        #[source]
        source: ReadError,
    },
    /// A publication of Decant's own is not understood, or can't be stored.
    #[error(
        "publication \"{name}\" of Decant's own is damaged in the registry: {reason}; drop it and create it again"
    )]
    Publication {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}
