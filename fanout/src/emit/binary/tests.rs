//! Values and what their send functions make of them, as a server shows it; the integration tests compare with servers.

use proptest::prelude::*;

use super::codec::Codec;

fn binary(name: &str, text: &str) -> Option<String> {
    let mut out = Vec::new();
    let codec = Codec::named(name.as_bytes()).unwrap();
    codec.encode(text.as_bytes(), &mut out)?;
    Some(out.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[track_caller]
fn check(name: &str, text: &str, expected: &str) {
    assert_eq!(
        binary(name, text).as_deref(),
        Some(expected),
        "{name} {text}"
    );
}

#[test]
fn scalars() {
    check("bool", "t", "01");
    check("int2", "-2", "fffe");
    check("int8", "9223372036854775807", "7fffffffffffffff");
    check("oid", "4294967295", "ffffffff");
    check("float4", "-0", "80000000");
    check("float8", "NaN", "7ff8000000000000");
    check("float8", "1e-07", "3e7ad7f29abcaf48");
    check("text", "", "");
    check("jsonb", "{}", "017b7d");
    check("bytea", "\\x00ff", "00ff");
    check("pg_lsn", "16/B374D848", "00000016b374d848");
    check(
        "uuid",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
    );
}

#[test]
fn numerics() {
    check("numeric", "0", "0000000000000000");
    check("numeric", "0.00", "0000000000000002");
    check("numeric", "1", "00010000000000000001");
    check("numeric", "-12345.678", "0003000140000003000109291a7c");
    check("numeric", "10000", "00010001000000000001");
    check("numeric", "0.0001", "0001ffff000000040001");
    check("numeric", "NaN", "00000000c0000000");
    check("numeric", "Infinity", "00000000d0000020");
    check("numeric", "-Infinity", "00000000f0000020");
}

#[test]
fn times() {
    check("date", "2000-01-01", "00000000");
    check("date", "1999-12-31", "ffffffff");
    check("date", "0001-01-01 BC", "fff4da8b");
    check("date", "infinity", "7fffffff");
    check("time", "24:00:00", "000000141dd76000");
    check("timetz", "00:00:01.5+02", "000000000016e360ffffe3e0");
    check(
        "timestamp",
        "2000-01-01 00:00:00.000001",
        "0000000000000001",
    );
    check("timestamptz", "2000-01-01 00:00:00+00", "0000000000000000");
    check("interval", "00:00:00", "00000000000000000000000000000000");
    check(
        "interval",
        "-1 years -2 mons +3 days -04:05:06.789",
        "fffffffc9368357800000003fffffff2",
    );
}

#[test]
fn arrays() {
    check("_int4", "{}", "000000000000000000000017");
    check(
        "_int4",
        "{1,NULL}",
        "000000010000000100000017000000020000000100000004\
         00000001ffffffff",
    );
    check(
        "_int4",
        "[0:1]={1,2}",
        "000000010000000000000017000000020000000000000004000000010000000400000002",
    );
    check(
        "_text",
        "{{\"a,\\\"\\\\\"},{\"NULL\"}}",
        "000000020000000000000019000000020000000100000001000000010000000461\
         2c225c000000044e554c4c",
    );
}

#[test]
fn what_is_not_understood_stays_text() {
    for (name, text) in [
        ("bool", "true"),
        ("int4", "2147483648"),
        ("numeric", "1."),
        ("numeric", "1e5"),
        ("date", "2000-13-01"),
        ("timestamp", "2000-01-01"),
        ("interval", "1 fortnight"),
        ("uuid", "a0eebc99"),
        ("_int4", "{1,{2}}"),
        ("_int4", "{{1},{2,3}}"),
        ("_int4", "{1"),
    ] {
        assert_eq!(binary(name, text), None, "{name} {text}");
    }
}

proptest! {
    #[test]
    fn no_text_is_too_odd(text in ".{0,40}", type_oid in 0_u32..4000) {
        let mut out = Vec::new();
        let _ = Codec::of(pg_proto::Oid(type_oid)).encode(text.as_bytes(), &mut out);
    }

    #[test]
    fn lists_of_braces_end(text in "[{},\"\\\\a0:=\\[\\]]{0,40}") {
        let mut out = Vec::new();
        let _ = Codec::named(b"_text").unwrap().encode(text.as_bytes(), &mut out);
    }
}
