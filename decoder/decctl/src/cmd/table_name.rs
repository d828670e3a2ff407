//! `schema.table` on the command line.

use crate::error::Error;

/// Splits `schema.table` at its first dot outside double quotes; a quoted part keeps its case and may hold dots, an
/// unquoted one is down-cased, as in SQL.
pub(crate) fn parse(text: &str) -> Result<(String, String), Error> {
    let invalid = || Error::TableName(text.to_owned());
    let (schema, rest) = part(text).ok_or_else(invalid)?;
    let rest = rest.strip_prefix('.').ok_or_else(invalid)?;
    match part(rest) {
        Some((name, "")) => Ok((schema, name)),
        _ => Err(invalid()),
    }
}

fn part(text: &str) -> Option<(String, &str)> {
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => {
            let mut name = String::new();
            let mut chars = quoted.char_indices().peekable();
            loop {
                let (_, character) = chars.next()?;
                if character != '"' {
                    name.push(character);
                } else if chars.next_if(|(_, next)| *next == '"').is_some() {
                    name.push('"');
                } else {
                    let end = chars.peek().map_or(quoted.len(), |(at, _)| *at);
                    break (name, quoted.get(end..)?);
                }
            }
        }
        None => {
            let end = text.find('.').unwrap_or(text.len());
            let (name, rest) = text.split_at_checked(end)?;
            (name.to_lowercase(), rest)
        }
    };
    (!name.is_empty()).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_is_that_of_sql() {
        let parsed = |text: &str| parse(text).map(|(schema, name)| format!("{schema}|{name}"));
        assert_eq!(parsed("public.T").unwrap(), "public|t");
        assert_eq!(parsed("\"A.b\".\"c\"\"d\"").unwrap(), "A.b|c\"d");
        for bad in ["t", ".t", "s.", "s.t.u", "\"s.t", "\"\".t", ""] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
