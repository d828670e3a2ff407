//! Short names for the tables of functions.

use crate::kind::{Base, Kind};

macro_rules! kinds {
    ($($name:ident = $base:ident),* $(,)?) => {$(
        pub(crate) const $name: Kind = Base::$base.scalar();
    )*};
}

kinds! {
    BOOL = Bool, INT2 = Int2, INT4 = Int4, INT8 = Int8, OID = Oid, XID = Xid,
    FLOAT4 = Float4, FLOAT8 = Float8, NUMERIC = Numeric,
    TEXT = Text, BPCHAR = Bpchar, NAME = Name, CHAR = Char, BYTEA = Bytea, UUID = Uuid, BIT = Bit,
    DATE = Date, TIME = Time, TIMETZ = TimeTz, TIMESTAMP = Timestamp, TIMESTAMPTZ = TimestampTz,
    INTERVAL = Interval, JSONB = Jsonb, INET = Inet, MACADDR = Macaddr, MACADDR8 = Macaddr8,
    LSN = Lsn, XID8 = Xid8,
}

pub(crate) const ANY_ARRAY: Kind = Base::Any.array();
pub(crate) const TEXT_ARRAY: Kind = Base::Text.array();
