//! Types that need more than a machine's number: how PostgreSQL prints them, how it stores them in constants, how it
//! compares and computes with them.

pub(crate) mod array;
pub(crate) mod calendar;
pub(crate) mod inet;
pub(crate) mod interval;
pub(crate) mod json;
pub(crate) mod json_datum;
pub(crate) mod numeric;
pub(crate) mod numeric_arithmetic;
pub(crate) mod text_scan;
pub(crate) mod timetz;
