//! How a relation's rows change on their way to a subscriber.

use std::sync::Arc;

use bytes::Bytes;
use pg_proto::Oid;

use crate::filter::RowFilters;

/// How a relation's rows change on their way: as which relation they go, with which columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The relation that the rows name: their own, or an ancestor.
    pub relation: Oid,
    /// The columns that are sent, in order, as indexes into the log's rows. `None`: as they are.
    pub columns: Option<Vec<u16>>,
    /// Whether an old row is a whole one ('O') or a key ('K'). `None`: as the log says.
    pub full_identity: Option<bool>,
    /// What is sent before the first row, in order. Empty: the relation as the log describes it.
    pub descriptions: Vec<Description>,
    /// Which rows are sent. `None`: all.
    pub filters: Option<Arc<RowFilters>>,
}

/// A RELATION message of the fanout's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The message.
    pub message: Bytes,
    /// Its columns' types: those that are not built in are named before it.
    pub types: Vec<Oid>,
}

impl Shape {
    /// Whether rows that pass are sent as they lie in the log.
    #[must_use]
    pub fn leaves_rows(&self, relation: Oid) -> bool {
        self.relation == relation && self.columns.is_none() && self.full_identity.is_none()
    }

    /// Rows as they are, under these descriptions.
    pub(super) const fn described(relation: Oid, descriptions: Vec<Description>) -> Self {
        Self {
            relation,
            columns: None,
            full_identity: None,
            descriptions,
            filters: None,
        }
    }
}
