//! Which changes a subscriber gets.

mod spec;

pub use spec::{Publications, SelectionSpec, TableName};
