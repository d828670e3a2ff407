//! Calls of functions that do something: what the source is asked for their arguments, and what stands in their place.

use std::ops::Range;

use super::mention::has_alias;
use super::names::{Function, Gives};
use super::text::{Edit, Text};

/// The session's setting at the source that holds, as JSON, what calls gave: by function and arguments.
pub(super) const RESULTS: &str = "decant.results";

/// Numbers of this endpoint's sessions begin here, above all process ids, so that it is clear whose a number is.
pub(crate) const FIRST_PID: u32 = 1 << 30;

/// A call, in words of the text.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) function: Function,
    /// The name with its schema, to the closing bracket.
    pub(super) words: Range<usize>,
    /// Each argument by position, typed.
    arguments: Vec<Vec<u8>>,
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is an item of the select list, whose words these are.
    Item(Range<usize>),
    /// It is all that is selected from.
    From,
}

impl Call {
    /// The call whose name is `name`; `None` if it is not understood.
    pub(super) fn parse(
        text: &Text<'_>,
        function: Function,
        name: &Range<usize>,
        end: usize,
        relations: &[Edit],
        has_failover: bool,
    ) -> Option<Self> {
        let behind = text.behind_brackets(name.end, end)?;
        if text.is_any(behind, &["filter", "over", "within"]) {
            return None;
        }
        let parameters = function.parameters(has_failover);
        let mut given: Vec<Option<Vec<u8>>> = vec![None; parameters.len()];
        let inside = name.end + 1..behind - 1;
        let parts = match inside.is_empty() {
            true => Vec::new(),
            false => text.between_commas(inside),
        };
        for (position, part) in parts.into_iter().enumerate() {
            let (position, part) = match named(text, &part) {
                Some((name, part)) => {
                    let found = parameters.iter().position(|(known, ..)| *known == name);
                    (found?, part)
                }
                None => (position, part),
            };
            let refused = ["distinct", "all", "variadic"];
            if part.is_empty() || text.is_any(part.start, &refused) {
                return None;
            }
            let place = given.get_mut(position)?;
            if place.is_some() {
                return None;
            }
            *place = Some(text.render(text.span(&part), relations));
        }
        let typed = parameters
            .iter()
            .zip(given)
            .map(|((_, kind, default), given)| {
                let value = match (given, default) {
                    (Some(value), _) => value,
                    (None, Some(default)) => default.as_bytes().to_vec(),
                    (None, None) => return None,
                };
                Some([b"(", &*value, b")::pg_catalog.", kind.as_bytes()].concat())
            });
        Some(Self {
            function,
            words: name.start..behind,
            arguments: typed.collect::<Option<_>>()?,
        })
    }

    /// Function and arguments, as JSON.
    pub(super) fn key(&self) -> Vec<u8> {
        let name = self.function.name();
        let mut key = format!("pg_catalog.json_build_array('{name}'").into_bytes();
        for argument in &self.arguments {
            key.extend_from_slice(b", ");
            key.extend_from_slice(argument);
        }
        key.extend_from_slice(b")::pg_catalog.text");
        key
    }

    /// What it gave. A call that was not made is an error: no value can be taken for it.
    fn result(&self) -> Vec<u8> {
        let setting = format!("pg_catalog.current_setting('{RESULTS}')::pg_catalog.json ->> ");
        let key = self.key();
        let missing = b", 'this call was not foreseen')";
        [b"COALESCE(", setting.as_bytes(), b"(", &*key, b")", missing].concat()
    }

    /// All these functions give null for null.
    fn unless_null(&self, value: &[u8]) -> Vec<u8> {
        let tests = self.arguments.iter().map(|argument| {
            let test: [&[u8]; 2] = [argument, b" IS NULL"];
            test.concat()
        });
        let tests = tests.collect::<Vec<_>>().join(&b" OR "[..]);
        [b"CASE WHEN ", &*tests, b" THEN NULL ELSE ", value, b" END"].concat()
    }

    /// An expression of the same type and value as the call.
    fn value(&self) -> Vec<u8> {
        let result = self.result();
        match self.function.gives() {
            // A function that gives nothing, of an argument that is 0 or an error.
            Gives::Void => {
                let pause = [&*result, b"::pg_catalog.float8"].concat();
                [b"pg_catalog.pg_sleep(", &*self.unless_null(&pause), b")"].concat()
            }
            Gives::Boolean => {
                let name = self.function.name();
                let own = [&*result, b"::pg_catalog.bool"].concat();
                let arguments = self.arguments.join(&b", "[..]);
                let first = self.arguments.first().cloned().unwrap_or_default();
                let limit = format!(" >= {FIRST_PID} THEN ");
                let other = format!(" ELSE pg_catalog.{name}(");
                [
                    b"CASE WHEN ",
                    &*first,
                    limit.as_bytes(),
                    &own,
                    other.as_bytes(),
                    &arguments,
                ]
                .concat()
                .into_iter()
                .chain(*b") END")
                .collect()
            }
            Gives::Position(column) => {
                let columns =
                    format!(") AS r(slot_name pg_catalog.name, {column} pg_catalog.pg_lsn))");
                let value = [b"(", &*result, b")::pg_catalog.json"].concat();
                let value = self.unless_null(&value);
                [
                    b"(SELECT r FROM pg_catalog.json_to_record(",
                    &*value,
                    columns.as_bytes(),
                ]
                .concat()
            }
        }
    }

    /// One of the columns that it gives.
    fn field(&self, name: &str) -> Option<Vec<u8>> {
        let Gives::Position(column) = self.function.gives() else {
            return None;
        };
        let kind = match name {
            "slot_name" => "name",
            name if name == column => "pg_lsn",
            _ => return None,
        };
        let value = [b"(", &*self.result(), b")::pg_catalog.json"].concat();
        let value = self.unless_null(&value);
        let take = format!(") ->> '{name}')::pg_catalog.{kind}");
        Some([b"((", &*value, take.as_bytes()].concat())
    }

    /// Where the call stands in a statement of which the select list and what comes from `FROM` on are these words.
    pub(super) fn place(
        &self,
        text: &Text<'_>,
        items: &[Range<usize>],
        from: &Range<usize>,
    ) -> Option<Place> {
        if self.words.start == from.start + 1 {
            let mut behind = self.words.end;
            if text.is_word(behind, "as") {
                behind += 1;
            }
            if behind < from.end && has_alias(text, behind) {
                behind += 1;
            }
            return (behind == from.end).then_some(Place::From);
        }
        let inside =
            |item: &&Range<usize>| item.start <= self.words.start && self.words.end <= item.end;
        let item = items.iter().find(inside)?;
        let is_whole = self.words.start == item.start && self.is_named_or_cast(text, item);
        (is_whole || self.field_of(text, item).is_some()).then(|| Place::Item(item.clone()))
    }

    /// Behind the call comes nothing, a cast to a simple type, a name.
    fn is_named_or_cast(&self, text: &Text<'_>, item: &Range<usize>) -> bool {
        self.cast_end(text, self.words.end)
            .is_some_and(|behind| is_alias(text, behind..item.end))
    }

    fn cast_end(&self, text: &Text<'_>, behind: usize) -> Option<usize> {
        if !text.is(behind, b':') {
            return Some(behind);
        }
        let is_cast = text.is(behind + 1, b':') && text.token(behind + 2)?.name().is_some();
        is_cast.then_some(behind + 3)
    }

    /// `(call).field`, with a name or a cast behind it: the field, and the words up to it.
    fn field_of(&self, text: &Text<'_>, item: &Range<usize>) -> Option<(String, Range<usize>)> {
        let (open, close) = (item.start, self.words.end);
        let in_brackets =
            self.words.start == open + 1 && text.is(open, b'(') && text.is(close, b')');
        if !in_brackets || !text.is(close + 1, b'.') {
            return None;
        }
        let name = text.token(close + 2)?.name()?.to_owned();
        let behind = self.cast_end(text, close + 3)?;
        is_alias(text, behind..item.end).then(|| (name, open..close + 3))
    }

    /// What stands in the place of the call, with the name that its column has. `asking`: the statement only asks for
    /// its arguments, and the value is not looked at.
    pub(super) fn edits(&self, text: &Text<'_>, place: &Place, asking: bool) -> Option<Vec<Edit>> {
        let name = self.function.name();
        let item = match place {
            Place::From => {
                let value = match self.function.gives() {
                    Gives::Position(column) => {
                        let (name, position) = (self.field("slot_name")?, self.field(column)?);
                        let end = format!(" AS {column})");
                        [
                            b"(SELECT ",
                            &*name,
                            b" AS slot_name, ",
                            &position,
                            end.as_bytes(),
                        ]
                        .concat()
                    }
                    _ => [
                        b"(SELECT ",
                        &*self.value(),
                        format!(" AS {name})").as_bytes(),
                    ]
                    .concat(),
                };
                let alias = format!(" AS {name}");
                let named = text.is_word(self.words.end, "as") || has_alias(text, self.words.end);
                let alias = if named { &b""[..] } else { alias.as_bytes() };
                let span = text.span(&self.words);
                let with = [&*value, alias].concat();
                return Some(vec![Edit { span, with }]);
            }
            Place::Item(item) => item,
        };
        let (words, value, name) = match self.field_of(text, item) {
            Some((field, words)) => (words, self.field(&field)?, field),
            None => (self.words.clone(), self.value(), name.to_owned()),
        };
        let value = if asking { b"NULL".to_vec() } else { value };
        let mut edits = vec![Edit {
            span: text.span(&words),
            with: value,
        }];
        let behind = self.cast_end(text, words.end)?;
        if behind == item.end {
            let end = text.span(item).end;
            let with = format!(" AS \"{name}\"").into_bytes();
            edits.push(Edit {
                span: end..end,
                with,
            });
        }
        Some(edits)
    }
}

/// `name => value` or `name := value`.
fn named(text: &Text<'_>, part: &Range<usize>) -> Option<(String, Range<usize>)> {
    let name = text.token(part.start)?.name()?;
    let arrow = text.is(part.start + 1, b'=') && text.is(part.start + 2, b'>');
    let becomes = text.is(part.start + 1, b':') && text.is(part.start + 2, b'=');
    let value = part.start + 3..part.end;
    (arrow || becomes).then(|| (name.to_owned(), value))
}

/// Nothing, `name` or `AS name`.
fn is_alias(text: &Text<'_>, words: Range<usize>) -> bool {
    let name = |index| {
        text.token(index)
            .is_some_and(|token| token.name().is_some())
    };
    match words.len() {
        0 => true,
        1 => name(words.start),
        2 => text.is_word(words.start, "as") && name(words.start + 1),
        _ => false,
    }
}
