//! Casts from jsonb to numbers and truth values.

use super::{Answer, Args, cast};
use crate::error::FilterError;
use crate::types::json::Json;
use crate::value::Value;

fn refused(json: &Json<'_>, to: &str) -> FilterError {
    let from = match json {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "numeric",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    FilterError {
        sqlstate: "22023".into(),
        message: format!("cannot cast jsonb {from} to type {to}").into(),
    }
}

/// Casts a number as `cast` does; JSON's null becomes SQL's if `null`.
fn number<'a, const NULL: bool>(
    args: Args<'_, 'a>,
    to: &str,
    cast: fn(Args<'_, 'a>) -> Answer<'a>,
) -> Answer<'a> {
    match args.json(0)? {
        Json::Null if NULL => Ok(Value::Null),
        Json::Number(number) => cast(Args {
            values: &[Value::Numeric(*number)],
            ..args
        }),
        other => Err(refused(other, to)),
    }
}

macro_rules! casts {
    ($($name:ident to $kind:literal by $cast:path;)*) => {$(
        pub(crate) fn $name<'a, const NULL: bool>(args: Args<'_, 'a>) -> Answer<'a> {
            number::<NULL>(args, $kind, $cast)
        }
    )*};
}

casts! {
    to_numeric to "numeric" by super::arithmetic::same;
    to_int2 to "smallint" by cast::numeric_to_int::<2>;
    to_int4 to "integer" by cast::numeric_to_int::<4>;
    to_int8 to "bigint" by cast::numeric_to_int::<8>;
    to_float4 to "real" by cast::numeric_to_float4;
    to_float8 to "double precision" by cast::numeric_to_float8;
}

pub(crate) fn to_bool<'a, const NULL: bool>(args: Args<'_, 'a>) -> Answer<'a> {
    match args.json(0)? {
        Json::Null if NULL => Ok(Value::Null),
        Json::Bool(value) => Ok(Value::Bool(*value)),
        other => Err(refused(other, "boolean")),
    }
}
