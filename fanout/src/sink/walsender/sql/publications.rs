//! Publications of Decant's own in what a client reads of the source's catalog.
//!
//! Subscribers look publications up in the publisher's catalog. There the source's stand alone, so `pg_publication`,
//! `pg_publication_tables` and `pg_get_publication_tables` are replaced by queries over both: definitions of Decant's
//! own come as JSON in a setting of the session, and the source finds their tables with the rules that it has for its own
//! (`pg_get_publication_tables` in PostgreSQL's `pg_publication.c`). A row filter comes as text, since nothing can make a
//! `pg_node_tree`; `pg_get_expr` of it goes.

use std::ops::Range;

use serde_json::{Value, json};
use storage_format::catalog::{Catalog, Publication, PublicationTable};

use super::mention::has_alias;
use super::text::{Edit, Text};

/// The setting of the session at the source that holds the definitions.
pub(super) const SETTING: &str = "decant.publications";

/// The first number of one: the source gives out numbers from below.
const FIRST_OID: u32 = 0xFFF0_0000;

/// What is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `pg_publication`.
    Publications,
    /// `pg_publication_tables`.
    Tables,
    /// The function `pg_get_publication_tables`.
    Function,
}

impl Source {
    /// By its name in `pg_catalog`.
    pub(super) fn of_name(name: &str, is_called: bool) -> Option<Self> {
        match (name, is_called) {
            ("pg_publication", false) => Some(Self::Publications),
            ("pg_publication_tables", false) => Some(Self::Tables),
            ("pg_get_publication_tables", true) => Some(Self::Function),
            _ => None,
        }
    }
}

/// Whether a statement may be about publications.
pub(super) fn may_be_mentioned_in(text: &[u8]) -> bool {
    const PART: &[u8] = b"_publication";
    let mut windows = text.windows(PART.len());
    windows.any(|window| window.eq_ignore_ascii_case(PART))
}

/// Decant's own publications as JSON in ASCII; `None` if there are none.
pub(super) fn definitions(catalog: &Catalog) -> Option<String> {
    let own = catalog.publications().iter().filter(|one| one.is_own());
    let own: Vec<Value> = (FIRST_OID..)
        .zip(own)
        .map(|(oid, publication)| definition(catalog, oid, publication))
        .collect();
    (!own.is_empty()).then(|| escaped(&Value::Array(own).to_string()))
}

/// Whether there are any.
pub(super) fn exist(catalog: &Catalog) -> bool {
    catalog.publications().iter().any(Publication::is_own)
}

/// A row of `pg_publication`, and what the members are found by.
fn definition(catalog: &Catalog, oid: u32, publication: &Publication) -> Value {
    let named = publication.tables.iter().filter(|table| !table.implied);
    let tables: Vec<Value> = named.map(|table| table_of(catalog, table)).collect();
    json!({
        "oid": oid,
        "pubname": publication.name,
        // The source's first superuser: nobody there owns it.
        "pubowner": 10,
        "puballtables": publication.all_tables,
        "pubinsert": publication.actions.insert,
        "pubupdate": publication.actions.update,
        "pubdelete": publication.actions.delete,
        "pubtruncate": publication.actions.truncate,
        "pubviaroot": publication.via_root,
        "pubgencols": if publication.generated_columns { "s" } else { "n" },
        "stored": publication.generated_columns,
        "schemas": publication.schemas,
        "tables": tables,
    })
}

fn table_of(catalog: &Catalog, table: &PublicationTable) -> Value {
    let described = catalog.publication_state().relation(table.relation);
    let attributes = described.and_then(|one| one.attributes.as_ref());
    let numbers = table.columns.as_ref().map(|columns| {
        let all = attributes.into_iter().flatten();
        let listed = all.filter(|one| columns.contains(&one.name));
        let numbers: Vec<String> = listed.map(|one| one.number.to_string()).collect();
        numbers.join(" ")
    });
    json!({
        "relid": table.relation.0,
        "attrs": numbers,
        "qual": table.row_filter.as_ref().map(|filter| &filter.sql),
    })
}

/// Other characters than ASCII's as JSON writes them in it: the session's encoding may be any.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            escaped.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    escaped
}

/// How a mention is written anew; none if it is read in a way that is left to the source alone.
pub(super) fn edits(
    text: &Text<'_>,
    source: Source,
    words: &Range<usize>,
    statement: &Range<usize>,
    major: u32,
) -> Option<Vec<Edit>> {
    match source {
        Source::Publications => Some(vec![relation(text, words, "pg_publication", PUBLICATIONS)]),
        Source::Tables => {
            let sql = tables(major);
            Some(vec![relation(text, words, "pg_publication_tables", &sql)])
        }
        Source::Function => function(text, words, statement, major),
    }
}

/// Columns that no subquery has, for tools that read the catalog as a table.
pub(super) fn is_of_table(text: &Text<'_>, statement: &Range<usize>) -> bool {
    const SYSTEM: [&str; 4] = ["tableoid", "ctid", "xmin", "xmax"];
    let mut words = statement.clone();
    words.any(|index| {
        let name = text.token(index).and_then(|token| token.name());
        name.is_some_and(|name| SYSTEM.contains(&name))
    })
}

const JSON: &str = "pg_catalog.current_setting('decant.publications')::pg_catalog.json";

const PUBLICATIONS: &str = "SELECT * FROM pg_catalog.pg_publication UNION ALL SELECT * FROM \
    pg_catalog.json_populate_recordset(NULL::pg_catalog.pg_publication, \
    pg_catalog.current_setting('decant.publications')::pg_catalog.json)";

/// Members of Decant's own: pubname, pubid, relid, attrs, qual. Without a list version 15 says NULL for the columns, later
/// ones name them all.
fn members(major: u32) -> String {
    let named_in = if major >= 16 { "true" } else { "false" };
    format!(
        "SELECT o.pubname, o.oid AS pubid, m.relid, \
         CASE WHEN t.attrs IS NOT NULL THEN t.attrs ELSE (SELECT pg_catalog.string_agg(a.attnum::pg_catalog.text, ' ' ORDER BY a.attnum) \
         FROM pg_catalog.pg_attribute a WHERE a.attrelid = m.relid AND a.attnum > 0 AND NOT a.attisdropped \
         AND (a.attgenerated = '' OR a.attgenerated = 's' AND o.stored) AND {named_in}) END::pg_catalog.int2vector AS attrs, t.qual \
         FROM pg_catalog.json_to_recordset({JSON}) AS o(oid pg_catalog.oid, pubname pg_catalog.text, \
         puballtables pg_catalog.bool, pubviaroot pg_catalog.bool, stored pg_catalog.bool, \
         schemas pg_catalog.text[], tables pg_catalog.json) \
         CROSS JOIN LATERAL (\
         WITH named AS (SELECT c.oid, c.relkind FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384 \
         AND (o.puballtables OR n.nspname = ANY (o.schemas) OR c.oid IN (SELECT i.relid FROM \
         pg_catalog.json_to_recordset(o.tables) AS i(relid pg_catalog.oid)))) \
         SELECT r.oid AS relid FROM named r WHERE o.pubviaroot AND NOT EXISTS (SELECT FROM \
         pg_catalog.pg_partition_ancestors(r.oid) AS a JOIN named up ON up.oid = a.relid WHERE a.relid <> r.oid) \
         UNION SELECT r.oid FROM named r WHERE NOT o.pubviaroot AND r.relkind = 'r' \
         UNION SELECT leaf.relid::pg_catalog.oid FROM named r CROSS JOIN LATERAL pg_catalog.pg_partition_tree(r.oid) AS leaf \
         JOIN pg_catalog.pg_class lc ON lc.oid = leaf.relid \
         WHERE NOT o.pubviaroot AND r.relkind = 'p' AND leaf.isleaf AND lc.relkind = 'r' AND lc.relpersistence = 'p'\
         ) AS m JOIN pg_catalog.pg_class mc ON mc.oid = m.relid JOIN pg_catalog.pg_namespace mn ON mn.oid = mc.relnamespace \
         LEFT JOIN LATERAL (SELECT i.attrs, i.qual FROM pg_catalog.json_to_recordset(o.tables) \
         AS i(relid pg_catalog.oid, attrs pg_catalog.text, qual pg_catalog.text) WHERE i.relid = m.relid \
         AND NOT o.puballtables AND NOT COALESCE(mn.nspname = ANY (o.schemas), false)) AS t ON true"
    )
}

fn tables(major: u32) -> String {
    let more = if major >= 15 {
        ", (SELECT pg_catalog.array_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute a \
         WHERE a.attrelid = g.relid AND a.attnum > 0 AND NOT a.attisdropped AND (g.attrs IS NULL OR a.attnum = ANY (g.attrs))), \
         g.qual"
    } else {
        ""
    };
    format!(
        "SELECT * FROM pg_catalog.pg_publication_tables UNION ALL SELECT g.pubname::pg_catalog.name, n.nspname, c.relname{more} \
         FROM ({}) AS g JOIN pg_catalog.pg_class c ON c.oid = g.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace",
        members(major)
    )
}

fn relation(text: &Text<'_>, words: &Range<usize>, name: &str, sql: &str) -> Edit {
    let mut with = format!("({sql})");
    if !has_alias(text, words.end) {
        with.push_str(" AS ");
        with.push_str(name);
    }
    Edit {
        span: text.span(words),
        with: with.into_bytes(),
    }
}

/// What the function gives for names, an expression of type text[]. From 16 on partitions go if an ancestor is there,
/// over all names together.
fn gives(names: &str, major: u32) -> String {
    let own = format!(
        "SELECT o.pubname FROM pg_catalog.json_to_recordset({JSON}) AS o(pubname pg_catalog.text)"
    );
    let theirs = if major >= 16 {
        format!(
            "VARIADIC ARRAY(SELECT t.n FROM pg_catalog.unnest({names}) AS t(n) WHERE t.n NOT IN ({own}))"
        )
    } else {
        format!("(SELECT t.n FROM pg_catalog.unnest({names}) AS t(n) WHERE t.n NOT IN ({own}))")
    };
    let members = members(major);
    let columns = match major {
        ..=14 => ("relid", "relid"),
        15 => (
            "s.relid, s.attrs, pg_catalog.pg_get_expr(s.qual, s.relid) AS qual",
            "m.relid, m.attrs, m.qual",
        ),
        _ => (
            "s.pubid, s.relid, s.attrs, pg_catalog.pg_get_expr(s.qual, s.relid) AS qual",
            "m.pubid, m.relid, m.attrs, m.qual",
        ),
    };
    let all = format!(
        "SELECT {} FROM pg_catalog.pg_get_publication_tables({theirs}) AS s UNION ALL \
         SELECT {} FROM ({members}) AS m WHERE m.pubname = ANY ({names})",
        columns.0, columns.1
    );
    if major < 16 {
        return all;
    }
    format!(
        "WITH g AS ({all}) SELECT g.* FROM g WHERE NOT EXISTS (SELECT FROM ({PUBLICATIONS}) AS v \
         WHERE v.pubname = ANY ({names}) AND v.pubviaroot) OR NOT EXISTS (SELECT FROM \
         pg_catalog.pg_partition_ancestors(g.relid) AS a JOIN g AS up ON up.relid = a.relid WHERE a.relid <> g.relid)"
    )
}

/// In FROM, or as `(pg_get_publication_tables(...)).*` of a list of results.
fn function(
    text: &Text<'_>,
    words: &Range<usize>,
    statement: &Range<usize>,
    major: u32,
) -> Option<Vec<Edit>> {
    let behind = text.behind_brackets(words.end, statement.end)?;
    let inside = words.end + 1..behind - 1;
    let names = names(text, &inside)?;
    let before = words.start.checked_sub(1)?;
    let mut edits = expressions(text, statement);
    if text.is_any(before, &["from", "join", "lateral"]) || text.is(before, b',') {
        let lateral = if text.is_word(before, "lateral") {
            ""
        } else {
            "LATERAL "
        };
        let mut with = format!("{lateral}({})", gives(&names, major));
        if !has_alias(text, behind) {
            with.push_str(" AS pg_get_publication_tables");
        }
        edits.push(Edit {
            span: text.span(&(words.start..behind)),
            with: with.into_bytes(),
        });
        return Some(edits);
    }
    let is_list = text.is(before, b'(')
        && before
            .checked_sub(1)
            .is_some_and(|word| text.is_word(word, "select"))
        && text.is(behind, b')')
        && text.is(behind + 1, b'.')
        && text.is(behind + 2, b'*')
        && text.is_word(behind + 3, "from");
    if !is_list {
        return None;
    }
    let end = closing(text, behind + 3, statement.end);
    let at = text.span(&(end - 1..end)).end;
    let (item, gives) = (
        format!("SELECT {names} AS names"),
        gives("decant_n.names", major),
    );
    edits.push(Edit {
        span: text.span(&(before..behind + 3)),
        with: format!("decant_g.* FROM ({item}").into_bytes(),
    });
    edits.push(Edit {
        span: at..at,
        with: format!(") AS decant_n, LATERAL ({gives}) AS decant_g").into_bytes(),
    });
    Some(edits)
}

/// The arguments as one expression of type text[].
fn names(text: &Text<'_>, inside: &Range<usize>) -> Option<String> {
    if inside.is_empty() {
        return None;
    }
    let variadic = text.is_word(inside.start, "variadic");
    let start = inside.start + usize::from(variadic);
    let written = text.bytes.get(text.span(&(start..inside.end)))?;
    let written = std::str::from_utf8(written).ok()?;
    Some(if variadic {
        format!("({written})")
    } else {
        format!("ARRAY[{written}]::pg_catalog.text[]")
    })
}

/// The bracket that closes what stands around a word, or the end.
fn closing(text: &Text<'_>, from: usize, end: usize) -> usize {
    let mut depth = 0_usize;
    for index in from..end {
        if text.is(index, b'(') {
            depth += 1;
        } else if text.is(index, b')') {
            match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return index,
            }
        }
    }
    end
}

/// `pg_get_expr(a.qual, a.relid)`: what it would make is there already.
fn expressions(text: &Text<'_>, statement: &Range<usize>) -> Vec<Edit> {
    let is = |index: usize, name: &str| text.token(index).and_then(|one| one.name()) == Some(name);
    let mut edits = Vec::new();
    for index in statement.clone() {
        let argument = index + 2;
        let matches = is(index, "pg_get_expr")
            && text.is(index + 1, b'(')
            && text.is(argument + 1, b'.')
            && is(argument + 2, "qual")
            && text.is(argument + 3, b',')
            && text.is(argument + 5, b'.')
            && is(argument + 6, "relid")
            && text.is(argument + 7, b')');
        if !matches {
            continue;
        }
        let qualified = index >= 2 && text.is(index - 1, b'.') && is(index - 2, "pg_catalog");
        let start = if qualified { index - 2 } else { index };
        let written = text.bytes.get(text.span(&(argument..argument + 3)));
        edits.push(Edit {
            span: text.span(&(start..argument + 8)),
            with: written.unwrap_or_default().to_vec(),
        });
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_ascii() {
        assert_eq!(escaped("a\u{fc}\u{1F600}"), "a\\u00fc\\ud83d\\ude00");
    }

    #[test]
    fn names_are_known_where_they_are_read_and_called() {
        assert_eq!(
            Source::of_name("pg_publication", false),
            Some(Source::Publications)
        );
        assert_eq!(Source::of_name("pg_publication", true), None);
        assert!(may_be_mentioned_in(b"SELECT * FROM PG_PUBLICATION"));
        assert!(!may_be_mentioned_in(b"SELECT 1"));
    }
}
