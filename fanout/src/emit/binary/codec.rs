//! Which types can be converted, and how.

use pg_proto::Oid;

use super::{array, interval, numeric, scalar, time};

/// The send function of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    /// Not known here: text stays.
    Text,
    /// What comes as one value.
    Scalar(Scalar),
    /// An array of such.
    Array {
        /// The elements' type.
        element: Oid,
        /// How they are sent.
        scalar: Scalar,
    },
}

/// The send function of a type that is no array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    /// Its bytes are its text.
    Same,
    Bool,
    Char,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    Bytea,
    Uuid,
    Jsonb,
    PgLsn,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
}

/// Name, OID, OID of the array (`pg_type.dat`).
const TYPES: &[(&str, u32, u32, Scalar)] = &[
    ("bool", 16, 1000, Scalar::Bool),
    ("bytea", 17, 1001, Scalar::Bytea),
    ("char", 18, 1002, Scalar::Char),
    ("name", 19, 1003, Scalar::Same),
    ("int8", 20, 1016, Scalar::Int8),
    ("int2", 21, 1005, Scalar::Int2),
    ("int4", 23, 1007, Scalar::Int4),
    ("text", 25, 1009, Scalar::Same),
    ("oid", 26, 1028, Scalar::Oid),
    ("json", 114, 199, Scalar::Same),
    ("float4", 700, 1021, Scalar::Float4),
    ("float8", 701, 1022, Scalar::Float8),
    ("bpchar", 1042, 1014, Scalar::Same),
    ("varchar", 1043, 1015, Scalar::Same),
    ("date", 1082, 1182, Scalar::Date),
    ("time", 1083, 1183, Scalar::Time),
    ("timestamp", 1114, 1115, Scalar::Timestamp),
    ("timestamptz", 1184, 1185, Scalar::TimestampTz),
    ("interval", 1186, 1187, Scalar::Interval),
    ("timetz", 1266, 1270, Scalar::TimeTz),
    ("numeric", 1700, 1231, Scalar::Numeric),
    ("uuid", 2950, 2951, Scalar::Uuid),
    ("pg_lsn", 3220, 3221, Scalar::PgLsn),
    ("jsonb", 3802, 3807, Scalar::Jsonb),
];

impl Codec {
    /// That of a type.
    pub(super) fn of(type_oid: Oid) -> Self {
        let find = |(_, oid, array, scalar): &(_, u32, u32, Scalar)| {
            if *oid == type_oid.0 {
                Some(Self::Scalar(*scalar))
            } else if *array == type_oid.0 {
                Some(Self::Array {
                    element: Oid(*oid),
                    scalar: *scalar,
                })
            } else {
                None
            }
        };
        TYPES.iter().find_map(find).unwrap_or(Self::Text)
    }

    /// That of a built-in type, by its name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let (element, is_array) = match name.split_first() {
            Some((b'_', element)) => (element, true),
            _ => (name, false),
        };
        let known = TYPES.iter().find(|known| known.0.as_bytes() == element)?;
        Some(Self::of(Oid(if is_array { known.2 } else { known.1 })))
    }

    /// Appends what the send function makes of a value with this text; `None` if that can't be told, and then what was
    /// appended is worth nothing.
    pub(super) fn encode(self, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Text => None,
            Self::Scalar(scalar) => scalar.encode(text, out),
            Self::Array { element, scalar } => array::encode(element, scalar, text, out),
        }
    }
}

impl Scalar {
    /// As [`Codec::encode`].
    pub(super) fn encode(self, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Same => out.extend_from_slice(text),
            Self::Jsonb => {
                // Its format's version.
                out.push(1);
                out.extend_from_slice(text);
            }
            Self::Bool => out.push(scalar::bool(text)?),
            Self::Char => out.push(scalar::char(text)?),
            Self::Int2 => out.extend_from_slice(&scalar::number::<i16>(text)?.to_be_bytes()),
            Self::Int4 => out.extend_from_slice(&scalar::number::<i32>(text)?.to_be_bytes()),
            Self::Int8 => out.extend_from_slice(&scalar::number::<i64>(text)?.to_be_bytes()),
            Self::Oid => out.extend_from_slice(&scalar::number::<u32>(text)?.to_be_bytes()),
            Self::Float4 => out.extend_from_slice(&scalar::float4(text)?.to_be_bytes()),
            Self::Float8 => out.extend_from_slice(&scalar::float8(text)?.to_be_bytes()),
            Self::PgLsn => out.extend_from_slice(&scalar::lsn(text)?.to_be_bytes()),
            Self::Bytea => scalar::bytea(text, out)?,
            Self::Uuid => scalar::uuid(text, out)?,
            Self::Numeric => numeric::encode(text, out)?,
            Self::Date => out.extend_from_slice(&time::date(text)?.to_be_bytes()),
            Self::Time => out.extend_from_slice(&time::time(text)?.to_be_bytes()),
            Self::TimeTz => time::time_tz(text, out)?,
            Self::Timestamp => out.extend_from_slice(&time::timestamp(text)?.to_be_bytes()),
            Self::TimestampTz => out.extend_from_slice(&time::timestamp_tz(text)?.to_be_bytes()),
            Self::Interval => interval::encode(text, out)?,
        }
        Some(())
    }
}
