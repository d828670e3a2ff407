//! Random logs and selections: whole blocks or record by record, through one block or many, what comes out is what a
//! naive model says.

mod follow;

use bytes::{Buf, Bytes};
use pg_proto::Lsn;
use proptest::prelude::*;
use storage_format::block::{Block, Entry, FRAME_HEAD_LEN};
use storage_format::catalog::{Publication, PublicationActions, PublicationTable, RowFilterText};
use storage_format::record::RecordKind;

use follow::Followers;

use super::{
    EmitOptions, Emitter, Form, Frames, Made, MissingPublication, Outcome, Output, Warning,
};
use crate::error::StreamError;
use crate::replay::{Advance, Ahead, Replay, Stream, StreamOptions};
use crate::selection::{Publications, Selection, SelectionSpec};
use crate::testing::{
    Action, Expected, Item, Model, TestLog, actions, publication_states, relation_oid, selection,
};

/// Keeps the bytes as [`Frames`] does, and each message with its ordinal.
#[derive(Default)]
struct Recorder {
    frames: Frames,
    seen: Vec<Expected>,
    whole_blocks: usize,
}

impl Output for Recorder {
    fn whole(&mut self, block: &Block) {
        self.frames.whole(block);
        self.whole_blocks += 1;
        let mut ordinal = block.header().first_ordinal;
        for entry in block.entries() {
            let kind = entry.kind().unwrap();
            if kind == RecordKind::Begin {
                ordinal = 0;
            }
            self.note(
                block.payload(&entry),
                if kind.is_event() { ordinal } else { 0 },
            );
            ordinal += u64::from(kind.is_event());
        }
    }

    fn entry(&mut self, block: &Block, entry: &Entry, ordinal: u64) {
        self.frames.entry(block, entry, ordinal);
        self.note(block.payload(entry), ordinal);
    }

    fn made(&mut self, block: &Block, made: Made) {
        self.note(&made.payload(), made.ordinal);
        self.frames.made(block, made);
    }

    fn rewritten(&mut self, block: &Block, kind: RecordKind, ordinal: u64, frame: &[u8]) {
        assert_eq!(kind, tag_kind(frame[FRAME_HEAD_LEN]));
        self.note(&frame[FRAME_HEAD_LEN..], ordinal);
        self.frames.rewritten(block, kind, ordinal, frame);
    }

    fn end_block(&mut self, block: &Block) {
        self.frames.end_block(block);
    }
}

fn tag_kind(tag: u8) -> RecordKind {
    match tag {
        b'I' => RecordKind::Insert,
        b'U' => RecordKind::Update,
        _ => RecordKind::Delete,
    }
}

impl Recorder {
    fn note(&mut self, payload: &[u8], ordinal: u64) {
        // A message that stands alone has no place in a transaction.
        let lone = payload.starts_with(b"M\0");
        self.seen
            .push((payload.to_vec(), if lone { 0 } else { ordinal }));
    }

    fn commits(&self) -> usize {
        self.seen.iter().filter(|(one, _)| one[0] == b'C').count()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.frames.remaining()];
        self.frames.copy_to_slice(&mut bytes);
        bytes
    }
}

/// Through the emitter, block by block, nothing skipped, nothing handed on whole.
fn walked(model: &Model, spec: &SelectionSpec, options: &EmitOptions) -> Recorder {
    let mut cursor = model.log.log().cursor_at(options.start).unwrap();
    let catalog = std::sync::Arc::clone(cursor.catalog());
    let selection = Selection::new(spec.clone(), &catalog);
    let mut emitter = Emitter::new(options.clone(), selection, catalog, cursor.position());
    emitter.walk_always();
    let mut out = Recorder::default();
    while let Some(block) = cursor.next().unwrap() {
        let outcome = emitter.block(&block, cursor.catalog(), &mut out).unwrap();
        if let Outcome::End(_) = outcome {
            break;
        }
    }
    out
}

/// As a sink does it. Checks after every step that nothing is announced as sent that was not.
fn streamed(model: &mut Model, spec: &SelectionSpec, options: &EmitOptions) -> Recorder {
    let expected = model.expected(spec, options);
    let commits: Vec<Lsn> = expected
        .iter()
        .filter(|(payload, _)| payload[0] == b'C')
        .map(|(payload, _)| Lsn(u64::from_be_bytes(payload[2..10].try_into().unwrap())))
        .collect();
    let replay = model.log.replay();
    let (first, _kept) = streamed_once(&replay, &commits, spec, options);
    // What one subscriber makes of a block may serve the next, as an index of its rows does, if it is still in memory.
    let (second, _kept_too) = streamed_once(&replay, &commits, spec, options);
    assert_eq!(second.seen, first.seen);
    let (third, _) = streamed_once(&replay, &commits, spec, options);
    assert_eq!(third.seen, first.seen);
    first
}

fn streamed_once(
    replay: &Replay,
    commits: &[Lsn],
    spec: &SelectionSpec,
    options: &EmitOptions,
) -> (Recorder, Stream) {
    let mut stream = replay
        .open(StreamOptions {
            selection: spec.clone(),
            emit: options.clone(),
            ahead: Ahead::Refuse,
            form: Form::default(),
        })
        .unwrap();
    let mut out = Recorder::default();
    let mut counted = (0, 0);
    let mut last = stream.position();
    loop {
        let advance = stream.advance(&mut out).unwrap();
        let position = stream.position();
        assert!(position >= last);
        last = position;
        let due = commits.iter().filter(|commit| **commit < position).count();
        assert!(
            out.commits() >= due,
            "position {position} passes an unsent commit"
        );
        if let Some(commit_lsn) = stream.open_transaction() {
            assert!(position <= commit_lsn);
        }
        match advance {
            Advance::Moved(step) => counted = (counted.0 + step.changes, counted.1 + step.commits),
            Advance::AtHead => {
                assert_eq!(position, replay.head());
                break;
            }
            Advance::End => break,
            Advance::Asking => panic!("nothing needs PostgreSQL here"),
        }
    }
    assert!(stream.open_transaction().is_none());
    assert_eq!(counted.1, out.commits() as u64);
    let events = out
        .seen
        .iter()
        .filter(|(one, _)| b"IUDTM".contains(&one[0]));
    assert_eq!(counted.0, events.count() as u64);
    (out, stream)
}

/// Logs of blocks with more entries than what is not shared for being too small.
fn large_actions() -> impl Strategy<Value = Vec<Action>> {
    actions().prop_map(|mut actions| {
        for action in &mut actions {
            if let Action::Transaction { items, .. } = action {
                let row = Item::Row(RecordKind::Insert, 0);
                items.extend(std::iter::repeat_n(row, 6));
                items.push(Item::Row(RecordKind::Update, 1));
            }
        }
        actions
    })
}

/// Where to start and end: fractions of the log.
fn options() -> impl Strategy<Value = (bool, bool, Option<f64>, Option<f64>)> {
    let place = || prop::option::of(0.0..1.0);
    (any::<bool>(), any::<bool>(), place(), place())
}

fn boundary(model: &Model, place: Option<f64>) -> Option<Lsn> {
    let boundaries = &model.boundaries;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a fraction of a short list"
    )]
    let index = (place? * boundaries.len() as f64) as usize;
    boundaries.get(index).copied()
}

#[test]
fn rows_are_rewritten_once_for_all_who_asked_for_the_same() {
    let mut log = TestLog::new();
    let insert = |log: &mut TestLog, rows: u8| {
        for row in 0..rows {
            log.row(RecordKind::Insert, 0, row.into());
        }
        log.commit();
        log.cut();
    };
    log.begin(1);
    // Of the first table the publication `a` has one column of two.
    log.publications(&publication_states()[0]);
    log.relation(0, 0);
    insert(&mut log, 1);
    log.begin(1);
    insert(&mut log, 20);
    let replay = log.replay();
    let open = |name: &str| {
        let publications = Publications::Named(vec![name.to_owned()]);
        let selection = SelectionSpec {
            publications,
            ..SelectionSpec::default()
        };
        let emit = EmitOptions {
            start: replay.kept().unwrap().oldest,
            ..EmitOptions::default()
        };
        let options = StreamOptions {
            selection,
            emit,
            ahead: Ahead::Refuse,
            form: Form::default(),
        };
        (replay.open(options).unwrap(), Frames::default())
    };
    let mut all = ["a", "a", "b"].map(open);
    for (stream, frames) in &mut all {
        while stream.advance(frames).unwrap() != Advance::AtHead {}
    }
    let [first, second, other] = all.map(|(_, frames)| frames.slices_from(0));
    assert!(other.is_empty());
    assert_eq!(first, second);
    let same = |(one, two): (&Bytes, &Bytes)| one.as_ptr() == two.as_ptr();
    let places: Vec<bool> = first.iter().zip(&second).map(same).collect();
    // RELATION and the first row are each one's own.
    assert!(
        places.contains(&false) && places.ends_with(&[true]),
        "{places:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_comes_out_is_what_the_model_says(
        actions in actions(),
        spec in selection(),
        (messages, local_origin_only, start, end) in options(),
    ) {
        let mut model = Model::write(&actions);
        let oldest = model.log.log().kept().unwrap().oldest;
        let options = EmitOptions {
            start: boundary(&model, start).unwrap_or(oldest),
            end: boundary(&model, end),
            messages,
            local_origin_only,
            ..EmitOptions::default()
        };
        let expected = model.expected(&spec, &options);
        let mut slow = walked(&model, &spec, &options);
        prop_assert_eq!(&slow.seen, &expected);
        let mut fast = streamed(&mut model, &spec, &options);
        prop_assert_eq!(&fast.seen, &expected);
        prop_assert_eq!(fast.bytes(), slow.bytes());
    }

    #[test]
    fn who_follows_the_head_is_rung_for_all_that_concerns_it(
        actions in actions(),
        spec in selection(),
        (messages, local_origin_only, _, _) in options(),
    ) {
        let mut log = TestLog::new();
        let options = EmitOptions {
            start: log.sync(),
            messages,
            local_origin_only,
            ..EmitOptions::default()
        };
        let mut followers = Followers::open(&mut log, &spec, &options);
        let model = Model::write_step_by_step(log, &actions, |log| {
            log.sync();
            followers.look(false);
        });
        let expected = model.expected(&spec, &options);
        for (_, out) in &followers.streams {
            prop_assert_eq!(&out.seen, &expected);
        }
        followers.look(true);
        for (stream, out) in &followers.streams {
            prop_assert_eq!(&out.seen, &expected);
            prop_assert_eq!(stream.position(), model.log.log().head().lsn);
        }
    }

    #[test]
    fn those_who_asked_for_the_same_get_what_each_would_get_alone(
        actions in large_actions(),
        spec in selection(),
        (messages, local_origin_only, _, _) in options(),
        places in prop::collection::vec(prop::option::of(0.0..1.0), 3),
        turns in prop::collection::vec(0..3_usize, 0..40),
    ) {
        let mut model = Model::write(&actions);
        let oldest = model.log.log().kept().unwrap().oldest;
        let replay = model.log.replay();
        let mut all = Vec::new();
        for place in places {
            let options = EmitOptions {
                start: boundary(&model, place).unwrap_or(oldest),
                messages,
                local_origin_only,
                ..EmitOptions::default()
            };
            let stream = replay.open(StreamOptions {
                selection: spec.clone(),
                emit: options.clone(),
                ahead: Ahead::Refuse,
                form: Form::default(),
            });
            all.push((stream.unwrap(), Frames::default(), options));
        }
        let to_the_end = (0..3).flat_map(|number| std::iter::repeat_n(number, 200));
        for number in turns.into_iter().chain(to_the_end) {
            let (stream, frames, _) = &mut all[number];
            stream.advance(frames).unwrap();
        }
        for (stream, mut frames, options) in all {
            prop_assert_eq!(stream.position(), replay.head());
            let mut alone = walked(&model, &spec, &options);
            let mut bytes = vec![0; frames.remaining()];
            frames.copy_to_slice(&mut bytes);
            prop_assert_eq!(bytes, alone.bytes());
        }
    }

    #[test]
    fn from_every_commit_on_exactly_the_rest_comes(actions in actions()) {
        let mut model = Model::write(&actions);
        let spec = SelectionSpec::default();
        let commits = model.commits();
        for start in commits.into_iter().flat_map(|lsn| [lsn, Lsn(lsn.0 + 1), Lsn(lsn.0 + 8)]) {
            let options = EmitOptions { start, messages: true, ..EmitOptions::default() };
            let expected = model.expected(&spec, &options);
            let seen = streamed(&mut model, &spec, &options).seen;
            prop_assert_eq!(seen, expected);
        }
    }
}

/// Rows before, under and after a state of the publications; how far a subscriber of `names` comes.
fn under(
    state: &[Publication],
    names: &[&str],
    missing_publication: MissingPublication,
) -> (Vec<Expected>, Result<Vec<Warning>, StreamError>) {
    let mut log = TestLog::new();
    let everything = [Publication {
        name: "a".to_owned(),
        all_tables: true,
        actions: PublicationActions::ALL,
        ..Publication::default()
    }];
    for publications in [&everything[..], state, &everything] {
        log.begin(2);
        log.publications(publications);
        log.relation(0, 1);
        log.row(RecordKind::Insert, 0, 1);
        log.commit();
        log.cut();
    }
    let replay = log.replay();
    let mut stream = replay
        .open(StreamOptions {
            selection: SelectionSpec {
                publications: Publications::Named(
                    names.iter().map(|&one| one.to_owned()).collect(),
                ),
                ..SelectionSpec::default()
            },
            emit: EmitOptions {
                start: replay.kept().unwrap().oldest,
                missing_publication,
                ..EmitOptions::default()
            },
            ahead: Ahead::Refuse,
            form: Form::default(),
        })
        .unwrap();
    let (mut out, mut warnings) = (Recorder::default(), Vec::new());
    let result = loop {
        match stream.advance(&mut out) {
            Ok(Advance::Moved(step)) => warnings.extend(step.warnings),
            Ok(_) => break Ok(warnings),
            Err(error) => break Err(error),
        }
    };
    (out.seen, result)
}

fn transactions(seen: &[Expected]) -> usize {
    seen.iter().filter(|(one, _)| one[0] == b'C').count()
}

#[test]
fn a_publication_that_is_missing_ends_the_stream_or_is_skipped_with_a_warning() {
    let (seen, result) = under(&[], &["a"], MissingPublication::Fail);
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), "publication \"a\" does not exist");
    assert_eq!(error.sqlstate(), "42704");
    assert_eq!(transactions(&seen), 1);

    let (seen, result) = under(&[], &["a"], MissingPublication::Skip);
    assert_eq!(transactions(&seen), 2);
    let skipped = Warning::PublicationSkipped("a".to_owned());
    assert_eq!(result.unwrap(), [skipped]);
}

/// A publication of the first table with a filter that is a constant.
fn constant_filter(bytes: &str) -> Publication {
    let tree = format!(
        "{{CONST :consttype 16 :consttypmod -1 :constcollid 0 :constlen 1 :constbyval true :constisnull false \
         :location -1 :constvalue 1 [ {bytes} ]}}"
    );
    Publication {
        name: "a".to_owned(),
        actions: PublicationActions::ALL,
        tables: vec![PublicationTable {
            relation: relation_oid(0),
            schema: "s0".to_owned(),
            name: "t0".to_owned(),
            columns: None,
            row_filter: Some(RowFilterText {
                sql: String::new(),
                tree,
            }),
            ..PublicationTable::default()
        }],
        ..Publication::default()
    }
}

#[test]
fn a_row_filter_decides_which_rows_are_sent() {
    let of = |bytes| {
        let (seen, result) = under(&[constant_filter(bytes)], &["a"], MissingPublication::Skip);
        result.unwrap();
        transactions(&seen)
    };
    // Rows before and after the filter was there pass anyhow.
    assert_eq!(of("0 0 0 0 0 0 0 0"), 2);
    assert_eq!(of("1 0 0 0 0 0 0 0"), 3);
}
