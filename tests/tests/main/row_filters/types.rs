//! Types with the values that go wrong first.

/// A type and values of it, as its input function reads them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    /// As `format_type` spells it without a modifier.
    pub(super) name: &'static str,
    /// As a column is declared.
    pub(super) column: &'static str,
    pub(super) values: &'static [&'static str],
}

const fn of(name: &'static str, values: &'static [&'static str]) -> Type {
    Type {
        name,
        column: name,
        values,
    }
}

const fn declared(
    name: &'static str,
    column: &'static str,
    values: &'static [&'static str],
) -> Type {
    Type {
        name,
        column,
        values,
    }
}

pub(super) const BOOL: Type = of("boolean", &["t", "f"]);
pub(super) const INT2: Type = of("smallint", &["0", "1", "-1", "2", "7", "32767", "-32768"]);
pub(super) const INT4: Type = of(
    "integer",
    &[
        "0",
        "1",
        "-1",
        "2",
        "3",
        "-7",
        "100",
        "2147483647",
        "-2147483648",
    ],
);
pub(super) const INT8: Type = of(
    "bigint",
    &[
        "0",
        "1",
        "-1",
        "5",
        "9223372036854775807",
        "-9223372036854775808",
        "4294967296",
        "-3",
    ],
);
pub(super) const OID: Type = of("oid", &["0", "1", "4294967295", "16384"]);
pub(super) const FLOAT4: Type = of(
    "real",
    &[
        "0",
        "-0",
        "1",
        "-1.5",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e-45",
        "3.4028235e38",
        "0.1",
        "2.5",
        "16777217",
    ],
);
pub(super) const FLOAT8: Type = of(
    "double precision",
    &[
        "0",
        "-0",
        "1",
        "-1.5",
        "NaN",
        "Infinity",
        "-Infinity",
        "5e-324",
        "1.7976931348623157e308",
        "0.1",
        "2.5",
        "1e15",
        "123456789012345678",
        "2147483647.5",
        "-32768.5",
        "9223372036854775807",
        "1.234567890123456789",
    ],
);
pub(super) const NUMERIC: Type = of(
    "numeric",
    &[
        "0",
        "0.00",
        "1",
        "-1",
        "1.50",
        "NaN",
        "Infinity",
        "-Infinity",
        "10000",
        "0.0001",
        "-99999999.99999999",
        "123456789012345678901234567890.123456789",
        "9999999999999999999999999999999999999999",
        "0.00000000000000000001",
        "2147483647.5",
        "9223372036854775807.4999",
        "9223372036854775807.5",
        "1e200",
        "1e-200",
        "32767.5",
        "-0.5",
        "2.5",
        "3",
        "100000000",
        "0.3333333333333333333333",
        "7e1000",
    ],
);
pub(super) const TEXT: Type = of(
    "text",
    &[
        "",
        "a",
        "A",
        "ab",
        "abc",
        " a ",
        "ä",
        "Äpfel",
        "日本語",
        "a%b",
        "a_",
        "\\",
        "a\\",
        "%",
        "_",
        "true",
        "x''y",
        "0",
        "zz",
        "é",
        "1",
    ],
);
pub(super) const TEXT_C: Type = declared(
    "text",
    "text collate \"C\"",
    &["", "a", "B", "ab", "abc", "ä", "é", "日本", "Z", "a b"],
);
/// Beside "C" neither goes before the other.
pub(super) const TEXT_POSIX: Type = declared(
    "text",
    "text collate \"POSIX\"",
    &["", "a", "B", "abc", "ä"],
);
pub(super) const VARCHAR: Type = declared(
    "character varying",
    "varchar(8)",
    &["", "a", "ab ", "ABC", "ä€", "%b%"],
);
pub(super) const BPCHAR: Type = declared(
    "character",
    "char(4)",
    &["", "a", "ab", "ab  ", "ABCD", "ä", " b"],
);
pub(super) const BPCHAR_C: Type = declared(
    "character",
    "char(3) collate \"C\"",
    &["", "a", "b", "ab", "B"],
);
pub(super) const NAME: Type = of("name", &["", "a", "ab", "pg_class", "Ä"]);
pub(super) const CHAR: Type = of("\"char\"", &["", "a", "b", "Z", "\\377", "\\200"]);
pub(super) const BYTEA: Type = of(
    "bytea",
    &[
        "",
        "\\x00",
        "\\x0001",
        "\\xff",
        "\\x6162",
        "\\x616263",
        "\\x25",
        "\\x5c",
    ],
);
pub(super) const UUID: Type = of(
    "uuid",
    &[
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ],
);
pub(super) const BIT: Type = declared("bit", "bit(4)", &["0000", "1010", "1111", "0001"]);
pub(super) const VARBIT: Type = of(
    "bit varying",
    &["", "0", "1", "01", "0101", "010101010101", "111111111"],
);
pub(super) const DATE: Type = of(
    "date",
    &[
        "2000-01-01",
        "1999-12-31",
        "2024-02-29",
        "infinity",
        "-infinity",
        "4713-01-01 BC",
        "5874897-12-31",
        "0001-01-01",
        "0001-12-31 BC",
        "294276-12-31",
        "294277-01-01",
        "1970-01-01",
        "12345-06-07",
        "2021-01-03",
        "2020-12-31",
        "0044-03-15 BC",
        "2001-01-01",
    ],
);
pub(super) const TIME: Type = of(
    "time without time zone",
    &[
        "00:00:00",
        "24:00:00",
        "12:34:56.789",
        "23:59:59.999999",
        "00:00:00.000001",
    ],
);
pub(super) const TIMETZ: Type = of(
    "time with time zone",
    &[
        "00:00:00+00",
        "24:00:00-15:59:59",
        "12:00:00+02",
        "10:00:00+00",
        "10:00:00.5-05:30",
        "23:59:59.999999+15:59:59",
    ],
);
pub(super) const TIMESTAMP: Type = of(
    "timestamp without time zone",
    &[
        "2000-01-01 00:00:00",
        "1999-12-31 23:59:59.999999",
        "infinity",
        "-infinity",
        "4713-01-01 00:00:00 BC",
        "294276-12-31 23:59:59.999999",
        "2024-02-29 12:00:00",
        "2024-01-31 10:00:00.5",
        "0001-01-01 00:00:00 BC",
        "12345-06-07 08:09:10",
        "4714-11-24 00:00:00 BC",
        "2021-01-03 23:59:59.123456",
        "0100-12-31 00:00:00 BC",
        "1000-07-01 06:05:04.003",
    ],
);
pub(super) const TIMESTAMPTZ: Type = of(
    "timestamp with time zone",
    &[
        "2000-01-01 00:00:00+00",
        "1999-12-31 23:59:59.999999+00",
        "infinity",
        "-infinity",
        "4713-01-01 00:00:00+00 BC",
        "294276-12-31 23:59:59.999999+00",
        "2024-02-29 12:00:00+05:30",
        "2024-01-31 10:00:00-08",
    ],
);
pub(super) const INTERVAL: Type = of(
    "interval",
    &[
        "0",
        "1 day",
        "24:00:00",
        "1 mon",
        "30 days",
        "-1 mon +1 day",
        "1 year 2 mons -3 days +04:05:06.789",
        "-00:00:00.000001",
        "178000000 years",
        "-178000000 years",
        "2147483647 days",
        "2562047788:00:54.775807",
        "-1 day +23:00:00",
        "11 mons",
    ],
);
pub(super) const JSONB: Type = of(
    "jsonb",
    &[
        "null",
        "true",
        "1",
        "1.0",
        "1.00",
        "-0.5",
        "1e100",
        "\"a\"",
        "\"\"",
        "[]",
        "{}",
        "[1, 2, \"a\", null]",
        "{\"a\": 1}",
        "{\"a\": null, \"b\": [1, {\"c\": \"d\"}]}",
        "{\"a\": {\"b\": {\"c\": 1}}}",
        "[[1], [2, 3]]",
        "{\"a\": \"x\\ny\\u0001\\\"\\\\é日\"}",
        "[\"a\", \"b\"]",
        "{\"b\": 1, \"aa\": 2, \"\": 3}",
        "[1, 1, 1]",
        "{\"a\": [1, 2]}",
        "[{\"a\": 1}, {\"a\": 2}]",
        "\"b\"",
        "false",
        "{\"0\": \"zero\", \"-1\": 5}",
    ],
);
pub(super) const INT4_ARRAY: Type = of(
    "integer[]",
    &[
        "{}",
        "{1}",
        "{1,2,3}",
        "{NULL}",
        "{1,NULL,2}",
        "{{1,2},{3,4}}",
        "[0:1]={1,2}",
        "{2,1}",
        "{2147483647}",
        "[2:3][0:0]={{1},{2}}",
    ],
);
pub(super) const TEXT_ARRAY: Type = of(
    "text[]",
    &[
        "{}",
        "{a}",
        "{a,b}",
        "{NULL,a}",
        "{\"\"}",
        "{\"a,b\",\"c\\\"d\",\"\\\\\"}",
        "{\"NULL\"}",
        "{{a,b},{c,d}}",
        "{0}",
        "{b,1}",
        "{ä}",
        "{a,b,c}",
    ],
);
pub(super) const NUMERIC_ARRAY: Type = of(
    "numeric[]",
    &["{}", "{1,1.0,NaN}", "{NULL,0.5}", "{Infinity}"],
);
pub(super) const FLOAT8_ARRAY: Type = of(
    "double precision[]",
    &["{}", "{0,-0,NaN}", "{1.5,NULL}", "{Infinity,-Infinity}"],
);
pub(super) const DATE_ARRAY: Type = of(
    "date[]",
    &["{}", "{2000-01-01,infinity}", "{\"0044-03-15 BC\",NULL}"],
);
pub(super) const UUID_ARRAY: Type = of(
    "uuid[]",
    &["{}", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}"],
);
pub(super) const INT8_ARRAY: Type = of("bigint[]", &["{}", "{1,9223372036854775807}", "{NULL,-1}"]);
pub(super) const BOOL_ARRAY: Type = of("boolean[]", &["{}", "{t,f}", "{NULL}"]);
pub(super) const INET: Type = of(
    "inet",
    &[
        "0.0.0.0",
        "10.0.0.1",
        "10.0.0.0/8",
        "10.1.2.3/16",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:1.2.3.4",
        "2001:db8::/32",
        "10.0.0.1/0",
    ],
);
pub(super) const CIDR: Type = of(
    "cidr",
    &[
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "::/0",
        "2001:db8::/32",
        "192.168.0.1",
    ],
);
pub(super) const MACADDR: Type = of(
    "macaddr",
    &[
        "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff",
        "08:00:2b:01:02:03",
    ],
);
pub(super) const MACADDR8: Type = of(
    "macaddr8",
    &[
        "00:00:00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff:ff:ff",
        "08:00:2b:01:02:03:04:05",
    ],
);
pub(super) const LSN: Type = of(
    "pg_lsn",
    &["0/0", "FFFFFFFF/FFFFFFFF", "16/B374D848", "80000000/0"],
);
pub(super) const XID: Type = of("xid", &["0", "3", "4294967295"]);
pub(super) const XID8: Type = of(
    "xid8",
    &["0", "3", "18446744073709551615", "9223372036854775808"],
);
