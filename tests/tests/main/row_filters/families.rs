//! Types that are mixed in expressions.

use super::types::{
    BIT, BOOL, BOOL_ARRAY, BPCHAR, BPCHAR_C, BYTEA, CHAR, CIDR, DATE, DATE_ARRAY, FLOAT4, FLOAT8,
    FLOAT8_ARRAY, INET, INT2, INT4, INT4_ARRAY, INT8, INT8_ARRAY, INTERVAL, JSONB, LSN, MACADDR,
    MACADDR8, NAME, NUMERIC, NUMERIC_ARRAY, OID, TEXT, TEXT_ARRAY, TEXT_C, TEXT_POSIX, TIME,
    TIMESTAMP, TIMESTAMPTZ, TIMETZ, Type, UUID, UUID_ARRAY, VARBIT, VARCHAR, XID, XID8,
};

/// Types that occur together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) types: &'static [Type],
}

/// All families.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "integers",
        types: &[BOOL, INT2, INT4, INT8, OID],
    },
    Family {
        name: "floats",
        types: &[BOOL, INT4, INT8, FLOAT4, FLOAT8],
    },
    Family {
        name: "numeric",
        types: &[BOOL, INT2, INT4, INT8, NUMERIC, FLOAT8, FLOAT4],
    },
    Family {
        name: "text",
        types: &[BOOL, INT4, TEXT, TEXT_C, TEXT_POSIX, VARCHAR, NAME, CHAR],
    },
    Family {
        name: "character",
        types: &[BOOL, INT4, BPCHAR, BPCHAR_C, TEXT_C],
    },
    Family {
        name: "bytes",
        types: &[BOOL, INT4, BYTEA, UUID, BIT, VARBIT],
    },
    Family {
        name: "dates",
        types: &[BOOL, INT4, DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL],
    },
    Family {
        name: "times",
        types: &[BOOL, TIME, TIMETZ, INTERVAL, TIMESTAMP],
    },
    Family {
        name: "jsonb",
        types: &[BOOL, INT4, JSONB, TEXT, TEXT_ARRAY],
    },
    Family {
        name: "fields of dates",
        types: &[BOOL, DATE, TIMESTAMP, TIME, INTERVAL, NUMERIC, FLOAT8],
    },
    Family {
        name: "documents as numbers",
        types: &[BOOL, JSONB, NUMERIC, INT2, INT4, INT8, FLOAT4, FLOAT8],
    },
    Family {
        name: "arrays",
        types: &[
            BOOL,
            INT4,
            TEXT,
            INT4_ARRAY,
            TEXT_ARRAY,
            NUMERIC_ARRAY,
            NUMERIC,
        ],
    },
    Family {
        name: "more arrays",
        types: &[
            BOOL,
            FLOAT8,
            FLOAT8_ARRAY,
            DATE,
            DATE_ARRAY,
            UUID,
            UUID_ARRAY,
            INT8,
            INT8_ARRAY,
            BOOL_ARRAY,
        ],
    },
    Family {
        name: "networks",
        types: &[BOOL, INT4, INET, CIDR, MACADDR, MACADDR8],
    },
    Family {
        name: "system",
        types: &[BOOL, LSN, XID, XID8, OID, INT4, INT8],
    },
];
