//! Which changes a subscriber gets.
//!
//! A [`SelectionSpec`] is what was asked for. A [`Selection`] evaluates it as of one place of the log after
//! another: publications and relations are those of the log's catalog at that place, so that a change of a
//! publication takes effect exactly where it stands in commit order. What a publication asks for and this build can't
//! do exactly is refused by name ([`Refusal`]), never left out.

mod compiled;
mod decision;
mod oid_map;
mod permission;
mod rules;
mod shape;
mod spec;
#[cfg(test)]
mod tests;

pub use compiled::{Selection, check_supported};
pub use decision::{Actions, Decision, Refusal};
pub use oid_map::OidMap;
pub use shape::{Description, Shape};
pub use spec::{Publications, SelectionSpec, TableFilter, TableName};
