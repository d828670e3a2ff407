//! The statement that has PostgreSQL judge rows.
//!
//! ```sql
//! SELECT (the filter) FROM (SELECT v0 AS "a", v1::pg_catalog._int4 COLLATE … AS "b"
//!   FROM unnest('{1,2}'::pg_catalog._int4, '{"{1}","{2}"}'::pg_catalog._text) AS u(v0, v1)) AS t
//! ```
//!
//! The columns have the types that they had at the filter's place in the log, whatever the table is today. Values come
//! in arrays of their type, so that the type's input function reads them, as it would anywhere; arrays come as text,
//! since `unnest` would take them apart. Rows are given and answered in order: what came before an error counts.

use super::asks::Group;

/// A type as the source knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeName {
    /// Qualified and quoted.
    pub(super) name: String,
    /// The type of arrays of it, if there is one.
    pub(super) array: Option<String>,
}

/// Names of types and collations, by what is needed of them.
pub(super) trait Names {
    /// None if it no longer exists.
    fn type_name(&self, oid: u32) -> Option<TypeName>;
    /// Qualified and quoted; none if it no longer exists.
    fn collation(&self, oid: u32) -> Option<String>;
}

/// The type or collation that a filter's column needs does not exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    Type(u32),
    Collation(u32),
}

/// The statement for all rows of a group from `start` on, up to `end`.
pub(super) fn statement(
    group: &Group,
    rows: std::ops::Range<usize>,
    names: &impl Names,
) -> Result<Vec<u8>, Gone> {
    let filter = &group.filter;
    let mut chosen = Vec::new();
    let mut arrays = Vec::new();
    let mut aliases = Vec::new();
    for (place, (column, values)) in filter.needed().iter().zip(&group.columns).enumerate() {
        let Some(column) = filter.columns.get(*column) else {
            continue;
        };
        let known = names
            .type_name(column.type_oid)
            .ok_or(Gone::Type(column.type_oid))?;
        let cast = match &known.array {
            Some(_) => String::new(),
            None => format!("::{}", known.name),
        };
        let collate = match column.collation {
            0 => String::new(),
            oid => format!(
                " COLLATE {}",
                names.collation(oid).ok_or(Gone::Collation(oid))?
            ),
        };
        chosen.push(format!(
            "v{place}{cast}{collate} AS {}",
            quoted(&column.name)
        ));
        aliases.push(format!("v{place}"));
        let mut array = literal(values.get(rows.clone()).unwrap_or_default());
        array.extend_from_slice(b"::");
        let array_type = known.array.as_deref().unwrap_or("pg_catalog._text");
        array.extend_from_slice(array_type.as_bytes());
        arrays.push(array);
    }
    let mut sql = format!("SELECT ({}) FROM (SELECT ", filter.sql).into_bytes();
    if arrays.is_empty() {
        let count = rows.len();
        sql.extend_from_slice(format!("FROM generate_series(1, {count})) AS t").as_bytes());
        return Ok(sql);
    }
    sql.extend_from_slice(chosen.join(", ").as_bytes());
    sql.extend_from_slice(b" FROM unnest(");
    sql.extend_from_slice(&arrays.join(&b", "[..]));
    sql.extend_from_slice(format!(") AS u({})) AS t", aliases.join(", ")).as_bytes());
    Ok(sql)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An array's text as a string constant.
fn literal(values: &[Option<Box<[u8]>>]) -> Vec<u8> {
    let mut sql = b"'{".to_vec();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            sql.push(b',');
        }
        let Some(value) = value else {
            sql.extend_from_slice(b"NULL");
            continue;
        };
        sql.push(b'"');
        for byte in value {
            match byte {
                b'"' | b'\\' => sql.extend_from_slice(&[b'\\', *byte]),
                b'\'' => sql.extend_from_slice(b"''"),
                byte => sql.push(*byte),
            }
        }
        sql.push(b'"');
    }
    sql.extend_from_slice(b"}'");
    sql
}
