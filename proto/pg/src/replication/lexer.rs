//! The words of replication commands (`repl_scanner.l`).

use crate::Lsn;

/// `NAMEDATALEN - 1`: longer identifiers are cut.
const IDENTIFIER_LEN_MAX: usize = 63;

/// The words that are no identifiers, in upper case only.
const KEYWORDS: [&str; 21] = [
    "BASE_BACKUP",
    "IDENTIFY_SYSTEM",
    "READ_REPLICATION_SLOT",
    "SHOW",
    "TIMELINE",
    "START_REPLICATION",
    "CREATE_REPLICATION_SLOT",
    "DROP_REPLICATION_SLOT",
    "ALTER_REPLICATION_SLOT",
    "TIMELINE_HISTORY",
    "PHYSICAL",
    "RESERVE_WAL",
    "LOGICAL",
    "SLOT",
    "TEMPORARY",
    "TWO_PHASE",
    "EXPORT_SNAPSHOT",
    "NOEXPORT_SNAPSHOT",
    "USE_SNAPSHOT",
    "WAIT",
    "UPLOAD_MANIFEST",
];

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Keyword(&'static str),
    /// Down-cased unless quoted, cut at 63 bytes.
    Identifier(String),
    Text(String),
    Integer(u32),
    Lsn(Lsn),
    Symbol(char),
    End,
}

/// Why a word can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LexError {
    UnterminatedQuote,
    BadLsn,
    BadInteger,
}

/// Splits a command into words.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// The next word, and how it is written.
    pub(super) fn next(&mut self) -> Result<(Token, &'a str), LexError> {
        let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0C' | '\x0B');
        self.rest = self.rest.trim_start_matches(blank);
        let Some(first) = self.rest.chars().next() else {
            return Ok((Token::End, ""));
        };
        if first == '\'' || first == '"' {
            return self.quoted(first);
        }
        if let Some(found) = self.lsn() {
            return found;
        }
        if is_identifier_start(first) {
            let word = self.take_while(is_identifier_part);
            return Ok((plain_word(word), word));
        }
        if first.is_ascii_digit() {
            let digits = self.take_while(|c| c.is_ascii_digit());
            let value = digits.parse().map_err(|_| LexError::BadInteger)?;
            return Ok((Token::Integer(value), digits));
        }
        let written = self.take(first.len_utf8());
        Ok((Token::Symbol(first), written))
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !belongs(c));
        self.take(end.unwrap_or(self.rest.len()))
    }

    /// A position: the longest of what may begin with a hexadecimal digit, so it is looked for first.
    fn lsn(&mut self) -> Option<Result<(Token, &'a str), LexError>> {
        let digits = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_hexdigit());
            end.unwrap_or(text.len())
        };
        let high = digits(self.rest);
        let after = self.rest.get(high..)?.strip_prefix('/')?;
        let low = digits(after);
        if high == 0 || low == 0 {
            return None;
        }
        let written = self.take(high + 1 + low);
        let value = written.parse().map_err(|_| LexError::BadLsn);
        Some(value.map(|lsn| (Token::Lsn(lsn), written)))
    }

    /// A string or a quoted identifier; the quote stands in it twice.
    fn quoted(&mut self, quote: char) -> Result<(Token, &'a str), LexError> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        loop {
            match chars.next() {
                None => return Err(LexError::UnterminatedQuote),
                Some((at, c)) if c == quote => match chars.peek() {
                    Some((_, again)) if *again == quote => {
                        chars.next();
                        text.push(quote);
                    }
                    _ => {
                        let written = self.take(at + 1);
                        let token = match quote {
                            '"' => Token::Identifier(cut_identifier(text)),
                            _ => Token::Text(text),
                        };
                        return Ok((token, written));
                    }
                },
                Some((_, c)) => text.push(c),
            }
        }
    }
}

fn plain_word(word: &str) -> Token {
    match KEYWORDS.iter().find(|keyword| **keyword == word) {
        Some(keyword) => Token::Keyword(keyword),
        None => Token::Identifier(cut_identifier(word.to_ascii_lowercase())),
    }
}

/// Cuts between characters, never inside one.
fn cut_identifier(mut name: String) -> String {
    while name.len() > IDENTIFIER_LEN_MAX {
        name.pop();
    }
    name
}

fn is_identifier_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn is_identifier_part(c: char) -> bool {
    is_identifier_start(c) || c.is_ascii_digit() || c == '$'
}
