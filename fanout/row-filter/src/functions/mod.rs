//! PostgreSQL's immutable built-in functions that are computed here, by their OID, which is the same in every version.
//!
//! All of them are strict: the evaluator answers null for a null argument without calling them.

pub(crate) mod arithmetic;
pub(crate) mod arithmetic_table;
pub(crate) mod bytes;
pub(crate) mod cast;
pub(crate) mod compare;
pub(crate) mod compare_table;
pub(crate) mod constants;
pub(crate) mod datetime;
pub(crate) mod document;
pub(crate) mod general_table;
pub(crate) mod hash;
pub(crate) mod json_cast;
pub(crate) mod kinds;
pub(crate) mod like;
pub(crate) mod more_table;
pub(crate) mod more_text;
pub(crate) mod parts;
pub(crate) mod pattern;
pub(crate) mod rounding;
pub(crate) mod table;
pub(crate) mod text;

use bumpalo::Bump;

use crate::error::FilterError;
use crate::kind::{Base, Kind};
use crate::types::array::Array;
use crate::types::inet::Inet;
use crate::types::interval::Interval;
use crate::types::json::Json;
use crate::types::numeric::Numeric;
use crate::value::Value;

/// What a function gets: values of the kinds of its signature, none of them null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'b, 'a> {
    pub(crate) values: &'b [Value<'a>],
    /// Base of the elements of the first array argument.
    pub(crate) element: Base,
    pub(crate) arena: &'a Bump,
}

/// What a function answers.
pub(crate) type Answer<'a> = Result<Value<'a>, FilterError>;

/// A function's code.
pub(crate) type Run = for<'b, 'a> fn(Args<'b, 'a>) -> Answer<'a>;

/// What a function's result depends on besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// A collation whose order is that of bytes.
    ByteOrder,
    /// A collation whose upper and lower case are ASCII's.
    AsciiCase,
    /// A server of version 17 or older.
    Before18,
    /// A server of version 18 or newer.
    From18,
}

/// A function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) oid: u32,
    /// `pg_proc.prosrc`, to be compared with a server.
    pub(crate) source: &'static str,
    pub(crate) args: &'static [Kind],
    pub(crate) result: Kind,
    pub(crate) needs: Needs,
    /// Whether it never fails, whatever its arguments.
    pub(crate) total: bool,
    pub(crate) run: Run,
}

/// A function that is computed here, for who compares it with a server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFunction {
    /// `pg_proc.oid`.
    pub oid: u32,
    /// `pg_proc.prosrc`; `sql` for a function in SQL.
    pub source: &'static str,
    /// The arguments for which it is computed here only if they are constants.
    pub constants: &'static [usize],
}

/// Every function that is computed here, each once.
pub fn native_functions() -> impl Iterator<Item = NativeFunction> {
    all()
        .filter(|function| function.needs != Needs::Before18)
        .map(|function| NativeFunction {
            oid: function.oid,
            source: function.source,
            constants: constants::wanted(function.oid, function.source),
        })
}

fn all() -> impl Iterator<Item = &'static Function> {
    table::TABLES.iter().flat_map(|table| table.iter())
}

/// What is there for an OID: several functions if versions differ.
pub(crate) fn find(oid: u32) -> impl Iterator<Item = &'static Function> {
    all().filter(move |function| function.oid == oid)
}

macro_rules! getter {
    ($($name:ident: $variant:ident => $type:ty),* $(,)?) => {$(
        pub(crate) fn $name(&self, index: usize) -> Result<$type, FilterError> {
            match self.values.get(index) {
                Some(Value::$variant(value)) => Ok(*value),
                _ => Err(FilterError::internal()),
            }
        }
    )*};
}

impl<'a> Args<'_, 'a> {
    getter! {
        bool: Bool => bool,
        int: Int => i64,
        float8: Float8 => f64,
        bytes: Bytes => &'a [u8],
        numeric: Numeric => Numeric<'a>,
        interval: Interval => Interval,
        array: Array => Array<'a>,
        json: Json => &'a Json<'a>,
        inet: Inet => Inet,
    }

    pub(crate) fn value(&self, index: usize) -> Result<&Value<'a>, FilterError> {
        self.values.get(index).ok_or_else(FilterError::internal)
    }

    /// A float of either width.
    pub(crate) fn float(&self, index: usize) -> Result<f64, FilterError> {
        match self.values.get(index) {
            Some(Value::Float4(value)) => Ok(f64::from(*value)),
            Some(Value::Float8(value)) => Ok(*value),
            _ => Err(FilterError::internal()),
        }
    }
}
