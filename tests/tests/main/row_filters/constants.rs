//! Constants for those functions that are computed only for some.

/// Fields of dates and times, so ordered that each type's are next to each other.
const FIELDS: [&str; 18] = [
    "'hour'::text",
    "'minute'::text",
    "'second'::text",
    "'milliseconds'::text",
    "'microseconds'::text",
    "'epoch'::text",
    "'year'::text",
    "'month'::text",
    "'day'::text",
    "'quarter'::text",
    "'week'::text",
    "'dow'::text",
    "'isodow'::text",
    "'doy'::text",
    "'isoyear'::text",
    "'decade'::text",
    "'century'::text",
    "'millennium'::text",
];
const TRUNCATED_TO: &[&str] = &[
    "'microseconds'::text",
    "'milliseconds'::text",
    "'second'::text",
    "'minute'::text",
    "'hour'::text",
    "'day'::text",
    "'week'::text",
    "'month'::text",
    "'quarter'::text",
    "'year'::text",
    "'decade'::text",
    "'century'::text",
    "'millennium'::text",
];
const DIGITS: &[&str] = &["0", "1", "2", "4", "5", "8", "20", "1000"];
/// numeric(10,2), (5), (38,10), (3,3), (1000,500).
const PRECISIONS: &[&str] = &["655366", "327684", "2490382", "196615", "65536504"];
const LENGTHS: &[&str] = &["5", "6", "7", "12"];
const BOOLS: &[&str] = &["true", "false"];
const WIDTHS: &[&str] = &["0", "(-1)", "1", "3", "10"];
const EXPRESSIONS: &[&str] = &[
    "''::text",
    "'^'::text",
    "'$'::text",
    "'^$'::text",
    "'.'::text",
    "'a'::text",
    "'^a'::text",
    "'b$'::text",
    "'^a.*c$'::text",
    "'^.b'::text",
    "'a_'::text",
    "'\\\\'::text",
    "'a\\%'::text",
    "'^..$'::text",
    "'語$'::text",
    "'^(?:a.*)$'::text",
];
const SIMILAR: &[&str] = &["''::text", "'a%'::text", "'_b%'::text", "'日% -@:/,'::text"];
const REPLACED: &[&str] = &[
    "''::text",
    "'a'::text",
    "'ab'::text",
    "'ä'::text",
    "' '::text",
];
const REPLACEMENTS: &[&str] = &["''::text", "'a'::text", "'xyz'::text", "'日本'::text"];

/// SQL for an argument of a function.
pub(super) fn constants(oid: u32, at: usize) -> &'static [&'static str] {
    match (oid, at) {
        (1172 | 6204, 0) => &FIELDS[..9],
        (1384 | 2021 | 6202, 0) => &FIELDS,
        (1385 | 6200, 0) => &FIELDS[..6],
        (6199, 0) => &FIELDS[5..],
        (2020, 0) => TRUNCATED_TO,
        (1703, 1) => PRECISIONS,
        (1707 | 1709, 1) => DIGITS,
        (668 | 669, 1) => LENGTHS,
        (668 | 669, 2) => BOOLS,
        (873 | 874 | 879 | 880, 1) => WIDTHS,
        (1254 | 1256, 1) => EXPRESSIONS,
        (1987, 0) => SIMILAR,
        (2087, 1) => REPLACED,
        (2087, 2) => REPLACEMENTS,
        (1896 | 1897, 1) => &["0", "1", "15"],
        (1902 | 1903, 1) => &["0", "1", "15", "31"],
        (1908 | 1909, 1) => &["0", "1", "33", "63"],
        _ => panic!("function {oid} has no constants for argument {at}"),
    }
}
