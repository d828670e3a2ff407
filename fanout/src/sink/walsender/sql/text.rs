//! An SQL text with its words, and how a part of it is written anew.

use std::ops::Range;

use super::lexer::{Token, Unterminated, words};

/// A text and its words.
pub(super) struct Text<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) tokens: Vec<Token>,
}

/// What stands in the place of a part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) span: Range<usize>,
    pub(super) with: Vec<u8>,
}

impl<'a> Text<'a> {
    pub(super) fn new(bytes: &'a [u8], escapes: bool) -> Result<Self, Unterminated> {
        let tokens = words(bytes, escapes)?;
        Ok(Self { bytes, tokens })
    }

    pub(super) fn token(&self, index: usize) -> Option<&Token> {
        self.tokens.get(index)
    }

    /// Whether the word is this keyword.
    pub(super) fn is_word(&self, index: usize, word: &str) -> bool {
        self.token(index).is_some_and(|token| token.is_word(word))
    }

    /// Whether the word is one of these keywords.
    pub(super) fn is_any(&self, index: usize, words: &[&str]) -> bool {
        words.iter().any(|word| self.is_word(index, word))
    }

    /// Whether the word is this character.
    pub(super) fn is(&self, index: usize, symbol: u8) -> bool {
        self.token(index).is_some_and(|token| token.is(symbol))
    }

    /// The word behind the bracket that closes the one at `open`, but not behind `end`.
    pub(super) fn behind_brackets(&self, open: usize, end: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for index in open..end {
            let token = self.token(index)?;
            if token.is(b'(') || token.is(b'[') {
                depth += 1;
            } else if token.is(b')') || token.is(b']') {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(index + 1);
                }
            }
        }
        None
    }

    /// The words of a range that stand in no brackets of it.
    pub(super) fn outside_brackets(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let mut depth = 0_usize;
        range.filter(move |index| {
            if self.is(*index, b'(') || self.is(*index, b'[') {
                depth += 1;
                return depth == 1;
            }
            if self.is(*index, b')') || self.is(*index, b']') {
                depth = depth.saturating_sub(1);
            }
            depth == 0
        })
    }

    /// The parts of a range between commas that stand in no brackets of it.
    pub(super) fn between_commas(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut start = range.start;
        for comma in self.outside_brackets(range.clone()) {
            if self.is(comma, b',') {
                parts.push(start..comma);
                start = comma + 1;
            }
        }
        parts.push(start..range.end);
        parts
    }

    /// Where these words stand in the text.
    pub(super) fn span(&self, range: &Range<usize>) -> Range<usize> {
        let first = self.token(range.start).map_or(0, |token| token.span.start);
        let last = range.end.checked_sub(1).and_then(|last| self.token(last));
        first..last.map_or(first, |token| token.span.end.max(first))
    }

    /// A part of the text with the edits that lie in it.
    pub(super) fn render(&self, span: Range<usize>, edits: &[Edit]) -> Vec<u8> {
        let inside = |edit: &&Edit| edit.span.start >= span.start && edit.span.end <= span.end;
        let mut edits: Vec<&Edit> = edits.iter().filter(inside).collect();
        edits.sort_by_key(|edit| edit.span.start);
        let mut out = Vec::new();
        let mut at = span.start;
        for edit in edits {
            // An edit inside of another one went into that.
            if edit.span.start < at {
                continue;
            }
            out.extend_from_slice(self.bytes.get(at..edit.span.start).unwrap_or_default());
            out.extend_from_slice(&edit.with);
            at = edit.span.end;
        }
        out.extend_from_slice(self.bytes.get(at..span.end).unwrap_or_default());
        out
    }
}
