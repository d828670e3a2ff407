//! The words of an SQL text (`scan.l`), as far as is needed to find names in it and to take nothing else for one.

use std::ops::Range;

/// What a word is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A keyword or a name, down-cased.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A string of any form; its content as it is written.
    Text(Range<usize>),
    /// `$1`.
    Parameter,
    /// A number.
    Number,
    /// One character of an operator or of punctuation.
    Symbol(u8),
}

/// A word, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Range<usize>,
}

impl Token {
    /// The name that this may be.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(name) | Kind::Quoted(name) => Some(name),
            _ => None,
        }
    }

    /// Whether it is this keyword.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(found) if found == word)
    }

    /// Whether it is this character.
    pub(super) fn is(&self, symbol: u8) -> bool {
        self.kind == Kind::Symbol(symbol)
    }
}

/// Something begins and does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unterminated {0}")]
pub(super) struct Unterminated(&'static str);

/// Splits a text into words. `escapes`: backslashes escape in ordinary strings (`standard_conforming_strings = off`).
pub(super) fn words(text: &[u8], escapes: bool) -> Result<Vec<Token>, Unterminated> {
    let mut lexer = Lexer {
        text,
        at: 0,
        escapes,
    };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    escapes: bool,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Option<Token>, Unterminated> {
        self.skip_blanks()?;
        let start = self.at;
        let Some(first) = self.peek(0) else {
            return Ok(None);
        };
        let kind = match first {
            b'\'' => self.string(self.escapes)?,
            b'"' => self.quoted_name()?,
            b'$' => self.dollar()?,
            b'0'..=b'9' => self.number(),
            _ if is_name_start(first) => self.word()?,
            symbol => {
                self.at += 1;
                Kind::Symbol(symbol)
            }
        };
        let span = start..self.at;
        Ok(Some(Token { kind, span }))
    }

    fn skip_blanks(&mut self) -> Result<(), Unterminated> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b' ' | b'\t' | b'\n' | b'\r' | b'\x0B' | b'\x0C'), _) => self.at += 1,
                (Some(b'-'), Some(b'-')) => {
                    let end = self.rest().iter().position(|byte| b"\n\r".contains(byte));
                    self.at = end.map_or(self.text.len(), |end| self.at + end);
                }
                (Some(b'/'), Some(b'*')) => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    /// Comments nest.
    fn skip_comment(&mut self) -> Result<(), Unterminated> {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => (depth, self.at) = (depth + 1, self.at + 2),
                (Some(b'*'), Some(b'/')) => {
                    (depth, self.at) = (depth - 1, self.at + 2);
                    if depth == 0 {
                        return Ok(());
                    }
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return Err(Unterminated("/* comment")),
            }
        }
    }

    /// Stands at the opening quote.
    fn string(&mut self, escapes: bool) -> Result<Kind, Unterminated> {
        let start = self.at + 1;
        self.skip_quoted(b'\'', escapes)
            .ok_or(Unterminated("quoted string"))?;
        Ok(Kind::Text(start..self.at - 1))
    }

    fn quoted_name(&mut self) -> Result<Kind, Unterminated> {
        let start = self.at + 1;
        self.skip_quoted(b'"', false)
            .ok_or(Unterminated("quoted identifier"))?;
        let written = self.text.get(start..self.at - 1).unwrap_or_default();
        let written = String::from_utf8_lossy(written);
        Ok(Kind::Quoted(written.replace("\"\"", "\"")))
    }

    /// To behind the closing quote; a quote that stands twice is content.
    fn skip_quoted(&mut self, quote: u8, escapes: bool) -> Option<()> {
        self.at += 1;
        loop {
            match (self.peek(0)?, self.peek(1)) {
                (b'\\', Some(_)) if escapes => self.at += 2,
                (byte, Some(next)) if byte == quote && next == quote => self.at += 2,
                (byte, _) if byte == quote => {
                    self.at += 1;
                    return Some(());
                }
                _ => self.at += 1,
            }
        }
    }

    /// A parameter, a string in dollars, or the character.
    fn dollar(&mut self) -> Result<Kind, Unterminated> {
        let behind = self.rest().get(1..).unwrap_or_default();
        let digits = behind.iter().take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        if digits > 0 {
            self.at += 1 + digits;
            return Ok(Kind::Parameter);
        }
        let part = |byte: &&u8| is_name_part(**byte) && **byte != b'$';
        let tag = 2 + behind.iter().take_while(part).count();
        let Some(opening) = self.rest().get(..tag).filter(|tag| tag.ends_with(b"$")) else {
            self.at += 1;
            return Ok(Kind::Symbol(b'$'));
        };
        let opening = opening.to_vec();
        let start = self.at + tag;
        let content = self.text.get(start..).unwrap_or_default();
        let length = content
            .windows(tag)
            .position(|window| window == opening)
            .ok_or(Unterminated("dollar-quoted string"))?;
        self.at = start + length + tag;
        Ok(Kind::Text(start..start + length))
    }

    fn number(&mut self) -> Kind {
        while self
            .peek(0)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
        {
            self.at += 1;
        }
        Kind::Number
    }

    fn word(&mut self) -> Result<Kind, Unterminated> {
        let start = self.at;
        while self.peek(0).is_some_and(is_name_part) {
            self.at += 1;
        }
        let written = self.text.get(start..self.at).unwrap_or_default();
        match (written, self.peek(0), self.peek(1)) {
            (b"e" | b"E", Some(b'\''), _) => self.string(true),
            (b"n" | b"N" | b"b" | b"B" | b"x" | b"X", Some(b'\''), _) => self.string(self.escapes),
            (b"u" | b"U", Some(b'&'), Some(b'\'')) => {
                self.at += 1;
                self.string(false)
            }
            (b"u" | b"U", Some(b'&'), Some(b'"')) => {
                self.at += 1;
                self.quoted_name()
            }
            _ => {
                let name = String::from_utf8_lossy(written).to_ascii_lowercase();
                Ok(Kind::Word(name))
            }
        }
    }
}

const fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii()
}

const fn is_name_part(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit() || byte == b'$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let tokens = words(text.as_bytes(), false).unwrap();
        let show = |token: &Token| match &token.kind {
            Kind::Word(name) => name.clone(),
            Kind::Quoted(name) => format!("\"{name}\""),
            Kind::Text(content) => format!("'{}'", &text[content.clone()]),
            Kind::Parameter | Kind::Number => text[token.span.clone()].to_owned(),
            Kind::Symbol(symbol) => char::from(*symbol).to_string(),
        };
        tokens.iter().map(show).collect()
    }

    #[test]
    fn splits_as_postgresql() {
        for (text, expected) in [
            ("SELECT a FROM B", vec!["select", "a", "from", "b"]),
            ("\"A\"\"b\".c", vec!["\"A\"b\"", ".", "c"]),
            ("'it''s' 'a\\'", vec!["'it''s'", "'a\\'"]),
            ("E'it\\'s' b", vec!["'it\\'s'", "b"]),
            ("$1::text", vec!["$1", ":", ":", "text"]),
            ("$$a'b$$ $x$ $$ $x$", vec!["'a'b'", "' $$ '"]),
            ("a$b$c", vec!["a$b$c"]),
            ("-- no\nyes /* a /* b */ c */ x", vec!["yes", "x"]),
            ("1.5e3,2", vec!["1.5e3", ",", "2"]),
            ("U&\"x\" U&'y' n'z'", vec!["\"x\"", "'y'", "'z'"]),
            ("größe", vec!["größe"]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn backslashes_escape_if_the_session_says_so() {
        let text = b"'a\\'b' c";
        assert_eq!(words(text, true).unwrap().len(), 2);
        assert!(words(text, false).is_err());
    }

    #[test]
    fn what_does_not_end_is_an_error() {
        for text in ["'a", "\"a", "/* a", "$x$ a", "E'\\'"] {
            assert!(words(text.as_bytes(), false).is_err(), "{text}");
        }
    }
}
