//! The messages of PostgreSQL's protocol 3 in both directions (`protocol.sgml`, "Message Formats").
//!
//! A connection begins with packets that have no type byte ([`startup`]); then both sides send frames
//! ([`frame`]): a type byte, a length that counts itself, a body. What the body means depends on who sent it:
//! [`frontend`] is what a client says, [`backend`] what a server says.

pub mod backend;
pub mod error_fields;
pub mod extended;
pub mod frame;
pub mod frontend;
mod row;
pub mod sqlstate;
pub mod startup;

pub use backend::{
    Authentication, BackendMessage, CopyResponse, NegotiateProtocolVersion, TransactionStatus,
};
pub use error_fields::{ErrorFields, Severity, field};
pub use extended::{ExtendedQuery, Named, parameters_only};
pub use frame::{FRAME_HEAD_LEN, Frame, FrameError, MAX_FRAME_BODY, Split, put_frame, split_frame};
pub use frontend::{FrontendMessage, SaslInitialResponse, password_text};
pub use row::{FieldDescription, put_data_row};
pub use startup::{
    InvalidReplication, MAX_STARTUP_LEN, ProtocolVersion, ReplicationMode, StartupMessage,
    StartupPacket, option_settings, split_startup,
};
