//! How the decoder learns what the source's publications are.
//!
//! pgoutput says nothing of them, so they come in as *transactional logical messages* of the prefix `decant`, each
//! with the state of all publications. There is one way in, whoever writes the message: event triggers that
//! `decctl init` installs (`sql/install.sql`), in the transaction and at the place of the command that changed
//! something; the decoder itself, where there are none, when it sees a difference; and the decoder on every
//! connection and for every refresh. A message's place in the stream is the place of the change.
//!
//! | module | what |
//! |---|---|
//! | `sql` | the texts that the source runs |
//! | `message` | the message: MAC, JSON, and what it says |
//! | `state_json` | the JSON of the state |
//! | `own` | publications of Decant's own, added to the source's |
//! | `explain` | what a publication means that nobody makes |
//! | `recogniser` | tells Decant's own messages from forged ones; used by the ingest thread |
//! | `watch` | the task that asks the source: refresh, polling, comparison |
//! | `session` | what it asks |
//!
//! # Forged messages
//!
//! Any role may write a logical message of any prefix. Decant's carry a MAC over a secret of the source that only
//! its owner and the decoder can read, and the number of the transaction they stand in, so that a copy of an old
//! one is worthless. What fails is counted and stays what it is: somebody's logical message.
//!
//! # Changes at the same time
//!
//! A message states everything, so one of a transaction that could not see another's change says that it may be
//! stale ("unsettled"). The recogniser passes that on to the task, which asks again until it hears a complete state.

mod error;
mod explain;
mod history;
mod message;
mod own;
mod recogniser;
mod secret;
mod session;
mod sql;
mod state_json;
mod watch;

pub use error::CatalogError;
pub use explain::{ExplainError, Explainer};
pub use history::{HistoryError, check_history, stated_from};
pub use message::{CatalogMessage, MessageError, STATE_BYTES_MAX, parse_state};
pub use own::{OwnPublication, OwnPublicationError, with_own};
pub use recogniser::{Heard, PREFIX, Recognised, Recogniser};
pub use secret::{MAC_HEX_LEN, Secret};
pub use session::prepare;
pub use sql::{INSTALL, STATE_14, STATE_15, UNINSTALL, install_script, state_query};
pub use watch::CatalogWatch;
