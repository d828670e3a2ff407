//! What is found by the names file is what is found by listing the folder, whatever became of the file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use pg_proto::Lsn;
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::TempDir;

use super::replay::event;
use super::support::{Event, ORIGIN, Source, open_log, open_writer};
use crate::fs::RealFs;
use crate::log::{Log, SeekError};
use crate::seal::{SealOptions, seal_segment};
use crate::segment::{
    NAMES_FILE, SegmentExtension, SegmentName, delete_segment, list_segments, write_names,
};
use crate::verify::cut_off;
use crate::watermark::WATERMARK_FILE;

/// As `FORMAT.md` has it.
const HEADER_LEN: usize = 64;
const ENTRY_LEN: usize = 16;

/// What becomes of the file.
#[derive(Clone, Debug)]
enum Fate {
    Kept,
    Missing,
    Empty,
    /// The last bytes are not there.
    Short(Index),
    /// Bytes from somewhere on are zero, as after a loss of power.
    Zeroed(Index),
    Changed(Index, u8),
    /// The last entries are not there.
    Behind(Index),
    /// There are entries of segments that do not exist.
    Ahead(u64),
    /// It was made anew by somebody who saw other names from a segment on.
    Other(Index),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Kept),
        1 => Just(Fate::Missing),
        1 => Just(Fate::Empty),
        1 => any::<Index>().prop_map(Fate::Short),
        1 => any::<Index>().prop_map(Fate::Zeroed),
        4 => (any::<Index>(), 1_u8..).prop_map(|(at, change)| Fate::Changed(at, change)),
        1 => any::<Index>().prop_map(Fate::Behind),
        1 => (1..5_u64).prop_map(Fate::Ahead),
        1 => any::<Index>().prop_map(Fate::Other),
    ]
}

fn names(directory: &Path) -> Vec<SegmentName> {
    let segments = list_segments(&RealFs, directory).unwrap();
    segments.into_iter().map(|segment| segment.name).collect()
}

fn meet(directory: &Path, fate: &Fate) {
    let path = directory.join(NAMES_FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    let entries = (bytes.len() - HEADER_LEN) / ENTRY_LEN;
    let all = names(directory);
    match fate {
        Fate::Kept => {}
        Fate::Missing => return std::fs::remove_file(path).unwrap(),
        Fate::Empty => bytes.clear(),
        Fate::Short(index) => bytes.truncate(index.index(bytes.len())),
        Fate::Zeroed(index) => {
            let from = index.index(bytes.len());
            bytes[from..].fill(0);
        }
        Fate::Changed(index, change) => {
            let at = index.index(bytes.len());
            bytes[at] ^= change;
        }
        Fate::Behind(index) => bytes.truncate(HEADER_LEN + ENTRY_LEN * index.index(entries)),
        Fate::Ahead(more) => {
            let last = *all.last().unwrap();
            let ahead = (1..=*more).map(|number| other(last, number));
            let all: Vec<_> = all.into_iter().chain(ahead).collect();
            return write_names(&RealFs, directory, &all);
        }
        Fate::Other(index) => {
            let from = index.index(all.len());
            let renamed = all.iter().enumerate().map(|(place, name)| SegmentName {
                first_lsn: Lsn(name.first_lsn.0 + u64::from(place >= from)),
                ..*name
            });
            return write_names(&RealFs, directory, &renamed.collect::<Vec<_>>());
        }
    }
    std::fs::write(path, bytes).unwrap();
}

const fn other(last: SegmentName, number: u64) -> SegmentName {
    SegmentName {
        sequence: last.sequence + number,
        first_lsn: Lsn(last.first_lsn.0 + number),
    }
}

/// A log of a segment for each of the events; some of them sealed.
fn log_of(directory: &Path, events: &[Event]) -> Source {
    let mut source = Source::new(directory);
    for (number, event) in events.iter().enumerate() {
        source.run(std::slice::from_ref(event));
        source.writer.finish_segment().unwrap();
        for name in source.writer.take_finished() {
            if number % 4 > 0 {
                seal_segment(&RealFs, directory, name, &SealOptions::default()).unwrap();
            }
        }
    }
    source
}

/// A log of so many finished segments, and positions in it. Some segments have nothing in them.
fn prepared(segments: usize) -> (TempDir, Vec<Lsn>) {
    let directory = tempfile::tempdir().unwrap();
    let mut events = super::follow::events(segments);
    for event in events.iter_mut().skip(2).step_by(5) {
        *event = Event::Transaction(Vec::new());
    }
    let mut source = log_of(directory.path(), &events);
    source.writer.finish_segment().unwrap();
    (directory, source.boundaries)
}

/// The same files under other names, but for those that are changed.
fn linked(from: &Path) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(SegmentName::folder(directory.path())).unwrap();
    for file in std::fs::read_dir(SegmentName::folder(from)).unwrap() {
        let file = file.unwrap();
        let to = SegmentName::folder(directory.path()).join(file.file_name());
        std::fs::hard_link(file.path(), to).unwrap();
    }
    for name in [WATERMARK_FILE, NAMES_FILE] {
        std::fs::copy(from.join(name), directory.path().join(name)).unwrap();
    }
    directory
}

/// Somebody removes a segment's files and tells nobody.
fn remove(directory: &Path, name: SegmentName) {
    for extension in [SegmentExtension::Active, SegmentExtension::Sealed] {
        let _ = std::fs::remove_file(name.path(directory, extension));
    }
}

/// What a reader finds: what is kept, and the place of each position.
fn found(directory: &Path, positions: &[Lsn]) -> Vec<String> {
    let log = open_log(directory);
    let mut found = vec![format!("{:?} {:?}", log.identity(), log.kept().unwrap())];
    for lsn in positions.iter().flat_map(|lsn| [*lsn, Lsn(lsn.0 - 1)]) {
        found.push(match log.cursor_at(lsn) {
            Ok(cursor) => format!("{} {}", cursor.place.segment.name, cursor.place.offset),
            Err(error) => error.to_string(),
        });
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_file_says_what_the_folder_says(
        log in prop::sample::select(&[0_usize, 1, 2][..]),
        deleted in any::<Index>(),
        noted: bool,
        hole in prop::option::weighted(0.2, any::<Index>()),
        fate in fate(),
    ) {
        static LOGS: LazyLock<[(TempDir, Vec<Lsn>); 3]> =
            LazyLock::new(|| [1, 6, 21].map(prepared));
        let (log, positions) = &LOGS[log];
        let directory = linked(log.path());
        let directory = directory.path();
        let all = names(directory);
        // The last one is being written.
        for name in &all[..deleted.index(all.len())] {
            if noted {
                delete_segment(&RealFs, directory, *name).unwrap();
            } else {
                remove(directory, *name);
            }
        }
        if let Some(hole) = hole {
            remove(directory, all[hole.index(all.len() - 1)]);
        }
        meet(directory, &fate);
        let by_file = found(directory, positions);
        let _ = std::fs::remove_file(directory.join(NAMES_FILE));
        prop_assert_eq!(by_file, found(directory, positions));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_file_of_another_history_misleads_nobody(
        before in prop::collection::vec(event(), 4..9),
        after in prop::collection::vec(event(), 4..9),
        cut in any::<Index>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let source = log_of(directory, &before);
        let old = std::fs::read(directory.join(NAMES_FILE)).unwrap();
        let lsn = *cut.get(&source.boundaries);
        let mut boundaries = source.boundaries.clone();
        drop(source);
        cut_off(&RealFs, directory, lsn).unwrap();
        // Nobody has written it since.
        let by_file = found(directory, &boundaries);
        std::fs::remove_file(directory.join(NAMES_FILE)).unwrap();
        prop_assert_eq!(by_file, found(directory, &boundaries));

        let mut source = Source::resume(directory, lsn, 100);
        for event in &after {
            source.run(std::slice::from_ref(event));
            source.writer.finish_segment().unwrap();
        }
        boundaries.append(&mut source.boundaries);
        let by_new = found(directory, &boundaries);
        std::fs::write(directory.join(NAMES_FILE), old).unwrap();
        let by_old = found(directory, &boundaries);
        std::fs::remove_file(directory.join(NAMES_FILE)).unwrap();
        let by_folder = found(directory, &boundaries);
        prop_assert_eq!(&by_new, &by_folder);
        prop_assert_eq!(&by_old, &by_folder);
    }
}

/// Reads from the oldest position, as long as there is one.
fn look(log: &Arc<Log>, directory: &Path) {
    let before = names(directory)[0].first_lsn;
    let kept = log.kept().unwrap();
    let after = names(directory)[0].first_lsn;
    assert!(before <= kept.oldest && kept.oldest <= after);
    match log.cursor_at(kept.oldest) {
        Ok(cursor) => assert_eq!(cursor.place.segment.name.first_lsn, kept.oldest),
        Err(SeekError::NotKept { oldest, .. }) => assert!(oldest > kept.oldest),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_kept_is_right_while_segments_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut source = Source::new(directory);
    source.run(&[Event::Idle]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let look = || {
            let log = open_log(directory);
            while !done.load(Ordering::Acquire) {
                look(&log, directory);
                look(&open_log(directory), directory);
            }
        };
        let readers = [(); 2].map(|()| scope.spawn(look));
        for number in 0..60 {
            source.run(&[Event::Idle]);
            source.writer.finish_segment().unwrap();
            for name in source.writer.take_finished() {
                seal_segment(&RealFs, directory, name, &SealOptions::default()).unwrap();
            }
            let all = names(directory);
            if all.len() > 6 {
                for name in &all[..number % 5] {
                    delete_segment(&RealFs, directory, *name).unwrap();
                }
            }
        }
        done.store(true, Ordering::Release);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn a_writer_makes_the_file_whole() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    drop(log_of(directory, &vec![Event::Idle; 6]));
    let all = names(directory);
    delete_segment(&RealFs, directory, all[0]).unwrap();
    let path = directory.join(NAMES_FILE);
    drop(open_writer(directory));
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(whole.len(), HEADER_LEN + ENTRY_LEN * (all.len() - 1));
    for fate in [Fate::Missing, Fate::Empty, Fate::Ahead(3)] {
        meet(directory, &fate);
        drop(open_writer(directory));
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{fate:?}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(open_log(directory).kept().unwrap().oldest, all[1].first_lsn);
        bytes.truncate(at);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(open_log(directory).kept().unwrap().oldest, all[1].first_lsn);
    }
    drop(open_writer(directory));
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    assert!(all[1].first_lsn > ORIGIN);
}
