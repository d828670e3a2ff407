//! What a subscriber asked for.

use std::fmt;
use std::sync::Arc;

use pg_proto::Oid;
use storage_format::catalog::{Attribute, RowFilterText};

use crate::auth::Grant;

/// Which publications' changes a subscriber asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Publications {
    /// No restriction: everything that the log has.
    #[default]
    Everything,
    /// Publications of the source, by name. An empty list publishes nothing.
    Named(Vec<String>),
}

/// A table's qualified name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// A row filter that a subscriber brings itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFilter {
    /// The table's name when it was asked for.
    pub table: TableName,
    /// The table.
    pub relation: Oid,
    /// Whether it is a partitioned table.
    pub partitioned: bool,
    /// What the source made of the expression.
    pub text: RowFilterText,
    /// The table's columns then.
    pub attributes: Vec<Attribute>,
}

/// Which changes a subscriber asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectionSpec {
    /// In one of these publications,
    pub publications: Publications,
    /// and of one of these tables; empty: of any.
    pub tables: Vec<TableName>,
    /// Of these tables only these columns. A table that is not here: all that are published.
    pub columns: Vec<(TableName, Vec<String>)>,
    /// Of these tables only these rows.
    pub filters: Vec<TableFilter>,
    /// What may be read at all; `None`: everything.
    pub grant: Option<Arc<Grant>>,
}

impl SelectionSpec {
    /// The columns of a table of this name that are meant, if they were named.
    #[must_use]
    pub fn columns_of(&self, schema: &str, name: &str) -> Option<&[String]> {
        let mut tables = self.columns.iter();
        let found = tables.find(|(table, _)| table.schema == schema && table.name == name);
        found.map(|(_, columns)| columns.as_slice())
    }

    /// Whether a table of this name is meant, as far as tables were named.
    #[must_use]
    pub fn lists(&self, schema: &str, name: &str) -> bool {
        let mut tables = self.tables.iter();
        self.tables.is_empty() || tables.any(|table| table.schema == schema && table.name == name)
    }
}

impl From<&TableName> for proto::v1::TableName {
    fn from(table: &TableName) -> Self {
        Self {
            schema: table.schema.clone(),
            name: table.name.clone(),
        }
    }
}

impl From<proto::v1::TableName> for TableName {
    fn from(table: proto::v1::TableName) -> Self {
        Self {
            schema: table.schema,
            name: table.name,
        }
    }
}
