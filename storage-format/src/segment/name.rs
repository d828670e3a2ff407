//! Names of segment files: `<sequence>-<first LSN>.<extension>`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pg_proto::Lsn;

/// The folder of the segments inside a log directory.
const FOLDER: &str = "segments";
/// Of each of the two numbers in a name.
const DIGITS: usize = 16;

/// What a segment's file name says: which segment it is, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// Counts the log's segments, from 1.
    pub sequence: u64,
    /// End of all that came before.
    pub first_lsn: Lsn,
}

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentExtension {
    /// `.active`: raw blocks, being appended, or finished and not sealed yet.
    Active,
    /// `.seg`: sealed.
    Sealed,
    /// `.idx`: the index of a sealed segment.
    Index,
    /// `.tmp`: being made; never read.
    Temporary,
}

impl SegmentExtension {
    const ALL: [Self; 4] = [Self::Active, Self::Sealed, Self::Index, Self::Temporary];

    /// The extension without its dot.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Sealed => "seg",
            Self::Index => "idx",
            Self::Temporary => "tmp",
        }
    }
}

impl SegmentName {
    /// The folder of the segments of a log directory.
    #[must_use]
    pub fn folder(log: &Path) -> PathBuf {
        log.join(FOLDER)
    }

    /// The path of this segment's file of the given kind.
    #[must_use]
    pub fn path(&self, log: &Path, extension: SegmentExtension) -> PathBuf {
        Self::folder(log).join(format!("{self}.{}", extension.as_str()))
    }

    /// The name of the segment behind this one, which begins where this one ends.
    #[must_use]
    pub const fn next(&self, end_lsn: Lsn) -> Self {
        Self {
            sequence: self.sequence + 1,
            first_lsn: end_lsn,
        }
    }

    /// The segment and the kind of a file name; `None` if it is no segment file's.
    #[must_use]
    pub fn parse_file_name(file_name: &str) -> Option<(Self, SegmentExtension)> {
        let (stem, extension) = file_name.split_once('.')?;
        let extension = SegmentExtension::ALL
            .into_iter()
            .find(|known| known.as_str() == extension)?;
        Some((stem.parse().ok()?, extension))
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016X}", self.sequence, self.first_lsn.0)
    }
}

/// The text is not the name of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a segment's name: expected <16 hexadecimal digits>-<16 hexadecimal digits>")]
pub struct InvalidSegmentName;

impl FromStr for SegmentName {
    type Err = InvalidSegmentName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (sequence, first_lsn) = text.split_once('-').ok_or(InvalidSegmentName)?;
        // Only the one spelling, that of `Display`: two files can't claim to be the same segment.
        let spelled = |digits: &str, letters: std::ops::RangeInclusive<u8>| {
            let known = |byte: u8| byte.is_ascii_digit() || letters.contains(&byte);
            digits.len() == DIGITS && digits.bytes().all(known)
        };
        if !spelled(sequence, b'a'..=b'f') || !spelled(first_lsn, b'A'..=b'F') {
            return Err(InvalidSegmentName);
        }
        let number = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| InvalidSegmentName);
        Ok(Self {
            sequence: number(sequence)?,
            first_lsn: Lsn(number(first_lsn)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let name = SegmentName {
            sequence: 0x1a,
            first_lsn: Lsn(0x16_B374_D848),
        };
        assert_eq!(name.to_string(), "000000000000001a-00000016B374D848");
        assert_eq!(name.to_string().parse(), Ok(name));
        let path = name.path(Path::new("/log"), SegmentExtension::Active);
        let file_name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(
            SegmentName::parse_file_name(file_name),
            Some((name, SegmentExtension::Active))
        );
    }

    #[test]
    fn other_names_are_refused() {
        for bad in [
            "",
            "000000000000001A-00000016B374D848",
            "000000000000001a-00000016b374d848",
            "1a-16B374D848",
            "000000000000001a",
            "+00000000000001a-00000016B374D848",
        ] {
            assert!(bad.parse::<SegmentName>().is_err(), "{bad}");
        }
        assert!(SegmentName::parse_file_name("000000000000001a-00000016B374D848.txt").is_none());
        assert!(SegmentName::parse_file_name("000000000000001a-00000016B374D848").is_none());
    }
}
