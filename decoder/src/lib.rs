//! The decoder: decodes one PostgreSQL database's WAL once and writes every committed transaction into the log.

pub mod catalog;
pub mod registry;
pub mod retention;
pub mod state;
