//! Streams that go along together at the log's head: who is rung, and which rows are looked at.

use storage_format::record::RecordKind;

use super::Recorder;
use crate::emit::{EmitOptions, Form};
use crate::replay::{Advance, Ahead, Stream, StreamOptions};
use crate::selection::{Publications, SelectionSpec, TableName};
use crate::testing::{TestLog, is_third, name_of, publication_states, schema_of};

/// Streams that follow a log while it is written: one looks only when it is rung, the other one whenever something was
/// written.
pub(super) struct Followers {
    pub(super) streams: [(Stream, Recorder); 2],
    rung: usize,
}

impl Followers {
    pub(super) fn open(log: &mut TestLog, spec: &SelectionSpec, options: &EmitOptions) -> Self {
        let replay = log.replay();
        let open = || {
            let options = StreamOptions {
                selection: spec.clone(),
                emit: options.clone(),
                ahead: Ahead::Refuse,
                form: Form::default(),
            };
            (replay.open(options).unwrap(), Recorder::default())
        };
        let mut followers = Self {
            streams: [open(), open()],
            rung: 0,
        };
        followers.look(true);
        followers
    }

    pub(super) fn look(&mut self, all: bool) {
        for (number, (stream, out)) in self.streams.iter_mut().enumerate() {
            let rung = stream.is_rung();
            self.rung += usize::from(rung);
            if !(all || rung || number == 1) {
                continue;
            }
            loop {
                match stream.advance(out).unwrap() {
                    Advance::Moved(_) => {}
                    Advance::AtHead => break,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn only_who_is_concerned_is_rung() {
    let mut log = TestLog::new();
    let insert = |log: &mut TestLog, table: u8, described: bool| {
        log.begin(1);
        if !described {
            log.relation(table, 1);
        }
        log.row(RecordKind::Insert, table, 1);
        log.commit();
        log.sync()
    };
    insert(&mut log, 0, false);
    let start = insert(&mut log, 1, false);
    let spec = SelectionSpec {
        tables: vec![TableName {
            schema: schema_of(1),
            name: name_of(1, 0),
        }],
        ..SelectionSpec::default()
    };
    let options = EmitOptions {
        start,
        ..EmitOptions::default()
    };
    let mut followers = Followers::open(&mut log, &spec, &options);
    let mut write = |table| {
        let head = insert(&mut log, table, true);
        followers.rung = 0;
        followers.look(false);
        // Who looks without being rung moves on, too.
        assert_eq!(followers.streams[1].0.position(), head);
        followers.rung
    };
    // Relations that had no changes yet concern everybody.
    for table in [0, 1, 0] {
        write(table);
    }
    for _ in 0..3 {
        assert_eq!(write(0), 0);
        assert_eq!(write(1), 2);
    }
    assert_eq!(followers.streams.map(|(_, out)| out.commits()), [4, 4]);
}

#[test]
fn only_those_whose_rows_come_are_rung() {
    let mut log = TestLog::new();
    log.begin(2);
    log.publications(&publication_states()[0]);
    log.relation(0, 0);
    log.row(RecordKind::Insert, 0, 0);
    log.commit();
    let spec = SelectionSpec {
        publications: Publications::Named(vec!["a".to_owned()]),
        ..SelectionSpec::default()
    };
    let options = EmitOptions {
        start: log.sync(),
        ..EmitOptions::default()
    };
    let mut followers = Followers::open(&mut log, &spec, &options);
    let mut rung = |log: &mut TestLog| {
        let head = log.sync();
        followers.rung = 0;
        followers.look(false);
        assert_eq!(followers.streams[1].0.position(), head);
        followers.rung
    };
    let mut rungs = Vec::new();
    // The first rows of a relation concern everybody.
    for id in [1, 1, 2, 3, 4, 6, 7] {
        log.begin(2);
        log.row(RecordKind::Insert, 0, id);
        log.row(RecordKind::Update, 0, id);
        log.commit();
        rungs.push(rung(&mut log));
    }
    log.begin(1);
    log.truncate(&[0]);
    log.commit();
    rungs.push(rung(&mut log));
    assert_eq!(rungs[2..], [0, 2, 0, 2, 0, 2]);
    assert_eq!(followers.streams.map(|(_, out)| out.commits()), [3, 3]);
}

#[test]
fn rows_that_do_not_match_are_not_looked_at() {
    let mut log = TestLog::new();
    log.begin(2);
    log.publications(&publication_states()[0]);
    log.relation(0, 0);
    log.commit();
    log.cut();
    let ids = 0..600_u32;
    for block in ids.clone().collect::<Vec<_>>().chunks(100) {
        for transaction in block.chunks(4) {
            log.begin(4);
            for id in transaction {
                log.row(RecordKind::Insert, 0, *id);
            }
            log.commit();
        }
        log.cut();
    }
    let replay = log.replay();
    let spec = SelectionSpec {
        publications: Publications::Named(vec!["a".to_owned()]),
        ..SelectionSpec::default()
    };
    let options = EmitOptions {
        start: replay.kept().unwrap().oldest,
        ..EmitOptions::default()
    };
    let matches = ids.filter(|id| is_third(*id)).count() as u64;
    let open = || {
        let options = StreamOptions {
            selection: spec.clone(),
            emit: options.clone(),
            ahead: Ahead::Refuse,
            form: Form::default(),
        };
        (replay.open(options).unwrap(), Recorder::default())
    };
    // All go along together, as at the head.
    let mut streams: Vec<_> = (0..50).map(|_| open()).collect();
    let mut at_head = 0;
    while at_head < streams.len() {
        at_head = 0;
        for (stream, out) in &mut streams {
            at_head += usize::from(stream.advance(out).unwrap() == Advance::AtHead);
        }
    }
    for (stream, out) in &streams {
        let rows = out.seen.iter().filter(|(one, _)| one[0] == b'I');
        assert_eq!(rows.count() as u64, matches);
        assert_eq!(stream.position(), replay.head());
    }
    let counts = replay.filters().counts();
    // The first looks at all rows, the second has them indexed.
    assert_eq!(counts.native_rows, 600 + 49 * matches);
    assert_eq!(counts.index_rows, 49 * (600 - matches));
    assert_eq!(counts.indexed_rows, 600);
}
