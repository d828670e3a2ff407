//! What publications depend on and the stream does not say: attribute numbers, collations, partitions' ancestors.

use pg_proto::Oid;
use pg_proto::read::{ReadError, Reader};

use super::codec;

/// An attribute as `pg_attribute` has it. Dropped ones are left out, so numbers have gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribute {
    /// `attnum`, which row filters name columns by. From 1.
    pub number: i16,
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_oid: Oid,
    /// `atttypmod`; -1 for none.
    pub type_modifier: i32,
    /// `attcollation`; 0 if the type has none.
    pub collation: Oid,
    /// Whether it is generated, and how.
    pub generated: Generated,
    /// Whether it is part of the replica identity, as RELATION would say.
    pub is_key: bool,
}

/// Whether a column is generated (`attgenerated`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generated {
    /// It is not.
    #[default]
    No,
    /// When a row is written.
    Stored,
    /// When a row is read (version 18).
    Virtual,
}

impl Generated {
    /// From `attgenerated`.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::No),
            b's' => Some(Self::Stored),
            b'v' => Some(Self::Virtual),
            _ => None,
        }
    }

    /// As `attgenerated`, 0 for none.
    #[must_use]
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::No => 0,
            Self::Stored => b's',
            Self::Virtual => b'v',
        }
    }
}

/// A relation as of a state of the publications: one with a column list or row filter, a partition or partitioned
/// table where a publication publishes via the root, one with stored generated columns where they are published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedRelation {
    /// The relation.
    pub oid: Oid,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Whether it is a partitioned table, of which no rows come.
    pub partitioned: bool,
    /// `relreplident`: 'd', 'n', 'f' or 'i'.
    pub replica_identity: u8,
    /// Number of its attributes, dropped and generated ones counted.
    pub attribute_count: u16,
    /// A partition's ancestors, the parent first, the root last.
    pub ancestors: Vec<Oid>,
    /// By number. `None`: its RELATION message says it all, the columns' numbers are 1, 2, 3 and so on, and none is
    /// generated.
    pub attributes: Option<Vec<Attribute>>,
}

/// A collation that row filters can depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collation {
    /// The collation; 100 is the database's default one.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// `collprovider`: 'd' (the database's), 'c' (libc), 'i' (ICU), 'b' (built in).
    pub provider: u8,
    /// Whether equal strings have equal bytes.
    pub deterministic: bool,
    /// `collcollate`, of libc.
    pub collate: Option<String>,
    /// `collctype`, of libc.
    pub ctype: Option<String>,
    /// The provider's locale, if it is not libc.
    pub locale: Option<String>,
}

/// The database's encoding and default collation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// Name of its encoding; empty: not known.
    pub encoding: String,
    /// Provider of the default collation: 'c' (libc), 'i' (ICU), 'b' (built in).
    pub provider: u8,
    /// `datcollate`.
    pub collate: String,
    /// `datctype`.
    pub ctype: String,
    /// The provider's locale, if it is not libc.
    pub locale: Option<String>,
}

/// Least sizes, which bound what a count can claim.
const ATTRIBUTE_MIN: usize = 20;
pub(super) const RELATION_MIN: usize = 20;
pub(super) const COLLATION_MIN: usize = 11;

const PARTITIONED: u8 = 1;
const HAS_ATTRIBUTES: u8 = 1 << 1;

const HAS_COLLATE: u8 = 1;
const HAS_CTYPE: u8 = 1 << 1;
const HAS_LOCALE: u8 = 1 << 2;
const DETERMINISTIC: u8 = 1 << 3;

impl Attribute {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        codec::put_str(out, &self.name);
        out.extend_from_slice(&self.type_oid.0.to_le_bytes());
        out.extend_from_slice(&self.type_modifier.to_le_bytes());
        out.extend_from_slice(&self.collation.0.to_le_bytes());
        out.push(self.generated.as_byte());
        out.push(u8::from(self.is_key));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let number = reader.u16("attribute number")?.swap_bytes();
        Ok(Self {
            number: number.cast_signed(),
            name: codec::take_str(reader, "attribute name")?,
            type_oid: Oid(codec::take_u32(reader, "attribute type")?),
            type_modifier: codec::take_u32(reader, "attribute type modifier")?.cast_signed(),
            collation: Oid(codec::take_u32(reader, "attribute collation")?),
            generated: {
                let byte = reader.u8("attribute generation")?;
                Generated::from_byte(byte)
                    .ok_or_else(|| reader.invalid("attribute generation", byte))?
            },
            is_key: match reader.u8("attribute key flag")? {
                0 => false,
                1 => true,
                other => return Err(reader.invalid("attribute key flag", other)),
            },
        })
    }
}

impl DescribedRelation {
    /// The attribute of this number.
    #[must_use]
    pub fn attribute(&self, number: i16) -> Option<&Attribute> {
        let mut attributes = self.attributes.iter().flatten();
        attributes.find(|attribute| attribute.number == number)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.oid.0.to_le_bytes());
        codec::put_str(out, &self.schema);
        codec::put_str(out, &self.name);
        let attributes = self.attributes.as_ref().map_or(0, |_| HAS_ATTRIBUTES);
        out.push(sum([(self.partitioned, PARTITIONED)]) | attributes);
        out.push(self.replica_identity);
        out.extend_from_slice(&self.attribute_count.to_le_bytes());
        codec::put_list(out, &self.ancestors, |out, oid| {
            out.extend_from_slice(&oid.0.to_le_bytes());
        });
        if let Some(attributes) = &self.attributes {
            codec::put_list(out, attributes, |out, one| one.encode(out));
        }
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let oid = Oid(codec::take_u32(reader, "described relation")?);
        let schema = codec::take_str(reader, "described relation's schema")?;
        let name = codec::take_str(reader, "described relation's name")?;
        let flags = reader.u8("described relation's flags")?;
        if flags & !(PARTITIONED | HAS_ATTRIBUTES) != 0 {
            return Err(reader.invalid("described relation's flags", flags));
        }
        Ok(Self {
            oid,
            schema,
            name,
            partitioned: flags & PARTITIONED != 0,
            replica_identity: reader.u8("described relation's replica identity")?,
            attribute_count: reader
                .u16("described relation's attribute count")?
                .swap_bytes(),
            ancestors: codec::take_list(reader, "ancestor count", 4, |reader| {
                codec::take_u32(reader, "ancestor").map(Oid)
            })?,
            attributes: (flags & HAS_ATTRIBUTES != 0)
                .then(|| {
                    codec::take_list(reader, "attribute count", ATTRIBUTE_MIN, Attribute::take)
                })
                .transpose()?,
        })
    }
}

impl Collation {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.oid.0.to_le_bytes());
        codec::put_str(out, &self.name);
        out.push(self.provider);
        let flags = [
            (self.collate.is_some(), HAS_COLLATE),
            (self.ctype.is_some(), HAS_CTYPE),
            (self.locale.is_some(), HAS_LOCALE),
            (self.deterministic, DETERMINISTIC),
        ];
        out.push(sum(flags));
        for text in [&self.collate, &self.ctype, &self.locale]
            .into_iter()
            .flatten()
        {
            codec::put_str(out, text);
        }
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let oid = Oid(codec::take_u32(reader, "collation")?);
        let name = codec::take_str(reader, "collation name")?;
        let provider = reader.u8("collation provider")?;
        let flags = reader.u8("collation flags")?;
        if flags & !(HAS_COLLATE | HAS_CTYPE | HAS_LOCALE | DETERMINISTIC) != 0 {
            return Err(reader.invalid("collation flags", flags));
        }
        let mut text = |flag| take_if(reader, flags & flag != 0, "collation locale");
        Ok(Self {
            oid,
            name,
            provider,
            deterministic: flags & DETERMINISTIC != 0,
            collate: text(HAS_COLLATE)?,
            ctype: text(HAS_CTYPE)?,
            locale: text(HAS_LOCALE)?,
        })
    }
}

impl DatabaseFacts {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_str(out, &self.encoding);
        out.push(self.provider);
        codec::put_str(out, &self.collate);
        codec::put_str(out, &self.ctype);
        out.push(sum([(self.locale.is_some(), HAS_LOCALE)]));
        if let Some(locale) = &self.locale {
            codec::put_str(out, locale);
        }
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let encoding = codec::take_str(reader, "database encoding")?;
        let provider = reader.u8("database collation provider")?;
        let collate = codec::take_str(reader, "database collation")?;
        let ctype = codec::take_str(reader, "database character classification")?;
        let flags = reader.u8("database flags")?;
        if flags & !HAS_LOCALE != 0 {
            return Err(reader.invalid("database flags", flags));
        }
        Ok(Self {
            encoding,
            provider,
            collate,
            ctype,
            locale: take_if(reader, flags & HAS_LOCALE != 0, "database locale")?,
        })
    }
}

fn sum<const N: usize>(flags: [(bool, u8); N]) -> u8 {
    let set = flags.into_iter().filter(|(set, _)| *set);
    set.fold(0, |all, (_, flag)| all | flag)
}

fn take_if(
    reader: &mut Reader<'_>,
    there: bool,
    field: &'static str,
) -> Result<Option<String>, ReadError> {
    there.then(|| codec::take_str(reader, field)).transpose()
}
