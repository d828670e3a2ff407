//! The file of [`OwnVersions`]: written anew under another name and renamed, so that a reader finds the one or the other
//! whole.

use std::io::{self, IoSlice};
use std::path::Path;

use super::OwnVersions;
use super::versions::{BYTES_MAX, VERSIONS_MAX};
use crate::checksum::crc32;
use crate::codec::{Fields, stored_u32};
use crate::error::{Damage, FormatError};
use crate::failpoint::hit;
use crate::fs::{Fs, read_full_at, remove_if_there, write_all_at};

/// The file's name in the log directory.
pub const OWN_VERSIONS_FILE: &str = "publications";

const TEMPORARY: &str = "publications.tmp";
const MAGIC: [u8; 8] = *b"DECANTPV";
const VERSION: u16 = 1;
const HEADER_LEN: usize = 64;
const CRC_OFFSET: usize = HEADER_LEN - 4;
const RESERVED_LEN: usize = 24;

/// The versions in a log directory; none if there is no file.
pub fn read_own_versions(fs: &dyn Fs, log: &Path) -> Result<OwnVersions, FormatError> {
    let path = log.join(OWN_VERSIONS_FILE);
    let file = match fs.open_to_read(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(OwnVersions::default()),
        Err(error) => return Err(FormatError::io("open", &path)(error)),
    };
    let length = file.length().map_err(FormatError::io("measure", &path))?;
    let most = HEADER_LEN + BYTES_MAX;
    let Some(length) = usize::try_from(length).ok().filter(|one| *one <= most) else {
        let damage = Damage::mismatch("length", format_args!("at most {most}"), length);
        return Err(damage.at(&path, 0));
    };
    let mut bytes = vec![0; length];
    let read = read_full_at(&*file, &mut bytes, 0).map_err(FormatError::io("read", &path))?;
    bytes.truncate(read);
    decode(&bytes).map_err(|damage| damage.at(&path, 0))
}

/// Replaces the versions in a log directory; durable when this returns.
pub fn write_own_versions(
    fs: &dyn Fs,
    log: &Path,
    versions: &OwnVersions,
) -> Result<(), FormatError> {
    let (path, temporary) = (log.join(OWN_VERSIONS_FILE), log.join(TEMPORARY));
    let bytes = encode(versions)?;
    remove_if_there(fs, &temporary)?;
    let file = fs
        .create_new(&temporary)
        .map_err(FormatError::io("create", &temporary))?;
    write_all_at(&*file, &mut [IoSlice::new(&bytes)], 0)
        .map_err(FormatError::io("write", &temporary))?;
    file.sync_all().map_err(FormatError::sync(&temporary))?;
    hit("publications.written");
    fs.rename(&temporary, &path)
        .map_err(FormatError::io("rename", &temporary))?;
    hit("publications.renamed");
    fs.sync_dir(log).map_err(FormatError::sync(log))
}

fn encode(versions: &OwnVersions) -> Result<Vec<u8>, FormatError> {
    let mut body = Vec::new();
    versions.encode(&mut body);
    if body.len() > BYTES_MAX || versions.versions.len() > VERSIONS_MAX {
        return Err(FormatError::Unstorable {
            what: "a version of a publication",
            problem: format!(
                "there would be more than {VERSIONS_MAX} versions of Decant's own publications, or more than {BYTES_MAX} bytes: \
                 retention must let go of old segments first"
            ),
        });
    }
    let mut out = Vec::with_capacity(HEADER_LEN + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&stored_u32(versions.versions.len()).to_le_bytes());
    out.extend_from_slice(&versions.number.to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc32(&[&body]).to_le_bytes());
    out.extend_from_slice(&[0; RESERVED_LEN]);
    let crc = crc32(&[&out]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.append(&mut body);
    Ok(out)
}

fn decode(bytes: &[u8]) -> Result<OwnVersions, Damage> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Err(Damage::TooShort {
            what: "the header",
            need: HEADER_LEN as u64,
            have: bytes.len() as u64,
        });
    };
    let (covered, crc) = header.split_at(CRC_OFFSET);
    let mut fields = Fields::new(covered);
    expect(
        "magic",
        format!("{MAGIC:02x?}"),
        format!("{:02x?}", fields.array::<8>()),
    )?;
    expect("version", VERSION, fields.u16())?;
    expect("header checksum", crc32(&[covered]), Fields::new(crc).u32())?;
    let _reserved = fields.u16();
    let count = fields.u32();
    let number = fields.u64();
    expect("length of the versions", fields.u64(), body.len() as u64)?;
    expect("checksum of the versions", fields.u32(), crc32(&[body]))?;
    OwnVersions::decode(number, count, body).map_err(|error| Damage::Content(error.to_string()))
}

fn expect<T: PartialEq + ToString>(
    field: &'static str,
    expected: T,
    found: T,
) -> Result<(), Damage> {
    if expected == found {
        return Ok(());
    }
    Err(Damage::mismatch(field, expected, found))
}

#[cfg(test)]
mod tests {
    use pg_proto::Lsn;

    use super::*;
    use crate::catalog::{OwnVersion, Publication, PublicationState};
    use crate::fs::RealFs;

    fn versions() -> OwnVersions {
        let mut versions = OwnVersions::default();
        for (name, from, definition) in [
            ("p", 10, Some("FOR TABLE t")),
            ("p", 20, None),
            ("q", 5, Some("FOR ALL TABLES")),
        ] {
            let publication = Publication {
                name: name.to_owned(),
                ..Publication::default()
            };
            versions.put(OwnVersion {
                name: name.to_owned(),
                from: Lsn(from),
                stated: Lsn(30),
                definition: definition.map(str::to_owned),
                state: PublicationState::from(vec![publication]),
            });
        }
        versions
    }

    #[test]
    fn what_is_written_is_read_and_every_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path();
        assert_eq!(
            read_own_versions(&RealFs, log).unwrap(),
            OwnVersions::default()
        );
        write_own_versions(&RealFs, log, &OwnVersions::default()).unwrap();
        write_own_versions(&RealFs, log, &versions()).unwrap();
        assert_eq!(read_own_versions(&RealFs, log).unwrap(), versions());
        let path = log.join(OWN_VERSIONS_FILE);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "{at} bytes");
        }
        std::fs::write(&path, &bytes[1..]).unwrap();
        let error = read_own_versions(&RealFs, log).unwrap_err().to_string();
        assert!(error.contains("publications is damaged"), "{error}");
    }

    #[test]
    fn there_is_a_limit() {
        let mut versions = OwnVersions::default();
        for from in 0..=VERSIONS_MAX as u64 {
            versions.put(OwnVersion {
                from: Lsn(from),
                stated: Lsn(from),
                ..OwnVersion::default()
            });
        }
        assert!(matches!(
            encode(&versions),
            Err(FormatError::Unstorable { .. })
        ));
    }
}
