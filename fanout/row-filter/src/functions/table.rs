//! The tables' form.

use super::{Function, arithmetic_table, compare_table, general_table, more_table};

/// Everything that [`super::find`] finds.
pub(crate) const TABLES: &[&[Function]] = &[
    compare_table::COMPARISONS,
    compare_table::ORDERED,
    arithmetic_table::ARITHMETIC,
    general_table::CASTS,
    general_table::TEXTS,
    general_table::ASCII_CASE,
    general_table::OTHERS,
    more_table::MORE,
    more_table::HASHES,
    more_table::JSON_CASTS,
    more_table::JSON_CASTS_OF_NULL,
];

/// `oid source(ARGS) -> RESULT = code;` for each function.
macro_rules! functions {
    ($needs:expr, $total:expr; $($oid:literal $source:ident($($arg:ident),*) -> $result:ident = $run:expr;)*) => {
        &[$(Function {
            oid: $oid,
            source: stringify!($source),
            args: &[$($arg),*],
            result: $result,
            needs: $needs,
            total: $total,
            run: $run,
        },)*]
    };
}

pub(crate) use functions;
