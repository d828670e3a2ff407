//! Row filters of publications, evaluated as PostgreSQL evaluates them, without PostgreSQL.
//!
//! A filter comes as the source's catalog keeps it: `pg_publication_rel.prqual`, the text of an analysed expression
//! tree. [`compile`] turns it into a [`Program`] that runs on columns as pgoutput sends them. What can't be computed
//! here with exactly PostgreSQL's result is not attempted: the whole filter is then PostgreSQL's
//! ([`Compiled::Postgres`], with the reason).
//!
//! | module | what |
//! |---|---|
//! | `tree` | reads `pg_node_tree`, whatever fields a version has |
//! | `compile` | checks types and collations, folds constants in the planner's order |
//! | `evaluate` | three-valued logic, in the executor's order |
//! | `guard`, `key` | which rows can pass at all, for an index of many rows |
//! | `functions` | the built-in functions, by OID |
//! | `types` | numeric, dates, intervals, arrays, jsonb, network addresses |
//! | `column`, `datum` | values as text in the log, and as bytes in a tree |
//!
//! What is not computed here: order of text under other collations than C's, upper and lower case of others than
//! ASCII's, regular expressions that say more than a pattern of LIKE, functions of the mathematics library, `json`, `money`,
//! ranges, geometry, text search.
//!
//! # Errors at a row
//!
//! `1/k = 1` fails for a row whose k is 0. PostgreSQL's walsender ends there with SQLSTATE and message; a
//! [`FilterError`] has both.
//!
//! # Memory
//!
//! Intermediate values live in a [`Scratch`] that is kept from row to row: none is asked from the system once it has
//! grown to a row's need.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod column;
mod compile;
mod datum;
mod error;
mod evaluate;
mod functions;
mod guard;
mod key;
mod kind;
mod program;
mod source;
mod tree;
mod types;
mod value;

pub use compile::{Compiled, compile, compile_any, variables};
pub use error::FilterError;
pub use evaluate::{ColumnView, Scratch, TupleView};
pub use functions::{NativeFunction, native_functions};
pub use guard::{Guard, Term};
pub use key::KeyKind;
pub use program::Program;
pub use source::{DefaultCollation, Environment, FilterColumn, FilterSource};
