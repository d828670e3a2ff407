//! Regular expressions that say no more than a pattern of LIKE does, and match as one: `^a`, `b$`, `^ab.*c`, `x\.y`.
//!
//! Each character that is let in stands for itself in PostgreSQL's regular expressions whatever the locale, `.` for any
//! one character, and `.*` for any number of them. All else stays with PostgreSQL.

/// Longest pattern that is looked at.
const LENGTH_MAX: usize = 1000;

/// Whether a byte stands for itself, in a regular expression and in a pattern of SIMILAR TO.
pub(super) const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || byte >= 0x80
        || matches!(byte, b' ' | b'-' | b'@' | b':' | b'/' | b',')
}

/// The pattern of LIKE that matches the same texts.
pub(super) fn as_like(pattern: &[u8]) -> Option<Vec<u8>> {
    if pattern.len() > LENGTH_MAX {
        return None;
    }
    // What SIMILAR TO is made into.
    let whole = pattern.strip_prefix(b"^(?:");
    let whole = whole.and_then(|rest| rest.strip_suffix(b")$"));
    let (from_start, rest) = match (whole, pattern.strip_prefix(b"^")) {
        (Some(inner), _) => (true, inner),
        (None, Some(rest)) => (true, rest),
        (None, None) => (false, pattern),
    };
    let mut like = Vec::with_capacity(rest.len() + 2);
    if !from_start {
        like.push(b'%');
    }
    let mut to_end = whole.is_some();
    let mut bytes = rest.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'.' if bytes.next_if_eq(&b'*').is_some() => like.push(b'%'),
            b'.' => like.push(b'_'),
            b'$' if bytes.peek().is_none() && !to_end => to_end = true,
            b'\\' => {
                let escaped = bytes.next().filter(u8::is_ascii_punctuation)?;
                like.extend([b'\\', escaped]);
            }
            b'_' => like.extend(b"\\_"),
            byte if is_plain(byte) => like.push(byte),
            _ => return None,
        }
    }
    if !to_end {
        like.push(b'%');
    }
    Some(like)
}

#[cfg(test)]
mod tests {
    use super::as_like;

    #[test]
    fn only_what_like_can_say() {
        let like =
            |pattern: &str| as_like(pattern.as_bytes()).map(|one| String::from_utf8(one).unwrap());
        for (pattern, expected) in [
            ("", "%%"),
            ("a", "%a%"),
            ("^a", "a%"),
            ("a$", "%a"),
            ("^a.*b$", "a%b"),
            ("^a.b_c", "a_b\\_c%"),
            ("x\\.y", "%x\\.y%"),
            ("^ä\\\\$", "ä\\\\"),
            ("^(?:a.*)$", "a%"),
        ] {
            assert_eq!(like(pattern).as_deref(), Some(expected), "{pattern}");
        }
        for pattern in [
            "a*",
            "a+",
            "a?",
            "[ab]",
            "(a)",
            "a|b",
            "a{2}",
            ".*?",
            ".**",
            ".+",
            "a^",
            "a$b",
            "\\d",
            "***=a",
            "(?i)a",
            "*a",
            "^*",
            "^(?:a|b)$",
            "^(?:a)b)$",
            "\\",
            "%a",
        ] {
            assert_eq!(like(pattern), None, "{pattern}");
        }
    }
}
