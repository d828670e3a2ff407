//! Names and strings inside the text of a statement.

/// A name as a quoted identifier.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a string constant, whatever `standard_conforming_strings` is (`quote_literal` in `quote.c`).
#[must_use]
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        // The blank keeps it apart from a word before it.
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_strings_are_quoted() {
        assert_eq!(literal("a'b"), "'a''b'");
        assert_eq!(literal("a\\'b"), " E'a\\\\''b'");
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
    }
}
