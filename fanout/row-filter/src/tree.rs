//! `pg_node_tree` as PostgreSQL's `outfuncs.c` prints it, whatever fields a version has.
//!
//! Format: `{NODETYPE :field value :field value}`, lists in parentheses, `<>` for nothing, a datum as its length and
//! its bytes as signed decimal numbers in brackets.

/// Longest text that is read.
const TEXT_MAX: usize = 1 << 20;

/// Deepest nesting that is read. The compiler and the evaluator recurse as deep.
const DEPTH_MAX: usize = 200;

/// A value in a tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item<'a> {
    /// `<>`
    Nothing,
    /// A number, a word or a quoted string, as it stands.
    Word(&'a str),
    /// `4 [ 1 0 0 0 0 0 0 0 ]`
    Datum(Vec<u8>),
    /// `( ... )`
    List(Vec<Item<'a>>),
    /// `{ ... }`
    Node(Node<'a>),
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node<'a> {
    /// Upper case, such as `OPEXPR`.
    pub(crate) name: &'a str,
    fields: Vec<(&'a str, Item<'a>)>,
}

/// Why a text is no tree that can be read. Byte offset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("the expression tree is longer than {TEXT_MAX} bytes")]
    Long,
    #[error("the expression tree is nested deeper than {DEPTH_MAX}")]
    Deep,
    #[error("the expression tree is not readable at byte {0}")]
    Unreadable(usize),
    #[error("node {node} has no usable field {field}")]
    Field { node: String, field: &'static str },
}

impl<'a> Node<'a> {
    /// A field's value, if the node has the field.
    pub(crate) fn get(&self, field: &str) -> Option<&Item<'a>> {
        let found = self.fields.iter().find(|(name, _)| *name == field);
        found.map(|(_, item)| item)
    }

    fn bad(&self, field: &'static str) -> TreeError {
        TreeError::Field {
            node: self.name.chars().take(40).collect(),
            field,
        }
    }

    /// A word that Rust can parse.
    pub(crate) fn parse<T: std::str::FromStr>(&self, field: &'static str) -> Result<T, TreeError> {
        match self.get(field) {
            Some(Item::Word(word)) => word.parse().map_err(|_| self.bad(field)),
            _ => Err(self.bad(field)),
        }
    }

    /// A word.
    pub(crate) fn word(&self, field: &'static str) -> Result<&'a str, TreeError> {
        match self.get(field) {
            Some(Item::Word(word)) => Ok(word),
            _ => Err(self.bad(field)),
        }
    }

    /// A child node.
    pub(crate) fn node(&self, field: &'static str) -> Result<&Node<'a>, TreeError> {
        self.optional(field)?.ok_or_else(|| self.bad(field))
    }

    /// A child node or `<>`.
    pub(crate) fn optional(&self, field: &'static str) -> Result<Option<&Node<'a>>, TreeError> {
        match self.get(field) {
            Some(Item::Node(node)) => Ok(Some(node)),
            Some(Item::Nothing) => Ok(None),
            _ => Err(self.bad(field)),
        }
    }

    /// A list of nodes; `<>` is the empty one.
    pub(crate) fn nodes(&self, field: &'static str) -> Result<Vec<&Node<'a>>, TreeError> {
        match self.get(field) {
            Some(Item::Nothing) => Ok(Vec::new()),
            Some(Item::List(items)) => items
                .iter()
                .map(|item| match item {
                    Item::Node(node) => Ok(node),
                    _ => Err(self.bad(field)),
                })
                .collect(),
            _ => Err(self.bad(field)),
        }
    }

    /// A list of OIDs: `(o 97 418)`.
    pub(crate) fn oids(&self, field: &'static str) -> Result<Vec<u32>, TreeError> {
        let Some(Item::List(items)) = self.get(field) else {
            return Err(self.bad(field));
        };
        let words = items.iter().map(|item| match item {
            Item::Word(word) => Ok(*word),
            _ => Err(self.bad(field)),
        });
        let words: Vec<&str> = words.collect::<Result<_, _>>()?;
        let Some(("o", rest)) = words.split_first().map(|(first, rest)| (*first, rest)) else {
            return Err(self.bad(field));
        };
        rest.iter()
            .map(|word| word.parse().map_err(|_| self.bad(field)))
            .collect()
    }
}

/// Reads a tree whose root is one node.
pub(crate) fn read(text: &str) -> Result<Node<'_>, TreeError> {
    if text.len() > TEXT_MAX {
        return Err(TreeError::Long);
    }
    let mut reader = Reader { text, at: 0 };
    let item = reader.item(0)?;
    reader.blanks();
    match item {
        Item::Node(node) if reader.at == text.len() => Ok(node),
        _ => Err(reader.unreadable()),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    const fn unreadable(&self) -> TreeError {
        TreeError::Unreadable(self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Up to a blank or a bracket; a backslash takes the next byte's meaning away.
    fn word(&mut self) -> Result<&'a str, TreeError> {
        self.blanks();
        let start = self.at;
        while let Some(byte) = self.peek() {
            if byte.is_ascii_whitespace() || b"(){}[]".contains(&byte) {
                break;
            }
            self.at += if byte == b'\\' { 2 } else { 1 };
        }
        match self.text.get(start..self.at) {
            Some(word) if !word.is_empty() => Ok(word),
            _ => Err(TreeError::Unreadable(start)),
        }
    }

    fn item(&mut self, depth: usize) -> Result<Item<'a>, TreeError> {
        if depth > DEPTH_MAX {
            return Err(TreeError::Deep);
        }
        if self.eat(b'{') {
            return self.node(depth).map(Item::Node);
        }
        if self.eat(b'(') {
            let mut items = Vec::new();
            while !self.eat(b')') {
                items.push(self.item(depth + 1)?);
            }
            return Ok(Item::List(items));
        }
        let word = self.word()?;
        if word == "<>" {
            return Ok(Item::Nothing);
        }
        if self.eat(b'[') {
            return self.datum(word);
        }
        Ok(Item::Word(word))
    }

    fn node(&mut self, depth: usize) -> Result<Node<'a>, TreeError> {
        let name = self.word()?;
        let mut fields = Vec::new();
        while !self.eat(b'}') {
            let start = self.at;
            let field = self.word()?.strip_prefix(':');
            let field = field.ok_or(TreeError::Unreadable(start))?;
            // A field without a value, such as an empty bitmap of some versions, has the next field behind it.
            self.blanks();
            let item = match self.peek() {
                Some(b':' | b'}') => Item::Nothing,
                _ => self.item(depth + 1)?,
            };
            fields.push((field, item));
        }
        Ok(Node { name, fields })
    }

    /// The bytes of a datum are printed as C's `char`, signed or not by the server's processor.
    fn datum(&mut self, length: &str) -> Result<Item<'a>, TreeError> {
        let mut bytes = Vec::new();
        while !self.eat(b']') {
            let start = self.at;
            let number: i16 = self
                .word()?
                .parse()
                .map_err(|_| TreeError::Unreadable(start))?;
            let byte = u8::try_from(number)
                .or_else(|_| i8::try_from(number).map(i8::cast_unsigned))
                .map_err(|_| TreeError::Unreadable(start))?;
            bytes.push(byte);
        }
        // By-value datums print their type's length and eight bytes.
        match length.parse::<usize>() {
            Ok(length) if length <= bytes.len() => Ok(Item::Datum(bytes)),
            _ => Err(self.unreadable()),
        }
    }
}

/// Attribute numbers and types of all columns that a tree names, also one that can't be read whole.
pub(crate) fn variables(text: &str) -> Vec<(i16, u32)> {
    let behind = text.split(":varattno ").skip(1);
    let number = |rest: &str| rest.split([' ', '}']).next()?.parse().ok();
    let type_oid = |rest: &str| {
        let (_, rest) = rest.split_once(":vartype ")?;
        rest.split([' ', '}']).next()?.parse().ok()
    };
    behind
        .filter_map(|rest| Some((number(rest)?, type_oid(rest)?)))
        .collect()
}
