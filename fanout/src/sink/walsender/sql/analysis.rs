//! What becomes of a statement: most go to the source as they are. Those about slots are written anew, so that the
//! source evaluates them over this endpoint's rows. What can't be served exactly is refused.
//!
//! ```text
//! SELECT active FROM pg_replication_slots WHERE slot_name = $1
//! SELECT active FROM json_populate_recordset(NULL::pg_replication_slots, current_setting('decant...')::json)
//!   AS pg_replication_slots WHERE slot_name = $1
//! ```
//!
//! The rows are in a setting of the client's session at the source, put there before the statement runs. Their types and
//! order are those of the source's own view, so joins, conditions, aggregates and prepared statements work as they do
//! there. Of a function that does something the source is asked for the arguments first; then it is done here, and
//! the source evaluates the statement with the results.

use std::ops::Range;

use pg_proto::wire::{ErrorFields, sqlstate};

use super::call::{Call, Place};
use super::mention::{Mention, Named, mentions, relation};
use super::names::{View, is_mentioned_in, may_be_mentioned_in};
use super::publications;
use super::text::{Edit, Text};

/// What becomes of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes to the source as it is.
    Plain,
    /// It goes to the source in other words.
    Special(Special),
    /// It does not go.
    Refused(Box<ErrorFields>),
}

/// A statement in other words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Special {
    /// The other words.
    pub(super) text: Vec<u8>,
    /// Of these views the rows must be at the source before it runs.
    pub(super) views: Vec<View>,
    /// Asks for the arguments of the functions in it: in the first column an array of function and arguments for each
    /// call, as JSON, in a row for each time that they would be called.
    pub(super) asking: Option<Vec<u8>>,
}

/// What a session is like, as far as it matters for reading its statements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dialect {
    /// Backslashes escape in ordinary strings.
    pub(super) escapes: bool,
    /// Slots have the flag `failover`.
    pub(super) has_failover: bool,
    /// Decant has publications of its own, beside those of a source of this major version.
    pub(super) publications: Option<u32>,
}

/// Decides about a text, which may be several statements.
pub(super) fn analyse(bytes: &[u8], dialect: Dialect) -> Verdict {
    let slots = may_be_mentioned_in(bytes);
    if !slots && (dialect.publications.is_none() || !publications::may_be_mentioned_in(bytes)) {
        return Verdict::Plain;
    }
    let text = match Text::new(bytes, dialect.escapes) {
        Ok(text) => text,
        // The source says so itself.
        Err(_) if !slots => return Verdict::Plain,
        Err(error) => {
            let error = ErrorFields::error(sqlstate::SYNTAX_ERROR, error.to_string());
            return Verdict::Refused(Box::new(error));
        }
    };
    match special(&text, dialect) {
        Ok(None) => Verdict::Plain,
        Ok(Some(special)) => Verdict::Special(special),
        Err(refused) => Verdict::Refused(Box::new(refused)),
    }
}

fn special(text: &Text<'_>, dialect: Dialect) -> Result<Option<Special>, ErrorFields> {
    let statements = statements(text);
    let mut special = Special::default();
    let mut edits = Vec::new();
    let mut calls = None;
    for statement in &statements {
        let found = mentions(text, statement.clone(), false);
        read_publications(text, statement, dialect, &mut special, &mut edits);
        check_kind(text, statement, &found)?;
        check_strings(text, statement)?;
        for mention in &found {
            match &mention.named {
                Named::View(view) => {
                    edits.push(relation(text, *view, &mention.words));
                    if !special.views.contains(view) {
                        special.views.push(*view);
                    }
                }
                Named::Publications(_) => {}
                Named::NotHere(name) => return Err(not_here(name)),
                Named::Function(function) if statements.len() > 1 => {
                    return Err(not_so(function.name()));
                }
                Named::Function(_) => calls = Some(found.clone()),
            }
        }
    }
    if let (Some(found), [statement]) = (calls, &*statements) {
        let (more, asking) = effects(text, statement, &found, &edits, dialect)?;
        edits.extend(more);
        special.asking = Some(asking);
    }
    if edits.is_empty() {
        return Ok(None);
    }
    special.text = text.render(0..text.bytes.len(), &edits);
    Ok(Some(special))
}

/// Publications of the source and Decant's own, where a statement reads them at once and as a query does.
fn read_publications(
    text: &Text<'_>,
    statement: &Range<usize>,
    dialect: Dialect,
    special: &mut Special,
    edits: &mut Vec<Edit>,
) {
    let Some(major) = dialect.publications else {
        return;
    };
    let first = statement.start;
    let at_once = text.is(first, b'(') || text.is_any(first, &AT_ONCE);
    if !at_once || publications::is_of_table(text, statement) {
        return;
    }
    for mention in mentions(text, statement.clone(), true) {
        let Named::Publications(source) = mention.named else {
            continue;
        };
        let written = publications::edits(text, source, &mention.words, statement, major);
        edits.extend(written.unwrap_or_default());
        if !special.views.contains(&View::Publications) {
            special.views.push(View::Publications);
        }
    }
}

/// The statements of a text that are not empty.
fn statements(text: &Text<'_>) -> Vec<Range<usize>> {
    let mut statements = Vec::new();
    let mut start = 0;
    for index in text.outside_brackets(0..text.tokens.len()) {
        if text.is(index, b';') {
            statements.push(start..index);
            start = index + 1;
        }
    }
    statements.push(start..text.tokens.len());
    statements.retain(|statement| !statement.is_empty());
    statements
}

/// Kinds of statements that run at once, and once.
const AT_ONCE: [&str; 11] = [
    "select", "with", "values", "explain", "copy", "insert", "update", "delete", "merge",
    "declare", "analyze",
];

/// A statement that keeps its text for later would be evaluated over rows of now.
fn check_kind(
    text: &Text<'_>,
    statement: &Range<usize>,
    found: &[Mention],
) -> Result<(), ErrorFields> {
    let first = statement.start;
    if text.is(first, b'(') || text.is_any(first, &AT_ONCE) {
        return Ok(());
    }
    match found.first() {
        None => Ok(()),
        Some(mention) => Err(not_so(match &mention.named {
            Named::View(view) => view.name(),
            Named::Function(function) => function.name(),
            Named::NotHere(name) => name,
            Named::Publications(_) => return Ok(()),
        })),
    }
}

/// Statements with code in strings are not looked into: they are refused if it might be about slots.
fn check_strings(text: &Text<'_>, statement: &Range<usize>) -> Result<(), ErrorFields> {
    let has_code = text.is_any(
        statement.start,
        &["do", "create", "alter", "execute", "prepare"],
    );
    let mut strings = text
        .tokens
        .get(statement.clone())
        .unwrap_or_default()
        .iter();
    let refused = strings.any(|token| match &token.kind {
        super::lexer::Kind::Text(content) => {
            let content = text.bytes.get(content.clone()).unwrap_or_default();
            has_code && is_mentioned_in(content) || has_call(content)
        }
        _ => false,
    });
    if refused {
        return Err(ErrorFields::error(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "functions about replication slots in the text of a string are not supported by this endpoint",
        )
        .with_hint("Connect to the source itself, or call the function in a statement of its own."));
    }
    Ok(())
}

/// Whether a string has a call in it that something may run.
fn has_call(content: &[u8]) -> bool {
    if !may_be_mentioned_in(content) {
        return false;
    }
    // What is no SQL can't be run.
    let Ok(text) = Text::new(content, false) else {
        return false;
    };
    let found = mentions(&text, 0..text.tokens.len(), false);
    let is_call = |mention: &Mention| !matches!(mention.named, Named::View(_));
    found.iter().any(is_call)
}

/// How a statement of calls is written anew, and how their arguments are asked for.
fn effects(
    text: &Text<'_>,
    statement: &Range<usize>,
    found: &[Mention],
    relations: &[Edit],
    dialect: Dialect,
) -> Result<(Vec<Edit>, Vec<u8>), ErrorFields> {
    let mut name = "this function";
    let mut calls = Vec::new();
    for mention in found {
        if let Named::Function(function) = mention.named {
            name = function.name();
            let (words, end) = (&mention.words, statement.end);
            let failover = dialect.has_failover;
            let call = Call::parse(text, function, words, end, relations, failover);
            calls.push(call.ok_or_else(|| not_so(name))?);
        }
    }
    let written = write(text, statement, &calls, relations);
    written.ok_or_else(|| not_so(name))
}

fn write(
    text: &Text<'_>,
    statement: &Range<usize>,
    calls: &[Call],
    relations: &[Edit],
) -> Option<(Vec<Edit>, Vec<u8>)> {
    let (items, from) = select(text, statement)?;
    let places: Vec<Place> = calls
        .iter()
        .map(|call| call.place(text, &items, &from))
        .collect::<Option<_>>()?;
    let is_from = places.contains(&Place::From);
    // Whatever else has a value may be called twice: once for the arguments, once for the result.
    let other = |item: &&Range<usize>| {
        let of_call = |place: &Place| matches!(place, Place::Item(found) if found == *item);
        !places.iter().any(of_call)
    };
    let brackets = |item: &Range<usize>| item.clone().any(|index| text.is(index, b'('));
    let is_safe = is_from && calls.len() == 1 || !items.iter().filter(other).any(brackets);
    if !is_safe || is_from && calls.len() != 1 {
        return None;
    }
    let keys: Vec<Vec<u8>> = calls.iter().map(Call::key).collect();
    let mut asking = b"SELECT pg_catalog.json_build_array(".to_vec();
    asking.extend_from_slice(&keys.join(&b", "[..]));
    asking.extend_from_slice(b")::pg_catalog.text");
    let mut edits = Vec::new();
    let mut asked: Vec<Edit> = relations.to_vec();
    for (call, place) in calls.iter().zip(&places) {
        edits.extend(call.edits(text, place, false)?);
        asked.extend(call.edits(text, place, true)?);
    }
    if !is_from {
        let list = statement.start + 1..statement.end;
        asking.extend_from_slice(b", ");
        asking.extend_from_slice(&text.render(text.span(&list), &asked));
    }
    Some((edits, asking))
}

/// The items of a simple SELECT, and the words from FROM to the end; `None` if it is not simple.
fn select(text: &Text<'_>, statement: &Range<usize>) -> Option<(Vec<Range<usize>>, Range<usize>)> {
    const NOT_SIMPLE: [&str; 12] = [
        "group",
        "having",
        "window",
        "union",
        "intersect",
        "except",
        "order",
        "limit",
        "offset",
        "fetch",
        "for",
        "into",
    ];
    let list = statement.start + 1;
    if !text.is_word(statement.start, "select") || text.is_any(list, &["distinct", "all"]) {
        return None;
    }
    let mut from = statement.end;
    for index in text.outside_brackets(list..statement.end) {
        if text.is_any(index, &NOT_SIMPLE) {
            return None;
        }
        let is_from = text.is_word(index, "from") && !text.is_word(index - 1, "distinct");
        if is_from && from == statement.end {
            from = index;
        }
    }
    Some((text.between_commas(list..from), from..statement.end))
}

fn not_here(name: &str) -> ErrorFields {
    ErrorFields::error(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("{name} is not served by this endpoint"),
    )
    .with_hint("Connect to the source itself for its own slots.")
}

fn not_so(name: &str) -> ErrorFields {
    ErrorFields::error(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("{name} is not supported in a statement of this kind by this endpoint"),
    )
    .with_hint(
        "Views of slots can be read by any query that runs at once. A function about slots is called as an item of a \
         simple SELECT, or as all that is selected from.",
    )
}

#[cfg(test)]
#[path = "analysis_tests.rs"]
mod tests;
