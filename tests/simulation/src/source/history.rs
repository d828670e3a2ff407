//! What happens at the source: transactions in its WAL, and what a reader of the log has to find of them.

use pg_proto::{Lsn, Oid, Xid};

use crate::plan::Plan;
use crate::random::Random;

/// Where the WAL begins.
pub const START: Lsn = Lsn(0x1_0000);

/// One change of a row.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) lsn: Lsn,
    pub(super) sub: Xid,
    pub(super) relation: Oid,
    pub(super) value: Vec<u8>,
}

/// A transaction.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) xid: Xid,
    pub(super) changes: Vec<Change>,
    /// Changes up to here were made by each of its pieces.
    pub(super) pieces: Vec<usize>,
    /// Subtransactions that were rolled back, and where.
    pub(super) rolled_back: Vec<(Xid, Lsn)>,
    pub(super) gid: Vec<u8>,
    pub(super) prepare: Option<(Lsn, Lsn)>,
}

impl Transaction {
    pub(super) fn first_lsn(&self) -> Lsn {
        self.changes.first().map_or(START, |change| change.lsn)
    }

    fn is_rolled_back(&self, sub: Xid) -> bool {
        self.rolled_back.iter().any(|(other, _)| *other == sub)
    }

    /// What is left of it when it commits.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Change> {
        let changes = self.changes.iter();
        changes.filter(|change| !self.is_rolled_back(change.sub))
    }

    fn digest(&self) -> u64 {
        let add = |digest: Digest, change: &Change| digest.add(change.lsn, &change.value);
        self.kept().fold(Digest::default(), add).0
    }
}

/// Of the events of a transaction, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Digest {
    /// With one more event: its position and its value.
    #[must_use]
    pub fn add(self, lsn: Lsn, value: &[u8]) -> Self {
        let mix = |sum: u64, word: u64| {
            let mixed = (sum ^ word).wrapping_mul(0x0000_0100_0000_01B3);
            mixed.rotate_left(7)
        };
        let bytes = value.iter().map(|byte| u64::from(*byte));
        let sum = bytes.fold(mix(self.0, lsn.0), mix);
        Self(mix(sum, value.len() as u64))
    }
}

/// What a place of the WAL does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Commit(usize),
    Piece(usize, usize),
    RollBackPart(usize, Xid),
    RollBack(usize),
    Prepare(usize),
    CommitPrepared(usize),
    RollBackPrepared(usize),
    Message,
    Nothing,
}

/// A place of the WAL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) lsn: Lsn,
    pub(super) end: Lsn,
    pub(super) deed: Deed,
}

/// What a reader must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// By which a start position counts it.
    pub lsn: Lsn,
    /// The position behind it.
    pub end: Lsn,
    /// What it is.
    pub kind: ExpectedKind,
    /// Of its events.
    pub digest: u64,
}

/// What is found in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedKind {
    /// A transaction that committed.
    Transaction,
    /// One that is prepared.
    Prepared,
    /// That one was rolled back.
    RollbackPrepared,
    /// A message that stands alone.
    Message,
}

impl Expected {
    /// Whether a reader that starts at `start` gets it.
    #[must_use]
    pub fn counts_from(&self, start: Lsn) -> bool {
        match self.kind {
            ExpectedKind::Transaction | ExpectedKind::Prepared => self.lsn >= start,
            ExpectedKind::RollbackPrepared | ExpectedKind::Message => self.lsn > start,
        }
    }
}

/// The WAL.
#[derive(Debug)]
pub struct History {
    pub(super) items: Vec<Item>,
    pub(super) transactions: Vec<Transaction>,
    expected: Vec<Expected>,
    end: Lsn,
    next_xid: u32,
    in_progress: Vec<usize>,
    prepared: Vec<usize>,
    value_bytes: u64,
}

impl History {
    /// An empty one.
    #[must_use]
    pub const fn new(plan: &Plan) -> Self {
        Self {
            items: Vec::new(),
            transactions: Vec::new(),
            expected: Vec::new(),
            end: START,
            next_xid: 700,
            in_progress: Vec::new(),
            prepared: Vec::new(),
            value_bytes: plan.value_bytes,
        }
    }

    /// The WAL's end.
    #[must_use]
    pub const fn end(&self) -> Lsn {
        self.end
    }

    /// What a reader must find, in order.
    #[must_use]
    pub fn expected(&self) -> &[Expected] {
        &self.expected
    }

    /// Something happens.
    pub fn go_on(&mut self, random: &mut Random) {
        match random.below(16) {
            0..=5 => self.commit_whole(random),
            6 => self.push(Deed::Nothing),
            7 => self.message(),
            8..=10 => self.piece(random),
            11 => self.roll_back_part(random),
            12 => self.end_in_progress(random),
            13 => self.prepare(random),
            _ => self.decide(random),
        }
    }

    /// Ends all that is open.
    pub fn finish(&mut self, random: &mut Random) {
        while !self.in_progress.is_empty() {
            self.end_in_progress(random);
        }
        while !self.prepared.is_empty() {
            self.decide(random);
        }
    }

    fn advance(&mut self, bytes: u64) -> Lsn {
        let at = self.end;
        self.end = Lsn(self.end.0 + bytes);
        at
    }

    fn push(&mut self, deed: Deed) {
        let lsn = self.advance(0x30);
        let end = self.end;
        self.items.push(Item { lsn, end, deed });
    }

    fn begin(&mut self) -> usize {
        let xid = Xid(self.next_xid);
        self.next_xid += 10;
        self.transactions.push(Transaction {
            xid,
            changes: Vec::new(),
            pieces: Vec::new(),
            rolled_back: Vec::new(),
            gid: format!("gid-{xid}").into_bytes(),
            prepare: None,
        });
        self.transactions.len() - 1
    }

    /// Rows are changed, by the transaction itself or by one of `subs` - 1 subtransactions.
    fn change(&mut self, number: usize, random: &mut Random, rows_max: u64, subs: u64) {
        for _ in 0..=random.below(rows_max) {
            let length = 1 + random.below(self.value_bytes);
            let lsn = self.advance(0x40 + length);
            let value = value(random, length);
            let relation = Oid(16_384 + small(random.below(3)));
            let transaction = &mut self.transactions[number];
            let sub = Xid(transaction.xid.0 + small(random.below(subs)));
            let ended = transaction.is_rolled_back(sub);
            transaction.changes.push(Change {
                lsn,
                sub: if ended { transaction.xid } else { sub },
                relation,
                value,
            });
        }
    }

    fn commit_whole(&mut self, random: &mut Random) {
        let number = self.begin();
        if !random.chance(10) {
            self.change(number, random, 6, 1);
        }
        self.commit(number);
    }

    fn commit(&mut self, number: usize) {
        self.push(Deed::Commit(number));
        self.expect(number, ExpectedKind::Transaction);
    }

    fn expect(&mut self, number: usize, kind: ExpectedKind) {
        let (lsn, end) = self.last_place();
        let transaction = &self.transactions[number];
        if transaction.kept().next().is_none() {
            return;
        }
        let alone = kind == ExpectedKind::RollbackPrepared;
        self.expected.push(Expected {
            lsn: if alone { end } else { lsn },
            end,
            kind,
            digest: if alone { 0 } else { transaction.digest() },
        });
    }

    fn last_place(&self) -> (Lsn, Lsn) {
        let last = self.items.last();
        last.map_or((START, START), |item| (item.lsn, item.end))
    }

    fn message(&mut self) {
        self.push(Deed::Message);
        let end = self.end;
        self.expected.push(Expected {
            lsn: end,
            end,
            kind: ExpectedKind::Message,
            digest: 0,
        });
    }

    fn piece(&mut self, random: &mut Random) {
        let number = if self.in_progress.len() < 3 && random.chance(50) {
            let number = self.begin();
            self.in_progress.push(number);
            // What is prepared in the end is not empty: this change is not a subtransaction's.
            self.change(number, random, 1, 1);
            number
        } else if let Some(number) = self.pick(random) {
            number
        } else {
            return;
        };
        self.change(number, random, 12, 4);
        let transaction = &mut self.transactions[number];
        let piece = transaction.pieces.len();
        transaction.pieces.push(transaction.changes.len());
        self.push(Deed::Piece(number, piece));
    }

    fn pick(&self, random: &mut Random) -> Option<usize> {
        let place = random.place(self.in_progress.len());
        self.in_progress.get(place).copied()
    }

    fn roll_back_part(&mut self, random: &mut Random) {
        let Some(number) = self.pick(random) else {
            return;
        };
        let transaction = &self.transactions[number];
        let sub = Xid(transaction.xid.0 + 1 + small(random.below(3)));
        if transaction.is_rolled_back(sub) {
            return;
        }
        self.push(Deed::RollBackPart(number, sub));
        let (lsn, _) = self.last_place();
        self.transactions[number].rolled_back.push((sub, lsn));
    }

    fn end_in_progress(&mut self, random: &mut Random) {
        let Some(number) = self.pick(random) else {
            return;
        };
        self.in_progress.retain(|other| *other != number);
        match random.below(4) {
            0 => self.push(Deed::RollBack(number)),
            1 => self.prepare_this(number),
            _ => self.commit(number),
        }
    }

    fn prepare(&mut self, random: &mut Random) {
        let number = self.begin();
        self.change(number, random, 5, 1);
        self.prepare_this(number);
    }

    fn prepare_this(&mut self, number: usize) {
        self.push(Deed::Prepare(number));
        self.transactions[number].prepare = Some(self.last_place());
        self.expect(number, ExpectedKind::Prepared);
        self.prepared.push(number);
    }

    fn decide(&mut self, random: &mut Random) {
        if self.prepared.is_empty() {
            return;
        }
        let number = self.prepared.remove(random.place(self.prepared.len()));
        if random.chance(70) {
            self.push(Deed::CommitPrepared(number));
            self.expect(number, ExpectedKind::Transaction);
        } else {
            self.push(Deed::RollBackPrepared(number));
            self.expect(number, ExpectedKind::RollbackPrepared);
        }
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

/// Bytes that are not the same anywhere else, none of them 0.
fn value(random: &mut Random, length: u64) -> Vec<u8> {
    let mut value = Vec::new();
    while (value.len() as u64) < length {
        value.extend(random.number().to_le_bytes().map(|byte| byte.max(1)));
    }
    value.truncate(usize::try_from(length).unwrap_or_default());
    value
}
