//! The assembler on sequences of messages, and the sink over a real log.

mod assembler;
mod log;
mod messages;
mod prepared;
