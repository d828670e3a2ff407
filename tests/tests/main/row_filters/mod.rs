//! Row filters: what the engine says of a row is what PostgreSQL says, error for error.

mod catalog;
mod differential;
mod expression;
mod families;
mod random;
mod types;
