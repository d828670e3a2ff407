//! From where on each definition of a publication of Decant's own counts.
//!
//! The log itself states a definition from the commit on with which the source confirmed it. One that counts from an older
//! position counts between the two because it is written here, beside the log. So nothing that is in the log changes, and a replay
//! gives the same whenever it is done after the version was made.

use pg_proto::Lsn;
use pg_proto::read::{ReadError, Reader};

use super::{PublicationState, codec};

/// Most versions of all publications together.
pub(super) const VERSIONS_MAX: usize = 1024;
/// Most bytes of them, as they are stored.
pub(super) const BYTES_MAX: usize = 16 << 20;

/// A definition of a publication of Decant's own, in force from its first position to that of the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnVersion {
    /// The publication.
    pub name: String,
    /// It judges changes from here on.
    pub from: Lsn,
    /// From here on the log itself says so.
    pub stated: Lsn,
    /// As `CREATE PUBLICATION` has it behind the name; `None`: the publication is dropped.
    pub definition: Option<String>,
    /// What it means, [alone](PublicationState::alone); nothing where the log says all.
    pub state: PublicationState,
}

/// All versions, those of one publication in the order of positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnVersions {
    /// Counts changes.
    pub(super) number: u64,
    pub(super) versions: Vec<OwnVersion>,
}

const DROPPED: u8 = 1;

/// Least size of a version: two positions, flags, three lengths.
const VERSION_MIN: usize = 29;

impl OwnVersion {
    /// Whether there are changes that it judges and the log does not know of it.
    fn reaches_back(&self) -> bool {
        self.from < self.stated
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for lsn in [self.from, self.stated] {
            out.extend_from_slice(&lsn.0.to_le_bytes());
        }
        out.push(u8::from(self.definition.is_none()) * DROPPED);
        codec::put_str(out, &self.name);
        codec::put_str(out, self.definition.as_deref().unwrap_or_default());
        let mut state = Vec::new();
        self.state.encode(&mut state);
        codec::put_len(out, state.len());
        out.append(&mut state);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let from = codec::take_lsn(reader, "start of a version")?;
        let stated = codec::take_lsn(reader, "stated position of a version")?;
        let flags = reader.u8("flags of a version")?;
        if flags & !DROPPED != 0 || from > stated {
            return Err(reader.invalid("flags or positions of a version", flags));
        }
        let name = codec::take_str(reader, "publication name")?;
        let definition = codec::take_str(reader, "definition")?;
        let length = codec::take_u32(reader, "length of a version's state")?;
        let need = usize::try_from(length).unwrap_or(usize::MAX);
        let state = PublicationState::decode(reader.bytes(need, "state of a version")?)?;
        Ok(Self {
            name,
            from,
            stated,
            definition: (flags & DROPPED == 0).then_some(definition),
            state,
        })
    }
}

impl OwnVersions {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[OwnVersion] {
        &self.versions
    }

    /// Those of one publication, oldest first.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a OwnVersion> {
        self.versions.iter().filter(move |one| one.name == name)
    }

    /// Adds a version, which takes the place of those of the same publication that began at or behind its start.
    pub fn put(&mut self, version: OwnVersion) {
        self.versions
            .retain(|one| one.name != version.name || one.from < version.from);
        self.versions.push(version);
        self.versions
            .sort_by(|one, other| (&one.name, one.from).cmp(&(&other.name, other.from)));
        self.number += 1;
    }

    /// Forgets what no change at or behind `limit` is judged by: of each publication the version in force there stays.
    pub fn forget_before(&mut self, limit: Lsn) {
        let mut kept: Vec<OwnVersion> = Vec::with_capacity(self.versions.len());
        let mut all = std::mem::take(&mut self.versions).into_iter().peekable();
        while let Some(mut one) = all.next() {
            let next = all.peek().filter(|next| next.name == one.name);
            let is_over = next.is_some_and(|next| next.from <= limit);
            let is_gone = one.definition.is_none() && next.is_none() && one.stated <= limit;
            if is_over || is_gone {
                continue;
            }
            if one.stated <= limit && one.reaches_back() {
                // All that is left of it the log says itself.
                one.stated = one.from;
                one.state = PublicationState::default();
            }
            kept.push(one);
        }
        self.versions = kept;
    }

    /// Takes off what counted behind `lsn`, of a history that is the source's no more.
    pub(crate) fn cut_at(&mut self, lsn: Lsn) {
        self.versions.retain(|one| one.from <= lsn);
        for one in &mut self.versions {
            one.stated = one.stated.min(lsn);
        }
        self.number += 1;
    }

    /// The version of `name` that judges a change at `lsn` and that the log does not state there.
    pub(super) fn beside_log(&self, name: &str, lsn: Lsn) -> Option<(usize, &OwnVersion)> {
        let mut all = self.versions.iter().enumerate().rev();
        let found = all.find(|(_, one)| one.name == name && one.from <= lsn);
        found.filter(|(_, one)| lsn < one.stated)
    }

    /// The positions at which another version of one of these publications begins or is stated by the log.
    pub(super) fn bounds(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<Lsn> {
        let wanted = self.versions.iter().filter(|one| wanted(&one.name));
        let reaching = wanted.filter(|one| one.reaches_back());
        let mut bounds: Vec<Lsn> = reaching.flat_map(|one| [one.from, one.stated]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        bounds
    }

    /// The versions as they are stored, behind the file's header.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for one in &self.versions {
            one.encode(out);
        }
    }

    /// The inverse of [`Self::encode`].
    pub(super) fn decode(number: u64, count: u32, bytes: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(bytes);
        let claimed = usize::try_from(count).unwrap_or(usize::MAX);
        if claimed > VERSIONS_MAX.min(bytes.len() / VERSION_MIN) {
            return Err(reader.invalid("number of versions", count));
        }
        let mut versions: Vec<OwnVersion> = Vec::with_capacity(claimed);
        for _ in 0..claimed {
            let one = OwnVersion::take(&mut reader)?;
            let last = versions.last().map(|last| (&last.name, last.from));
            if last.is_some_and(|last| last >= (&one.name, one.from)) {
                return Err(reader.invalid("order of versions", count));
            }
            versions.push(one);
        }
        reader.finish("versions")?;
        Ok(Self { number, versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, from: u64, stated: u64) -> OwnVersion {
        OwnVersion {
            name: name.to_owned(),
            from: Lsn(from),
            stated: Lsn(stated),
            definition: Some(format!("from {from}")),
            ..OwnVersion::default()
        }
    }

    fn made(all: &[(&str, u64, u64)]) -> OwnVersions {
        let mut versions = OwnVersions::default();
        for (name, from, stated) in all {
            versions.put(version(name, *from, *stated));
        }
        versions
    }

    fn at(versions: &OwnVersions, lsn: u64) -> Option<u64> {
        let found = versions.beside_log("p", Lsn(lsn));
        found.map(|(_, one)| one.from.0)
    }

    #[test]
    fn a_version_counts_until_the_next_one_or_the_log() {
        let versions = made(&[("p", 10, 50), ("q", 5, 60), ("p", 30, 70), ("p", 80, 80)]);
        let expected = [(9, None), (10, Some(10)), (29, Some(10)), (30, Some(30))];
        for (lsn, from) in expected
            .into_iter()
            .chain([(69, Some(30)), (70, None), (80, None)])
        {
            assert_eq!(at(&versions, lsn), from, "{lsn}");
        }
        let bounds = versions.bounds(&|name| name == "p");
        assert_eq!(bounds, [10, 30, 50, 70].map(Lsn));
    }

    #[test]
    fn an_older_start_replaces_what_began_behind_it() {
        let mut versions = made(&[("p", 10, 50), ("p", 60, 60), ("p", 70, 90)]);
        versions.put(version("p", 20, 100));
        assert_eq!(at(&versions, 15), Some(10));
        assert_eq!(at(&versions, 65), Some(20));
        assert_eq!(at(&versions, 99), Some(20));
        assert_eq!(versions.of("p").count(), 2);
    }

    #[test]
    fn what_no_change_is_judged_by_is_forgotten() {
        let all = [("p", 10, 50), ("p", 60, 60), ("p", 70, 90), ("q", 5, 20)];
        for limit in 0..100 {
            let mut versions = made(&all);
            let mut dropped = version("gone", 40, 45);
            dropped.definition = None;
            versions.put(dropped);
            let before = versions.clone();
            versions.forget_before(Lsn(limit));
            for lsn in limit..100 {
                for name in ["p", "q", "gone"] {
                    let found = |all: &OwnVersions| {
                        all.beside_log(name, Lsn(lsn)).map(|(_, one)| one.clone())
                    };
                    assert_eq!(found(&versions), found(&before), "{name} at {lsn}, {limit}");
                }
            }
            assert_eq!(versions.of("gone").count(), usize::from(limit < 45));
            assert!(versions.of("p").next().is_some());
        }
        let mut versions = made(&all);
        versions.forget_before(Lsn(99));
        assert_eq!(versions.all().len(), 2);
    }

    #[test]
    fn a_cut_takes_off_what_counted_behind_it() {
        let mut versions = made(&[("p", 10, 50), ("p", 60, 60)]);
        versions.cut_at(Lsn(40));
        assert_eq!(versions.of("p").count(), 1);
        assert_eq!(at(&versions, 39), Some(10));
        assert_eq!(at(&versions, 40), None);
    }
}
