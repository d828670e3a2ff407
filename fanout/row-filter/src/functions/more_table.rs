//! Fields of dates, rounding, text that is made anew, bits, hashes, casts of documents.
//!
//! `sql` stands for the body of a function that PostgreSQL has in SQL.

use super::json_cast::*;
use super::kinds::*;
use super::like::{like, not_like};
use super::more_text::*;
use super::parts::*;
use super::rounding::*;
use super::table::functions;
use super::{Function, Needs, bytes, hash};

pub(crate) const MORE: &[Function] = functions! {
    Needs::Nothing, false;
    1172 interval_part(TEXT, INTERVAL) -> FLOAT8 = interval_part;
    1384 sql(TEXT, DATE) -> FLOAT8 = date_part;
    1385 time_part(TEXT, TIME) -> FLOAT8 = time_part;
    2021 timestamp_part(TEXT, TIMESTAMP) -> FLOAT8 = timestamp_part;
    6199 extract_date(TEXT, DATE) -> NUMERIC = extract_date;
    6200 extract_time(TEXT, TIME) -> NUMERIC = extract_time;
    6202 extract_timestamp(TEXT, TIMESTAMP) -> NUMERIC = extract_timestamp;
    6204 extract_interval(TEXT, INTERVAL) -> NUMERIC = extract_interval;
    2020 timestamp_trunc(TEXT, TIMESTAMP) -> TIMESTAMP = truncate_timestamp;
    1703 numeric(NUMERIC, INT4) -> NUMERIC = numeric_fit;
    1707 numeric_round(NUMERIC, INT4) -> NUMERIC = numeric_round;
    1708 sql(NUMERIC) -> NUMERIC = numeric_round;
    1709 numeric_trunc(NUMERIC, INT4) -> NUMERIC = numeric_truncate;
    1710 sql(NUMERIC) -> NUMERIC = numeric_truncate;
    668 bpchar(BPCHAR, INT4, BOOL) -> BPCHAR = bpchar;
    669 varchar(TEXT, INT4, BOOL) -> TEXT = varchar;
    873 lpad(TEXT, INT4, TEXT) -> TEXT = pad_left;
    874 rpad(TEXT, INT4, TEXT) -> TEXT = pad_right;
    879 sql(TEXT, INT4) -> TEXT = pad_left;
    880 sql(TEXT, INT4) -> TEXT = pad_right;
    1254 textregexeq(TEXT, TEXT) -> BOOL = like;
    1256 textregexne(TEXT, TEXT) -> BOOL = not_like;
    1620 ascii(TEXT) -> INT4 = code_point;
    1810 sql(BYTEA) -> INT4 = bits;
    1811 sql(TEXT) -> INT4 = bits;
    1987 similar_to_escape_1(TEXT) -> TEXT = similar_pattern;
    2087 replace_text(TEXT, TEXT, TEXT) -> TEXT = replace;
    2088 split_part(TEXT, TEXT, INT4) -> TEXT = split_part;
    1673 bit_and(BIT, BIT) -> BIT = bytes::bits_and;
    1674 bit_or(BIT, BIT) -> BIT = bytes::bits_or;
    1675 bitxor(BIT, BIT) -> BIT = bytes::bits_xor;
    1676 bitnot(BIT) -> BIT = bytes::bits_not;
    1896 int2shl(INT2, INT4) -> INT2 = bytes::shift_left::<2>;
    1897 int2shr(INT2, INT4) -> INT2 = bytes::shift_right;
    1902 int4shl(INT4, INT4) -> INT4 = bytes::shift_left::<4>;
    1903 int4shr(INT4, INT4) -> INT4 = bytes::shift_right;
    1908 int8shl(INT8, INT4) -> INT8 = bytes::shift_left::<8>;
    1909 int8shr(INT8, INT4) -> INT8 = bytes::shift_right;
};

/// They never fail.
pub(crate) const HASHES: &[Function] = functions! {
    Needs::Nothing, true;
    400 hashtext(TEXT) -> INT4 = hash::bytes;
    449 hashint2(INT2) -> INT4 = hash::int;
    450 hashint4(INT4) -> INT4 = hash::int;
    453 hashoid(OID) -> INT4 = hash::int;
    455 hashname(NAME) -> INT4 = hash::bytes;
    949 hashint8(INT8) -> INT4 = hash::int8;
    1080 hashbpchar(BPCHAR) -> INT4 = hash::padded;
    2963 uuid_hash(UUID) -> INT4 = hash::bytes;
};

/// Up to version 17 JSON's null is an error.
pub(crate) const JSON_CASTS: &[Function] = functions! {
    Needs::Before18, false;
    2580 jsonb_float8(JSONB) -> FLOAT8 = to_float8::<false>;
    3449 jsonb_numeric(JSONB) -> NUMERIC = to_numeric::<false>;
    3450 jsonb_int2(JSONB) -> INT2 = to_int2::<false>;
    3451 jsonb_int4(JSONB) -> INT4 = to_int4::<false>;
    3452 jsonb_int8(JSONB) -> INT8 = to_int8::<false>;
    3453 jsonb_float4(JSONB) -> FLOAT4 = to_float4::<false>;
    3556 jsonb_bool(JSONB) -> BOOL = to_bool::<false>;
};

/// From version 18 on JSON's null becomes SQL's.
pub(crate) const JSON_CASTS_OF_NULL: &[Function] = functions! {
    Needs::From18, false;
    2580 jsonb_float8(JSONB) -> FLOAT8 = to_float8::<true>;
    3449 jsonb_numeric(JSONB) -> NUMERIC = to_numeric::<true>;
    3450 jsonb_int2(JSONB) -> INT2 = to_int2::<true>;
    3451 jsonb_int4(JSONB) -> INT4 = to_int4::<true>;
    3452 jsonb_int8(JSONB) -> INT8 = to_int8::<true>;
    3453 jsonb_float4(JSONB) -> FLOAT4 = to_float4::<true>;
    3556 jsonb_bool(JSONB) -> BOOL = to_bool::<true>;
};
