//! Types, as far as they are evaluated here.

/// A type that values are computed in. Types that behave alike for every operator share a kind only if PostgreSQL
/// treats them as binary coercible (text and varchar).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Base {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Xid,
    Float4,
    Float8,
    Numeric,
    /// text and varchar
    Text,
    Bpchar,
    Name,
    /// "char"
    Char,
    Bytea,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Jsonb,
    Inet,
    Macaddr,
    Macaddr8,
    /// bit and varbit
    Bit,
    Lsn,
    Xid8,
    /// In signatures only: any element type.
    Any,
}

/// A scalar or an array of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) base: Base,
    pub(crate) array: bool,
}

impl Base {
    pub(crate) const fn scalar(self) -> Kind {
        Kind {
            base: self,
            array: false,
        }
    }

    pub(crate) const fn array(self) -> Kind {
        Kind {
            base: self,
            array: true,
        }
    }
}

/// Type, array of it, kind. OIDs of `pg_type.dat`, the same in every version.
const TYPES: [(u32, u32, Base); 31] = [
    (16, 1000, Base::Bool),
    (17, 1001, Base::Bytea),
    (18, 1002, Base::Char),
    (19, 1003, Base::Name),
    (20, 1016, Base::Int8),
    (21, 1005, Base::Int2),
    (23, 1007, Base::Int4),
    (25, 1009, Base::Text),
    (26, 1028, Base::Oid),
    (28, 1011, Base::Xid),
    (650, 651, Base::Inet),
    (700, 1021, Base::Float4),
    (701, 1022, Base::Float8),
    (774, 775, Base::Macaddr8),
    (829, 1040, Base::Macaddr),
    (869, 1041, Base::Inet),
    (1042, 1014, Base::Bpchar),
    (1043, 1015, Base::Text),
    (1082, 1182, Base::Date),
    (1083, 1183, Base::Time),
    (1114, 1115, Base::Timestamp),
    (1184, 1185, Base::TimestampTz),
    (1186, 1187, Base::Interval),
    (1266, 1270, Base::TimeTz),
    (1560, 1561, Base::Bit),
    (1562, 1563, Base::Bit),
    (1700, 1231, Base::Numeric),
    (2950, 2951, Base::Uuid),
    (3220, 3221, Base::Lsn),
    (3802, 3807, Base::Jsonb),
    (5069, 271, Base::Xid8),
];

impl Kind {
    /// The kind of a type, if it is one that is evaluated here.
    pub(crate) fn of(type_oid: u32) -> Option<Self> {
        TYPES
            .iter()
            .find_map(|&(scalar, array, base)| match type_oid {
                oid if oid == scalar => Some(base.scalar()),
                oid if oid == array => Some(base.array()),
                _ => None,
            })
    }

    /// Whether a value of this kind is what a signature asks for.
    pub(crate) fn fits(self, wanted: Self) -> bool {
        self == wanted || (wanted.base == Base::Any && self.array == wanted.array)
    }
}
