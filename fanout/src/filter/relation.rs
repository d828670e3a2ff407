//! What a filter's columns are.

use row_filter::Environment;

/// The relation that a filter stands on, as of its place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Relation {
    /// Its columns.
    pub columns: Vec<Column>,
    /// About the source's database.
    pub environment: Environment,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// `pg_attribute.attnum`.
    pub attribute: i16,
    /// Its name as the filter's SQL spells it, unquoted.
    pub name: String,
    /// Its type.
    pub type_oid: u32,
    /// Its collation, 0 for none.
    pub collation: u32,
    /// Where it is in the log's rows, which may be a partition's. `None`: the log does not have it.
    pub index: Option<u16>,
}
