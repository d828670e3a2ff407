//! What a filter is compiled from.

/// A filter with everything that it depends on, as of its place in the log.
#[derive(Clone, Copy, Debug)]
pub struct FilterSource<'a> {
    /// `pg_publication_rel.prqual::text`.
    pub tree: &'a str,
    /// Columns of the relation that the filter belongs to.
    pub columns: &'a [FilterColumn<'a>],
    /// About the source's database.
    pub environment: Environment,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterColumn<'a> {
    /// `pg_attribute.attnum`.
    pub attribute: i16,
    /// `pg_attribute.attname`, for messages.
    pub name: &'a str,
    /// `pg_attribute.atttypid`.
    pub type_oid: u32,
    /// `pg_attribute.attcollation`, 0 for none. Evaluation by PostgreSQL needs it; a tree says itself what counts.
    pub collation: u32,
}

/// What filters depend on besides their relation. The default is always right; what is known better lets more filters
/// be evaluated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Environment {
    /// Whether the database's encoding (`server_encoding`) is UTF8.
    pub utf8: bool,
    /// The database's default collation.
    pub default_collation: DefaultCollation,
    /// The server's major version, if it is known: some functions are not in all versions the same.
    pub major: Option<u32>,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            utf8: true,
            default_collation: DefaultCollation::Unknown,
            major: None,
        }
    }
}

/// How a database without `COLLATE` compares text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DefaultCollation {
    /// By a language's rules, or not known.
    #[default]
    Unknown,
    /// By bytes, but upper and lower case are Unicode's: `C.UTF-8` and `PG_UNICODE_FAST` of the provider `builtin`.
    CodePoint,
    /// By bytes, upper and lower case are ASCII's: `C` and `POSIX`.
    C,
}

impl DefaultCollation {
    /// From `pg_database`: `datlocprovider`, `datcollate`, `datctype`, and `datlocale` (17 and later).
    #[must_use]
    pub fn of(provider: char, collate: &str, ctype: &str, locale: &str) -> Self {
        let plain = |name: &str| matches!(name, "C" | "POSIX");
        match provider {
            'c' if plain(collate) && plain(ctype) => Self::C,
            'c' if plain(collate) => Self::CodePoint,
            'b' if locale == "C" => Self::C,
            'b' if matches!(locale, "C.UTF-8" | "PG_UNICODE_FAST") => Self::CodePoint,
            _ => Self::Unknown,
        }
    }
}

/// Collations of `pg_collation.dat` with fixed OIDs, that compare by bytes.
const C: u32 = 950;
const POSIX: u32 = 951;
const PG_C_UTF8: u32 = 811;
const UCS_BASIC: u32 = 962;
const PG_UNICODE_FAST: u32 = 6411;
const DEFAULT: u32 = 100;

impl Environment {
    /// Whether a collation's order is that of the bytes.
    pub(crate) fn by_bytes(&self, collation: u32) -> bool {
        match collation {
            C | POSIX | PG_C_UTF8 | UCS_BASIC | PG_UNICODE_FAST => true,
            DEFAULT => self.default_collation != DefaultCollation::Unknown,
            _ => false,
        }
    }

    /// Whether upper and lower case are ASCII's.
    pub(crate) fn ascii_case(&self, collation: u32) -> bool {
        match collation {
            C | POSIX => true,
            DEFAULT => self.default_collation == DefaultCollation::C,
            _ => false,
        }
    }
}
