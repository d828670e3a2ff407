//! What has not ended, as a subscriber of streaming gets it: put together, it is what others get when it has committed.

use std::collections::BTreeMap;

use pg_proto::pgoutput::StreamAbort;
use pg_proto::{PgTimestamp, Xid};
use proptest::collection::vec;
use proptest::prelude::*;
use storage_format::block::{Block, Entry};
use storage_format::record::RecordKind;

use super::{Advance, Replay, Stream, StreamOptions};
use crate::emit::{EmitOptions, Made, Output};
use crate::testing::StagedLog;

/// A row, and who wrote it.
type Row = (Xid, Vec<u8>);

/// Puts together what comes in pieces.
#[derive(Default)]
struct Client {
    streams: BTreeMap<Xid, Vec<Row>>,
    inside: Option<Xid>,
    writer: Xid,
    /// Rows of the transaction that comes whole.
    whole: Option<Vec<Row>>,
    committed: Vec<Vec<Vec<u8>>>,
    /// Rows that came before their transaction's end.
    early: usize,
    /// STREAM ABORTs of whole transactions.
    given_up: usize,
}

impl Client {
    fn take(&mut self, kind: RecordKind, payload: &[u8]) {
        match (kind, self.inside) {
            (RecordKind::Insert, Some(top)) => {
                self.early += 1;
                let stream = self.streams.get_mut(&top).expect("it has begun");
                stream.push((self.writer, payload.to_vec()));
            }
            (RecordKind::Insert, None) => {
                let whole = self.whole.as_mut().expect("a row has a transaction");
                whole.push((self.writer, payload.to_vec()));
            }
            (RecordKind::Begin, None) => {
                assert!(self.whole.is_none(), "a transaction in another one");
                self.whole = Some(Vec::new());
            }
            (RecordKind::Commit, inside) => {
                let rows = match inside {
                    Some(top) => self.streams.remove(&top),
                    None => self.whole.take(),
                };
                let rows = rows.expect("what commits has begun");
                self.committed
                    .push(rows.into_iter().map(|row| row.1).collect());
            }
            _ => {}
        }
    }
}

impl Output for Client {
    fn whole(&mut self, block: &Block) {
        for entry in block.entries() {
            self.take(entry.kind().unwrap(), block.payload(&entry));
        }
    }

    fn entry(&mut self, block: &Block, entry: &Entry, _ordinal: u64) {
        self.take(entry.kind().unwrap(), block.payload(entry));
    }

    fn made(&mut self, _block: &Block, made: Made) {
        // An early transaction begins with its piece.
        if self.inside.is_none() || made.kind != RecordKind::Begin {
            self.take(made.kind, &made.payload());
        }
    }

    fn rewritten(&mut self, _: &Block, _: RecordKind, _: u64, _: &[u8]) {
        panic!("nothing is rewritten here");
    }

    fn belongs(&mut self, entry: &Entry) {
        self.writer = Xid(entry.xid);
    }

    fn end_block(&mut self, _block: &Block) {}

    fn enter_piece(&mut self, top: Xid, begun: bool) {
        assert!(self.whole.is_none(), "a piece inside a transaction");
        assert_eq!(begun, self.streams.contains_key(&top), "{top}");
        self.streams.entry(top).or_default();
        self.inside = Some(top);
    }

    fn leave_piece(&mut self) {
        self.inside = None;
    }

    fn stream_abort(&mut self, abort: &StreamAbort, _send_time: PgTimestamp) {
        if abort.xid == abort.subxid {
            assert!(self.streams.remove(&abort.xid).is_some(), "it was begun");
            self.given_up += 1;
        } else {
            let stream = self.streams.get_mut(&abort.xid).expect("it is begun");
            stream.retain(|(writer, _)| *writer != abort.subxid);
        }
    }
}

/// A stream and what came of it.
struct Follower {
    stream: Stream,
    client: Client,
}

impl Follower {
    fn open(replay: &Replay, streaming: bool) -> Self {
        let emit = EmitOptions {
            start: replay.kept().unwrap().oldest,
            streaming,
            ..EmitOptions::default()
        };
        let options = StreamOptions {
            emit,
            ..StreamOptions::default()
        };
        Self {
            stream: replay.open(options).unwrap(),
            client: Client::default(),
        }
    }

    fn look(&mut self) {
        loop {
            match self.stream.advance(&mut self.client).unwrap() {
                Advance::Moved(_) => {}
                Advance::AtHead => return,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// What others get when everything has ended.
fn expected(log: &StagedLog) -> Vec<Vec<Vec<u8>>> {
    let mut after = Follower::open(log.replay(), false);
    after.look();
    after.client.committed
}

const ONE: Xid = Xid(100);
const SUB: Xid = Xid(101);

#[test]
fn rows_come_as_the_file_grows() {
    let mut log = StagedLog::new();
    let mut follower = Follower::open(log.replay(), true);
    log.begin(ONE);
    for count in 1..=3 {
        log.row(ONE, ONE);
        follower.look();
        assert_eq!(
            follower.client.early,
            count - 1,
            "it is not in the file yet"
        );
        log.stop(ONE);
        follower.look();
        assert_eq!(follower.client.early, count);
    }
    // The last rows come with the end.
    log.row(ONE, ONE);
    log.commit(ONE);
    follower.look();
    assert_eq!(follower.client.committed, expected(&log));
    assert_eq!(follower.client.committed[1].len(), 4);
    assert_eq!((follower.client.early, follower.client.given_up), (4, 0));
}

#[test]
fn what_a_subtransaction_wrote_is_taken_back_with_it() {
    let mut log = StagedLog::new();
    let mut follower = Follower::open(log.replay(), true);
    log.begin(ONE);
    log.row(ONE, SUB);
    log.row(ONE, ONE);
    log.row(ONE, SUB);
    log.stop(ONE);
    follower.look();
    assert_eq!(follower.client.streams[&ONE].len(), 3);
    log.abort(ONE, SUB);
    follower.look();
    assert_eq!(follower.client.streams[&ONE].len(), 1);
    log.commit(ONE);
    follower.look();
    assert_eq!(follower.client.committed, expected(&log));
    assert_eq!(follower.client.committed[1].len(), 1);
}

#[test]
fn all_of_it_may_be_undone_and_it_commits() {
    let mut log = StagedLog::new();
    let mut follower = Follower::open(log.replay(), true);
    log.begin_bare(ONE);
    log.row(ONE, SUB);
    log.stop(ONE);
    follower.look();
    log.abort(ONE, SUB);
    log.commit(ONE);
    follower.look();
    assert_eq!(follower.client.committed[1], Vec::<Vec<u8>>::new());
    assert_eq!(follower.client.given_up, 0);
    // Others hear nothing of it.
    assert_eq!(expected(&log).len(), 1);
}

#[test]
fn what_is_rolled_back_or_lost_is_given_up() {
    let mut log = StagedLog::new();
    let mut follower = Follower::open(log.replay(), true);
    log.begin(ONE);
    log.row(ONE, ONE);
    log.stop(ONE);
    follower.look();
    log.restart();
    follower.look();
    assert_eq!((follower.client.given_up, follower.client.early), (1, 2));
    // Nobody looked while the file was there.
    log.restart();
    log.restart();
    follower.look();
    assert_eq!(follower.client.given_up, 2);
    log.roll_back(ONE);
    follower.look();
    assert_eq!(follower.client.given_up, 3);
    assert!(follower.client.streams.is_empty());
    log.plain();
    follower.look();
    assert_eq!(follower.client.committed, expected(&log));
}

/// What a source and its decoder do, by the place of an open transaction among all that are open.
#[derive(Clone, Debug)]
enum Op {
    Begin,
    /// The writer: the transaction, or one of its subtransactions.
    Row(usize, u32),
    Stop(usize),
    Abort(usize, u32),
    Commit(usize),
    RollBack(usize),
    Plain,
    Restart,
    /// The follower that does not always look does.
    Look,
}

fn op() -> impl Strategy<Value = Op> {
    let place = || 0_usize..4;
    prop_oneof![
        2 => Just(Op::Begin),
        10 => (place(), 0_u32..4).prop_map(|(place, sub)| Op::Row(place, sub)),
        6 => place().prop_map(Op::Stop),
        3 => (place(), 1_u32..4).prop_map(|(place, sub)| Op::Abort(place, sub)),
        2 => place().prop_map(Op::Commit),
        1 => place().prop_map(Op::RollBack),
        2 => Just(Op::Plain),
        1 => Just(Op::Restart),
        6 => Just(Op::Look),
    ]
}

/// Numbers of one transaction and its subtransactions.
const NUMBERS: u32 = 1000;

/// How numbers are given out: none twice.
#[derive(Default)]
struct Numbers {
    transactions: u32,
    /// How often a subtransaction was rolled back: the next one in its place is another one.
    undone: BTreeMap<(Xid, u32), u32>,
}

impl Numbers {
    fn transaction(&mut self) -> Xid {
        self.transactions += 1;
        Xid(self.transactions * NUMBERS)
    }

    fn writer(&self, top: Xid, sub: u32) -> Xid {
        let undone = self.undone.get(&(top, sub)).copied().unwrap_or_default();
        Xid(top.0 + sub + 4 * undone)
    }
}

fn perform(log: &mut StagedLog, op: &Op, numbers: &mut Numbers) {
    let open = log.open();
    let at = |place: usize| open.get(place % open.len().max(1)).copied();
    match op {
        Op::Begin if open.len() < 4 => log.begin(numbers.transaction()),
        Op::Row(place, sub) => {
            if let Some(xid) = at(*place) {
                log.row(xid, numbers.writer(xid, *sub));
            }
        }
        Op::Stop(place) => at(*place).into_iter().for_each(|xid| log.stop(xid)),
        Op::Abort(place, sub) => {
            if let Some(xid) = at(*place) {
                log.abort(xid, numbers.writer(xid, *sub));
                *numbers.undone.entry((xid, *sub)).or_default() += 1;
            }
        }
        Op::Commit(place) => at(*place).into_iter().for_each(|xid| log.commit(xid)),
        Op::RollBack(place) => at(*place).into_iter().for_each(|xid| log.roll_back(xid)),
        Op::Plain => log.plain(),
        Op::Restart => log.restart(),
        Op::Begin | Op::Look => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn pieces_put_together_are_what_comes_after_the_commit(ops in vec(op(), 0..60)) {
        let mut log = StagedLog::new();
        let mut always = Follower::open(log.replay(), true);
        let mut sometimes = Follower::open(log.replay(), true);
        let mut numbers = Numbers::default();
        for op in &ops {
            perform(&mut log, op, &mut numbers);
            always.look();
            if let Op::Look = op {
                sometimes.look();
            }
        }
        for xid in log.open() {
            log.commit(xid);
        }
        let expected = expected(&log);
        for mut follower in [always, sometimes, Follower::open(log.replay(), true)] {
            follower.look();
            let mut seen = follower.client.committed;
            seen.retain(|rows| !rows.is_empty());
            prop_assert_eq!(&seen, &expected);
            prop_assert!(follower.client.streams.is_empty());
            prop_assert_eq!(follower.stream.position(), log.replay().head());
        }
    }
}
