//! Row filters: what the engine says of a row is what PostgreSQL says, error for error.

mod bench;
mod catalog;
mod constants;
mod differential;
mod every_function;
mod expression;
mod families;
mod guards;
mod random;
mod types;
