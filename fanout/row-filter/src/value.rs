//! Values while a filter is evaluated. They borrow from the row, the program or the arena.

use bumpalo::Bump;

use crate::types::array::Array;
use crate::types::inet::Inet;
use crate::types::interval::Interval;
use crate::types::json::{Json, OwnedJson};
use crate::types::numeric::{Numeric, OwnedNumeric};
use crate::types::timetz::TimeTz;

/// A value. Its variant follows from the kind that the compiler knows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    /// int2, int4, int8, oid, xid; date in days, time, timestamp and timestamptz in microseconds since 2000-01-01;
    /// "char" as its byte; macaddr; pg_lsn and xid8 with the sign bit turned over, so that order is kept.
    Int(i64),
    Float4(f32),
    Float8(f64),
    /// text, varchar, bpchar with its blanks, name, bytea (not hex), uuid (16 bytes), bit strings as '0' and '1'.
    Bytes(&'a [u8]),
    Numeric(Numeric<'a>),
    TimeTz(TimeTz),
    Interval(Interval),
    Array(Array<'a>),
    Json(&'a Json<'a>),
    Inet(Inet),
}

impl Value<'_> {
    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// A constant of a program.
#[derive(Clone, Debug)]
pub(crate) enum OwnedValue {
    Null,
    Bool(bool),
    Int(i64),
    Float4(f32),
    Float8(f64),
    Bytes(Box<[u8]>),
    Numeric(OwnedNumeric),
    TimeTz(TimeTz),
    Interval(Interval),
    Array {
        dimensions: Box<[(i32, i32)]>,
        elements: Box<[OwnedValue]>,
    },
    Json(Box<OwnedJson>),
    Inet(Inet),
}

impl OwnedValue {
    /// The value; an array or a document is spread out in the arena.
    pub(crate) fn get<'a>(&'a self, arena: &'a Bump) -> Value<'a> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Float4(value) => Value::Float4(*value),
            Self::Float8(value) => Value::Float8(*value),
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Numeric(number) => Value::Numeric(number.get()),
            Self::TimeTz(value) => Value::TimeTz(*value),
            Self::Interval(value) => Value::Interval(*value),
            Self::Array {
                dimensions,
                elements,
            } => Value::Array(Array {
                dimensions,
                elements: arena
                    .alloc_slice_fill_iter(elements.iter().map(|element| element.get(arena))),
            }),
            Self::Json(json) => Value::Json(arena.alloc(json.get(arena))),
            Self::Inet(value) => Value::Inet(*value),
        }
    }

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Int(value) => Self::Int(value),
            Value::Float4(value) => Self::Float4(value),
            Value::Float8(value) => Self::Float8(value),
            Value::Bytes(bytes) => Self::Bytes(bytes.into()),
            Value::Numeric(number) => Self::Numeric(number.into()),
            Value::TimeTz(value) => Self::TimeTz(value),
            Value::Interval(value) => Self::Interval(value),
            Value::Array(array) => Self::Array {
                dimensions: array.dimensions.into(),
                elements: array.elements.iter().map(|one| Self::from(*one)).collect(),
            },
            Value::Json(json) => Self::Json(Box::new(json.into())),
            Value::Inet(value) => Self::Inet(value),
        }
    }
}
