//! Lists of SQL identifiers in one string (`SplitIdentifierString`): the value of `publication_names`.

/// `NAMEDATALEN` without the terminating zero; longer names are cut, as the catalogs cut them.
const NAME_LEN_MAX: usize = 63;

/// The text is no list of identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotIdentifiers;

/// Splits a comma-separated list: unquoted names are down-cased, `"Quoted"` ones kept (`""` is a quote),
/// white space around names is ignored. An empty or blank text is an empty list.
pub(crate) fn split(text: &str) -> Result<Vec<String>, NotIdentifiers> {
    let mut names = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    if rest.is_empty() {
        return Ok(names);
    }
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => take_quoted(quoted)?,
            None => take_plain(rest)?,
        };
        names.push(cut(name));
        let after = after.trim_start_matches(is_space);
        match after.strip_prefix(',') {
            Some(next) => rest = next.trim_start_matches(is_space),
            None if after.is_empty() => return Ok(names),
            None => return Err(NotIdentifiers),
        }
    }
}

/// `scanner_isspace`.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

fn take_plain(text: &str) -> Result<(String, &str), NotIdentifiers> {
    let end = text.find(|c| c == ',' || is_space(c)).unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    if name.is_empty() {
        return Err(NotIdentifiers);
    }
    Ok((name.to_ascii_lowercase(), after))
}

/// `text` starts behind the opening quote.
fn take_quoted(text: &str) -> Result<(String, &str), NotIdentifiers> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"').ok_or(NotIdentifiers)?;
        name.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                name.push('"');
                rest = next;
            }
            None => return Ok((name, after)),
        }
    }
}

fn cut(mut name: String) -> String {
    let mut end = name.len().min(NAME_LEN_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_as_postgresql() {
        for (text, names) in [
            ("", vec![]),
            ("  ", vec![]),
            ("p", vec!["p"]),
            ("\"p_t\"", vec!["p_t"]),
            ("\"p1\",\"p2\"", vec!["p1", "p2"]),
            (" Mixed , \"Mixed\"\t", vec!["mixed", "Mixed"]),
            ("\"a\"\"b\",c", vec!["a\"b", "c"]),
            ("\"a,b\"", vec!["a,b"]),
            ("\"\"", vec![""]),
            ("a\"b", vec!["a\"b"]),
        ] {
            assert_eq!(split(text).unwrap(), names, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_list() {
        for text in [
            "a b",
            ",",
            "a,",
            ",a",
            "\"a",
            "\"a\"b",
            "a,,b",
            "\"a\" \"b\"",
        ] {
            assert_eq!(split(text), Err(NotIdentifiers), "{text}");
        }
    }

    #[test]
    fn cuts_at_a_character() {
        let name = "ä".repeat(40);
        assert_eq!(split(&name).unwrap(), ["ä".repeat(31)]);
    }
}
