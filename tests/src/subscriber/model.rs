//! The state of tables as a stream of changes gives it.

use std::collections::{BTreeMap, HashMap};

use proto::v1::value::Kind;
use proto::v1::{Change, ChangeKind, Relation, Row, Truncate, Value};

use crate::sql::Session;

/// Values as text, `None` for null: a row of a server, beside the row of a change.
type Values = crate::sql::Row;

/// Settings under which a server prints values as the log has them.
const SETTINGS: &str = "set datestyle = iso; set intervalstyle = postgres; set timezone = 'UTC'; \
                        set extra_float_digits = 3; set bytea_output = hex";

/// Tables with their rows. Applying a change that does not fit (an insert of a key that is there, a delete of
/// one that is not) is an error: nothing may come twice or be missing.
#[derive(Debug, Default)]
pub struct TableModel {
    names: HashMap<u32, String>,
    tables: HashMap<String, Table>,
}

#[derive(Debug)]
struct Table {
    relation: Relation,
    /// Positions of the key's columns; none: rows are kept as a bag.
    key: Vec<usize>,
    rows: BTreeMap<Values, Values>,
    bag: BTreeMap<Values, u64>,
}

impl TableModel {
    /// Takes a schema for the changes that follow.
    pub fn relation(&mut self, relation: Relation) {
        let name = format!("{}.{}", relation.schema, relation.name);
        self.names.insert(relation.oid, name.clone());
        let key = relation.columns.iter().enumerate();
        let key = key
            .filter_map(|(position, column)| column.is_key.then_some(position))
            .collect();
        match self.tables.get_mut(&name) {
            Some(table) => {
                table.relation = relation;
                table.key = key;
            }
            None => {
                let (rows, bag) = (BTreeMap::new(), BTreeMap::new());
                let table = Table {
                    relation,
                    key,
                    rows,
                    bag,
                };
                self.tables.insert(name, table);
            }
        }
    }

    /// Applies one change.
    pub fn change(&mut self, change: &Change) -> Result<(), String> {
        let table = self.table(change.relation_oid)?;
        let new = || change.new.as_ref().ok_or("a change without its new row");
        match change.kind() {
            ChangeKind::Insert => table.insert(new()?, None),
            ChangeKind::Update => {
                let new = new()?;
                let previous = table.remove(change.old.as_ref().unwrap_or(new))?;
                table.insert(new, Some(&previous))
            }
            ChangeKind::Delete => {
                let old = change.old.as_ref().ok_or("a delete without its old row")?;
                table.remove(old).map(drop)
            }
            ChangeKind::Unspecified => Err("a change of no kind".to_owned()),
        }
    }

    /// Applies TRUNCATE.
    pub fn truncate(&mut self, truncate: &Truncate) -> Result<(), String> {
        for oid in &truncate.relation_oids {
            let table = self.table(*oid)?;
            table.rows.clear();
            table.bag.clear();
        }
        Ok(())
    }

    /// Rows of a table, `schema.name`; 0 if it never had any.
    pub fn row_count(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(0, |table| {
            table.rows.len() as u64 + table.bag.values().sum::<u64>()
        })
    }

    /// A table's rows, `schema.name`, in order of their text.
    pub fn rows(&self, table: &str) -> Vec<Values> {
        let table = self.tables.get(table);
        let mut rows = table.map(Table::all_rows).unwrap_or_default();
        rows.sort_unstable();
        rows
    }

    /// Names of the tables that were seen.
    pub fn table_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.tables.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Compares a table (`schema.name`) with a server's, row by row.
    pub async fn compare(&self, session: &mut Session, table: &str) -> Result<(), String> {
        let Some(model) = self.tables.get(table) else {
            let count = session
                .value(&format!("select count(*) from {table}"))
                .await;
            return if count == "0" {
                Ok(())
            } else {
                Err(format!("{table}: never seen, {count} rows"))
            };
        };
        session.run(SETTINGS).await;
        let columns: Vec<String> = model
            .relation
            .columns
            .iter()
            .map(|column| format!("\"{}\"", column.name.replace('"', "\"\"")))
            .collect();
        let sql = format!("select {} from {table}", columns.join(", "));
        let mut expected = session.run(&sql).await;
        expected.sort_unstable();
        let mut seen = model.all_rows();
        seen.sort_unstable();
        if seen == expected {
            return Ok(());
        }
        let missing = expected.iter().find(|row| seen.binary_search(row).is_err());
        let extra = seen.iter().find(|row| expected.binary_search(row).is_err());
        Err(format!(
            "{table}: {} rows, not {}; missing for example {missing:?}, too many {extra:?}",
            seen.len(),
            expected.len()
        ))
    }

    fn table(&mut self, oid: u32) -> Result<&mut Table, String> {
        let name = self.names.get(&oid);
        name.and_then(|name| self.tables.get_mut(name))
            .ok_or_else(|| format!("a change of relation {oid} before its schema"))
    }
}

impl Table {
    fn insert(&mut self, row: &Row, previous: Option<&Values>) -> Result<(), String> {
        let values = self.values(row, previous)?;
        if self.key.is_empty() {
            *self.bag.entry(values).or_default() += 1;
            return Ok(());
        }
        match self.rows.insert(self.key_of(&values), values) {
            None => Ok(()),
            Some(there) => Err(format!(
                "{}: a row came twice: {there:?}",
                self.relation.name
            )),
        }
    }

    fn remove(&mut self, row: &Row) -> Result<Values, String> {
        let values: Values = row
            .values
            .iter()
            .map(text)
            .map(Option::unwrap_or_default)
            .collect();
        let name = &self.relation.name;
        if !self.key.is_empty() {
            let key = self.key_of(&values);
            return self
                .rows
                .remove(&key)
                .ok_or_else(|| format!("{name}: no row with key {key:?}"));
        }
        match self.bag.get_mut(&values) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => drop(self.bag.remove(&values)),
            None => return Err(format!("{name}: no row {values:?}")),
        }
        Ok(values)
    }

    fn key_of(&self, values: &Values) -> Values {
        self.key
            .iter()
            .map(|position| values[*position].clone())
            .collect()
    }

    fn values(&self, row: &Row, previous: Option<&Values>) -> Result<Values, String> {
        if row.values.len() != self.relation.columns.len() {
            return Err(format!(
                "{}: {} values for {} columns",
                self.relation.name,
                row.values.len(),
                self.relation.columns.len()
            ));
        }
        let value = |(position, value): (usize, &Value)| match text(value) {
            Some(value) => Ok(value),
            None => previous
                .and_then(|row| row.get(position).cloned())
                .ok_or_else(|| "an unchanged value of a row that is not there".to_owned()),
        };
        row.values.iter().enumerate().map(value).collect()
    }

    fn all_rows(&self) -> Vec<Values> {
        let repeated = |(row, count): (&Values, &u64)| {
            std::iter::repeat_n(row.clone(), usize::try_from(*count).unwrap_or(usize::MAX))
        };
        let bag = self.bag.iter().flat_map(repeated);
        self.rows.values().cloned().chain(bag).collect()
    }
}

/// The outer option: whether the value is known.
#[expect(
    clippy::option_option,
    reason = "null and not known are different things"
)]
fn text(value: &Value) -> Option<Option<String>> {
    match &value.kind {
        Some(Kind::Text(text)) => Some(Some(String::from_utf8_lossy(text).into_owned())),
        Some(Kind::Null(_)) => Some(None),
        Some(Kind::UnchangedToast(_)) => None,
        Some(Kind::Binary(bytes)) => Some(Some(format!("binary {bytes:?}"))),
        None => panic!("a value of no kind"),
    }
}
