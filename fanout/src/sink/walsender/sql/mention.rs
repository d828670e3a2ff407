//! Where a text names one of the relations and functions that mean this endpoint's.

use std::ops::Range;

use super::names::{Function, View, is_not_here};
use super::publications;
use super::text::{Edit, Text};

/// What is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A view, as a relation to read.
    View(View),
    /// A function that is called.
    Function(Function),
    /// Something that can't be served.
    NotHere(String),
    /// Publications, as a relation to read or a function that is called.
    Publications(publications::Source),
}

/// A name and where it stands, in words, with its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mention {
    pub(super) named: Named,
    pub(super) words: Range<usize>,
}

/// All mentions among the words of a statement. `publications`: also those of publications.
pub(super) fn mentions(
    text: &Text<'_>,
    statement: Range<usize>,
    publications: bool,
) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut clauses = Clauses::default();
    for index in statement {
        clauses.follow(text, index);
        if let Some(mention) = mention(text, index, &clauses, publications) {
            found.push(mention);
        }
    }
    found
}

fn mention(
    text: &Text<'_>,
    index: usize,
    clauses: &Clauses,
    publications: bool,
) -> Option<Mention> {
    let name = text.token(index)?.name()?;
    let (view, function) = (View::of_name(name), Function::of_name(name));
    let is_called = text.is(index + 1, b'(');
    let source = publications::Source::of_name(name, is_called).filter(|_| publications);
    if view.is_none() && function.is_none() && source.is_none() && !is_not_here(name) {
        return None;
    }
    let start = match index.checked_sub(1).filter(|dot| text.is(*dot, b'.')) {
        None => index,
        // Somebody else's of the same name, or a column.
        Some(dot) => {
            let schema = dot.checked_sub(1)?;
            let of_system = text.token(schema)?.name() == Some("pg_catalog");
            let of_database = schema.checked_sub(1).is_some_and(|dot| text.is(dot, b'.'));
            if !of_system || of_database {
                return None;
            }
            schema
        }
    };
    let words = start..index + 1;
    let is_relation = || !text.is(index + 1, b'.') && clauses.names_relation(text, start);
    if let Some(source) = source {
        let named = Named::Publications(source);
        return (is_called || is_relation()).then_some(Mention { named, words });
    }
    let named = match (view, function) {
        (Some(view), _) if !is_called => {
            if !is_relation() {
                return None;
            }
            Named::View(view)
        }
        (_, Some(function)) if is_called => Named::Function(function),
        (None, None) if is_called => Named::NotHere(name.to_owned()),
        _ => return None,
    };
    Some(Mention { named, words })
}

/// In which clause the text is, at each depth of brackets.
#[derive(Default)]
struct Clauses {
    /// Whether a list of relations is being written.
    from: Vec<bool>,
    here: bool,
}

impl Clauses {
    fn follow(&mut self, text: &Text<'_>, index: usize) {
        const BEGIN: [&str; 4] = ["from", "using", "join", "into"];
        const END: [&str; 13] = [
            "select",
            "where",
            "group",
            "having",
            "order",
            "limit",
            "offset",
            "fetch",
            "union",
            "intersect",
            "except",
            "window",
            "returning",
        ];
        if text.is(index, b'(') {
            self.from.push(self.here);
        } else if text.is(index, b')') {
            self.here = self.from.pop().unwrap_or_default();
        } else if text.is_any(index, &BEGIN) {
            self.here = true;
        } else if text.is_any(index, &END) {
            self.here = false;
        }
    }

    /// Whether a name that starts here is that of a relation.
    fn names_relation(&self, text: &Text<'_>, start: usize) -> bool {
        const BEFORE: [&str; 5] = ["from", "join", "only", "table", "using"];
        let Some(before) = start.checked_sub(1) else {
            return false;
        };
        text.is_any(before, &BEFORE)
            || self.here && (text.is(before, b',') || text.is(before, b'('))
    }
}

/// What stands in a relation's place: its rows, under its name unless it has another one there.
pub(super) fn relation(text: &Text<'_>, view: View, words: &Range<usize>) -> Edit {
    let (name, setting) = (view.name(), view.setting());
    let mut with = format!(
        "pg_catalog.json_populate_recordset(NULL::pg_catalog.{name}, \
         pg_catalog.current_setting('{setting}')::pg_catalog.json)"
    );
    if !has_alias(text, words.end) {
        with.push_str(" AS ");
        with.push_str(name);
    }
    Edit {
        span: text.span(words),
        with: with.into_bytes(),
    }
}

/// Whether the word behind a relation is its other name.
pub(super) fn has_alias(text: &Text<'_>, behind: usize) -> bool {
    /// What may follow a relation and can't be its name.
    const FOLLOW: [&str; 24] = [
        "where",
        "group",
        "having",
        "order",
        "limit",
        "offset",
        "fetch",
        "for",
        "union",
        "intersect",
        "except",
        "window",
        "on",
        "using",
        "join",
        "inner",
        "left",
        "right",
        "full",
        "cross",
        "natural",
        "tablesample",
        "returning",
        "with",
    ];
    match text.token(behind) {
        Some(token) => token.name().is_some() && !text.is_any(behind, &FOLLOW),
        None => false,
    }
}
