//! What the log says of a table: the last state of each row that it has changes of.

use std::collections::{HashMap, HashSet};

use pg_proto::Xid;
use pg_proto::pgoutput::{Change, ColumnValue, Framing, Message, OldTuple, Tuple, decode};
use storage_format::catalog::{Catalog, RelationSchema};
use storage_format::log::Record;
use storage_format::record::RecordKind;

/// A value as text; `None` is null.
pub(super) type Value = Option<String>;

/// Transactions that a snapshot of the source sees, as `pg_current_snapshot()` says.
#[derive(Debug)]
pub(super) struct Visible {
    xmin: u64,
    xmax: u64,
    running: HashSet<u64>,
}

impl Visible {
    /// From `xmin:xmax:xip,xip`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let xmin = parts.next()?.parse().ok()?;
        let xmax = parts.next()?.parse().ok()?;
        let list = parts.next()?;
        let running: Result<HashSet<u64>, _> = list
            .split(',')
            .filter(|xid| !xid.is_empty())
            .map(str::parse)
            .collect();
        Some(Self {
            xmin,
            xmax,
            running: running.ok()?,
        })
    }

    /// Whether the changes of a committed transaction are seen. The log's numbers have 32 bits; those of a log are
    /// within 2^31 of now.
    pub(super) fn sees(&self, xid: Xid) -> bool {
        let near = self.xmax & !0xFFFF_FFFF | u64::from(xid.0);
        let half = 1 << 31;
        let full = if near > self.xmax + half {
            near.saturating_sub(1 << 32)
        } else if near + half < self.xmax {
            near + (1 << 32)
        } else {
            near
        };
        full < self.xmin || (full < self.xmax && !self.running.contains(&full))
    }
}

/// The last state of a row. A value that the log does not have (TOASTed, not changed) is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// Values by column name.
    Row(HashMap<String, Value>),
    /// Deleted.
    Gone,
}

/// The table as the log's changes leave it.
#[derive(Debug, Default)]
pub(super) struct TableLog {
    pub(super) rows: HashMap<Vec<Value>, Last>,
    /// Whether it was truncated: then every row of now must be in `rows`.
    pub(super) complete: bool,
    pub(super) key: Vec<String>,
    pub(super) columns: Vec<String>,
    pub(super) changes: u64,
}

/// A table can't be checked this way.
#[derive(Debug)]
pub(super) struct Uncheckable(pub(super) &'static str);

impl TableLog {
    /// Applies a record of a transaction that is visible.
    pub(super) fn apply(
        &mut self,
        record: &Record,
        catalog: &Catalog,
        name: (&str, &str),
    ) -> Result<(), Uncheckable> {
        let Ok(message) = decode(record.payload(), Framing::Plain) else {
            return Err(Uncheckable("a change in the log can't be read"));
        };
        let ours = |relation: &RelationSchema| {
            (relation.namespace.as_str(), relation.name.as_str()) == name
        };
        match message {
            Message::Change(change) => {
                let oid = match &change {
                    Change::Insert { relation, .. }
                    | Change::Update { relation, .. }
                    | Change::Delete { relation, .. } => *relation,
                };
                match catalog.relation(oid).filter(|relation| ours(relation)) {
                    Some(relation) => self.change(relation, &change),
                    None => Ok(()),
                }
            }
            Message::Truncate(truncate) if record.kind() == Some(RecordKind::Truncate) => {
                let truncated = truncate
                    .relations()
                    .any(|oid| catalog.relation(oid).is_some_and(|relation| ours(relation)));
                if truncated {
                    self.rows.clear();
                    self.complete = true;
                    self.changes += 1;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn change(
        &mut self,
        relation: &RelationSchema,
        change: &Change<'_>,
    ) -> Result<(), Uncheckable> {
        let keys = relation.columns.iter().filter(|column| column.is_key);
        let key: Vec<String> = keys.map(|column| column.name.clone()).collect();
        if key.is_empty()
            || key.len() == relation.columns.len()
                && matches!(
                    change,
                    Change::Update {
                        old: Some(OldTuple::Full(_)),
                        ..
                    }
                )
        {
            return Err(Uncheckable(
                "the table has no key as replica identity, so its rows can't be told apart",
            ));
        }
        self.columns = relation
            .columns
            .iter()
            .map(|column| column.name.clone())
            .collect();
        self.key = key;
        self.changes += 1;
        let (old, new) = match change {
            Change::Insert { new, .. } => (None, Some(new)),
            Change::Update { old, new, .. } => (old.as_ref(), Some(new)),
            Change::Delete { old, .. } => (Some(old), None),
        };
        let old = old.map(|old| match old {
            OldTuple::Key(tuple) | OldTuple::Full(tuple) => self.key_of(tuple),
        });
        let Some(new) = new else {
            self.rows.insert(old.unwrap_or_default(), Last::Gone);
            return Ok(());
        };
        let place = self.key_of(new);
        // What an update leaves alone it had before, perhaps under another key.
        let before = self.rows.get(old.as_ref().unwrap_or(&place)).cloned();
        let mut values = match before {
            Some(Last::Row(values)) => values,
            _ => HashMap::new(),
        };
        for (column, value) in self.columns.iter().zip(new.columns()) {
            match text(value) {
                Some(value) => values.insert(column.clone(), value),
                None => continue,
            };
        }
        if let Some(old) = old.filter(|old| *old != place) {
            self.rows.insert(old, Last::Gone);
        }
        self.rows.insert(place, Last::Row(values));
        Ok(())
    }

    fn key_of(&self, tuple: &Tuple<'_>) -> Vec<Value> {
        self.columns
            .iter()
            .zip(tuple.columns())
            .filter(|(column, _)| self.key.contains(column))
            .map(|(_, value)| text(value).flatten())
            .collect()
    }
}

/// A value as text; `None` if the log does not have it.
fn text(value: ColumnValue<'_>) -> Option<Value> {
    match value {
        ColumnValue::Null => Some(None),
        ColumnValue::UnchangedToast => None,
        ColumnValue::Text(bytes) | ColumnValue::Binary(bytes) => {
            Some(Some(String::from_utf8_lossy(bytes).into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_it_says() {
        let visible = Visible::parse("4294967290:4294967305:4294967295,4294967300").unwrap();
        // 2^32 is 4294967296: these are numbers on both sides of the turn.
        assert!(visible.sees(Xid(4_294_967_289)));
        assert!(visible.sees(Xid(4_294_967_291)));
        assert!(!visible.sees(Xid(4_294_967_295)));
        assert!(visible.sees(Xid(3)));
        assert!(!visible.sees(Xid(4)));
        assert!(!visible.sees(Xid(9)));
        assert!(Visible::parse("5:5:").unwrap().sees(Xid(4)));
        assert!(Visible::parse("5:5").is_none());
    }
}
