//! One connection's stream, as a walsender sends it with streaming and two-phase commit.

use std::collections::{BTreeMap, BTreeSet};

use pg_proto::pgoutput::{
    Begin, BeginPrepare, Change as RowChange, ColumnValue, Commit, CommitPrepared, LogicalMessage,
    Message, Prepare, Relation, RelationColumn, ReplicaIdentity, RollbackPrepared, StreamAbort,
    StreamCommit, StreamStart, TupleBuf, encode,
};
use pg_proto::replication::{Keepalive, XLogData};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};

use super::history::{Change, Deed, History, Item, Transaction};

const TIME: PgTimestamp = PgTimestamp(800_000_000_000_000);

/// A walsender.
#[derive(Debug)]
pub struct Stream {
    /// What commits before it is not sent.
    start: Lsn,
    next: usize,
    /// Tables that were described: on the connection, and within each transaction that is streamed.
    described: BTreeMap<Option<usize>, BTreeSet<Oid>>,
    /// Transactions that are streamed, and how many changes of each were sent.
    streamed: BTreeMap<usize, usize>,
    sent: Lsn,
    frames: Vec<u8>,
}

impl Stream {
    pub(super) const fn new(start: Lsn) -> Self {
        Self {
            start,
            next: 0,
            described: BTreeMap::new(),
            streamed: BTreeMap::new(),
            sent: start,
            frames: Vec::new(),
        }
    }

    /// Whether everything was sent.
    #[must_use]
    pub fn is_at_end(&self, history: &History) -> bool {
        self.next == history.items.len()
    }

    /// Frames of the next place of the WAL; `None` at its end. `stream`: whether in-progress transactions are sent.
    pub fn next(&mut self, history: &History, stream: bool) -> Option<Vec<u8>> {
        let item = *history.items.get(self.next)?;
        self.next += 1;
        self.send_item(history, item, stream);
        self.sent = self.sent.max(item.end);
        Some(std::mem::take(&mut self.frames))
    }

    /// A keepalive.
    #[must_use]
    pub fn keepalive(&self) -> Vec<u8> {
        let mut frames = Vec::new();
        let keepalive = Keepalive {
            end: self.sent,
            send_time: TIME,
            reply_requested: false,
        };
        keepalive.encode_frame(&mut frames);
        frames
    }

    fn send_item(&mut self, history: &History, item: Item, stream: bool) {
        let transactions = &history.transactions;
        let needed = item.lsn >= self.start;
        match item.deed {
            Deed::Message if item.end > self.start => self.lone_message(item),
            Deed::Piece(number, piece) if needed => {
                let transaction = &transactions[number];
                if stream || self.streamed.contains_key(&number) {
                    self.piece(number, transaction, transaction.pieces[piece], item.lsn);
                }
            }
            Deed::RollBackPart(number, sub) if self.streamed.contains_key(&number) => {
                self.abort(transactions[number].xid, sub);
            }
            Deed::RollBack(number) if self.streamed.remove(&number).is_some() => {
                let xid = transactions[number].xid;
                self.described.remove(&Some(number));
                self.abort(xid, xid);
            }
            Deed::Commit(number) if needed => self.commit(number, &transactions[number], item),
            Deed::Prepare(number) if needed => self.prepare(number, &transactions[number], item),
            Deed::CommitPrepared(number) if needed => {
                self.commit_prepared(&transactions[number], item);
            }
            Deed::RollBackPrepared(number) if needed => {
                self.rollback_prepared(&transactions[number], item);
            }
            _ => {}
        }
    }

    fn send(&mut self, start: Lsn, message: &Message<'_>) {
        let mut payload = Vec::new();
        encode(message, &mut payload);
        let data = XLogData {
            start,
            end: start,
            send_time: TIME,
            payload: &payload,
        };
        data.encode_frame(&mut self.frames);
    }

    /// `streamed`: the transaction, if it is sent before its end.
    fn change(&mut self, change: &Change, streamed: Option<usize>) {
        let sub = streamed.map(|_| change.sub);
        let connection = self.described.entry(None).or_default();
        if !connection.contains(&change.relation) {
            let described = self.described.entry(streamed).or_default();
            if described.insert(change.relation) {
                self.relation(change.relation, sub);
            }
        }
        let mut row = TupleBuf::new();
        row.push(ColumnValue::Text(&change.value));
        let message = Message::Change(RowChange::Insert {
            xid: sub,
            relation: change.relation,
            new: row.as_tuple(),
        });
        self.send(change.lsn, &message);
    }

    fn relation(&mut self, oid: Oid, xid: Option<Xid>) {
        let name = format!("t{oid}");
        let column = RelationColumn {
            is_key: true,
            name: b"value",
            type_oid: Oid(25),
            type_modifier: -1,
        };
        let message = Message::Relation(Relation {
            xid,
            oid,
            namespace: b"public",
            name: name.as_bytes(),
            replica_identity: ReplicaIdentity::Default,
            columns: vec![column],
        });
        self.send(Lsn::INVALID, &message);
    }

    fn piece(&mut self, number: usize, transaction: &Transaction, upto: usize, at: Lsn) {
        let sent = self.streamed.insert(number, upto);
        let start = StreamStart {
            xid: transaction.xid,
            first_segment: sent.is_none(),
        };
        self.send(transaction.first_lsn(), &Message::StreamStart(start));
        for change in &transaction.changes[sent.unwrap_or(0)..upto] {
            self.change(change, Some(number));
        }
        self.send(Lsn::INVALID, &Message::StreamStop);
        if sent.is_none() {
            // What was rolled back before anything was sent.
            let before = transaction.rolled_back.iter();
            for (sub, _) in before.filter(|(_, rolled_back)| *rolled_back < at) {
                self.abort(transaction.xid, *sub);
            }
        }
    }

    fn abort(&mut self, xid: Xid, subxid: Xid) {
        let abort = StreamAbort {
            xid,
            subxid,
            abort: None,
        };
        self.send(Lsn::INVALID, &Message::StreamAbort(abort));
    }

    /// The last piece of a transaction that is streamed; whether it is.
    fn last_piece(&mut self, number: usize, transaction: &Transaction, item: Item) -> bool {
        if !self.streamed.contains_key(&number) {
            return false;
        }
        self.piece(number, transaction, transaction.changes.len(), item.lsn);
        self.streamed.remove(&number);
        // Everybody has it now.
        let described = self.described.remove(&Some(number));
        let connection = self.described.entry(None).or_default();
        connection.extend(described.into_iter().flatten());
        true
    }

    fn commit(&mut self, number: usize, transaction: &Transaction, item: Item) {
        let (xid, commit) = (transaction.xid, commit_of(item));
        if self.last_piece(number, transaction, item) {
            let end = StreamCommit { xid, commit };
            self.send(item.end, &Message::StreamCommit(end));
            return;
        }
        let begin = Begin {
            final_lsn: item.lsn,
            commit_time: TIME,
            xid,
        };
        self.send(transaction.first_lsn(), &Message::Begin(begin));
        self.kept(transaction);
        self.send(item.end, &Message::Commit(commit));
    }

    fn kept(&mut self, transaction: &Transaction) {
        for change in transaction.kept() {
            self.change(change, None);
        }
    }

    fn prepare(&mut self, number: usize, transaction: &Transaction, item: Item) {
        let prepare = Prepare {
            prepare_lsn: item.lsn,
            end_lsn: item.end,
            prepare_time: TIME,
            xid: transaction.xid,
            gid: &transaction.gid,
        };
        if self.last_piece(number, transaction, item) {
            self.send(item.end, &Message::StreamPrepare(prepare));
            return;
        }
        let begin = BeginPrepare {
            prepare_lsn: item.lsn,
            end_lsn: item.end,
            prepare_time: TIME,
            xid: transaction.xid,
            gid: &transaction.gid,
        };
        self.send(transaction.first_lsn(), &Message::BeginPrepare(begin));
        self.kept(transaction);
        self.send(item.end, &Message::Prepare(prepare));
    }

    fn commit_prepared(&mut self, transaction: &Transaction, item: Item) {
        let message = CommitPrepared {
            commit: commit_of(item),
            xid: transaction.xid,
            gid: &transaction.gid,
        };
        self.send(item.end, &Message::CommitPrepared(message));
    }

    fn rollback_prepared(&mut self, transaction: &Transaction, item: Item) {
        let message = RollbackPrepared {
            prepare_end_lsn: transaction.prepare.map_or(Lsn::INVALID, |(_, end)| end),
            rollback_end_lsn: item.end,
            prepare_time: TIME,
            rollback_time: TIME,
            xid: transaction.xid,
            gid: &transaction.gid,
        };
        self.send(item.end, &Message::RollbackPrepared(message));
    }

    fn lone_message(&mut self, item: Item) {
        let message = LogicalMessage {
            xid: None,
            transactional: false,
            lsn: item.end,
            prefix: b"app",
            content: b"alone",
        };
        self.send(item.lsn, &Message::LogicalMessage(message));
    }
}

const fn commit_of(item: Item) -> Commit {
    Commit {
        commit_lsn: item.lsn,
        end_lsn: item.end,
        commit_time: TIME,
    }
}
