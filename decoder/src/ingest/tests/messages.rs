//! The source's messages, and a sink that writes down what it is told.

use std::sync::Arc;

use pg_proto::pgoutput::{
    Begin, BeginPrepare, Change, Commit, CommitPrepared, LogicalMessage, Message, OldTuple, Origin,
    Prepare, Relation, ReplicaIdentity, RollbackPrepared, StreamAbort, StreamCommit, StreamStart,
    Truncate, Tuple, encode,
};
use pg_proto::{Lsn, Oid, PgTimestamp, Reader, Xid};
use storage_format::catalog::PublicationState;
use storage_format::staging::Rollback;

use crate::catalog::{CatalogMessage, Recogniser, Secret};
use crate::ingest::assembler::Assembler;
use crate::ingest::error::StreamError;
use crate::ingest::record::{Incoming, Record};
use crate::ingest::sink::{Place, Sink};
use crate::state::DecoderState;

pub(super) const SECRET: &str = "secret";
const NO_COLUMNS: &[u8] = &[0, 0];

/// Positions: a transaction that commits at `commit` ends 8 bytes later.
pub(super) const COMMIT_LEN: u64 = 8;

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

fn tuple() -> Tuple<'static> {
    Tuple::take(&mut Reader::new(NO_COLUMNS)).unwrap()
}

pub(super) fn begin(commit: u64, xid: u32) -> Vec<u8> {
    bytes(&Message::Begin(Begin {
        final_lsn: Lsn(commit),
        commit_time: PgTimestamp(1),
        xid: Xid(xid),
    }))
}

fn commit_at(commit: u64) -> Commit {
    Commit {
        commit_lsn: Lsn(commit),
        end_lsn: Lsn(commit + COMMIT_LEN),
        commit_time: PgTimestamp(1),
    }
}

pub(super) fn commit(commit: u64) -> Vec<u8> {
    bytes(&Message::Commit(commit_at(commit)))
}

pub(super) fn begin_prepare(prepare: u64, xid: u32) -> Vec<u8> {
    bytes(&Message::BeginPrepare(BeginPrepare {
        prepare_lsn: Lsn(prepare),
        end_lsn: Lsn(prepare + COMMIT_LEN),
        prepare_time: PgTimestamp(1),
        xid: Xid(xid),
        gid: b"gid",
    }))
}

fn prepare_at(prepare: u64, xid: u32) -> Prepare<'static> {
    Prepare {
        prepare_lsn: Lsn(prepare),
        end_lsn: Lsn(prepare + COMMIT_LEN),
        prepare_time: PgTimestamp(1),
        xid: Xid(xid),
        gid: b"gid",
    }
}

pub(super) fn prepare(prepare: u64, xid: u32) -> Vec<u8> {
    bytes(&Message::Prepare(prepare_at(prepare, xid)))
}

pub(super) fn stream_prepare(prepare: u64, xid: u32) -> Vec<u8> {
    bytes(&Message::StreamPrepare(prepare_at(prepare, xid)))
}

pub(super) fn commit_prepared(commit: u64, xid: u32) -> Vec<u8> {
    bytes(&Message::CommitPrepared(CommitPrepared {
        commit: commit_at(commit),
        xid: Xid(xid),
        gid: b"gid",
    }))
}

pub(super) fn rollback_prepared(prepare: u64, end: u64, xid: u32) -> Vec<u8> {
    bytes(&Message::RollbackPrepared(RollbackPrepared {
        prepare_end_lsn: Lsn(prepare + COMMIT_LEN),
        rollback_end_lsn: Lsn(end),
        prepare_time: PgTimestamp(1),
        rollback_time: PgTimestamp(2),
        xid: Xid(xid),
        gid: b"gid",
    }))
}

pub(super) fn origin() -> Vec<u8> {
    bytes(&Message::Origin(Origin {
        origin_lsn: Lsn(1),
        name: b"elsewhere",
    }))
}

pub(super) fn relation(xid: Option<u32>, oid: u32) -> Vec<u8> {
    bytes(&Message::Relation(Relation {
        xid: xid.map(Xid),
        oid: Oid(oid),
        namespace: b"public",
        name: b"t",
        replica_identity: ReplicaIdentity::Default,
        columns: Vec::new(),
    }))
}

pub(super) fn insert(xid: Option<u32>, relation: u32) -> Vec<u8> {
    bytes(&Message::Change(Change::Insert {
        xid: xid.map(Xid),
        relation: Oid(relation),
        new: tuple(),
    }))
}

pub(super) fn delete(relation: u32) -> Vec<u8> {
    bytes(&Message::Change(Change::Delete {
        xid: None,
        relation: Oid(relation),
        old: OldTuple::Key(tuple()),
    }))
}

pub(super) fn truncate() -> Vec<u8> {
    let relations = [[0, 0, 0, 5], [0, 0, 0, 6]];
    let truncate = Truncate::new(None, false, false, &relations);
    bytes(&Message::Truncate(truncate))
}

pub(super) fn message(xid: Option<u32>, transactional: bool, lsn: u64, content: &str) -> Vec<u8> {
    prefixed(xid, transactional, lsn, b"app", content)
}

pub(super) fn prefixed(
    xid: Option<u32>,
    transactional: bool,
    lsn: u64,
    prefix: &[u8],
    content: &str,
) -> Vec<u8> {
    bytes(&Message::LogicalMessage(LogicalMessage {
        xid: xid.map(Xid),
        transactional,
        lsn: Lsn(lsn),
        prefix,
        content: content.as_bytes(),
    }))
}

/// What Decant itself would write in transaction `xid`.
pub(super) fn catalog_content(xid: u64) -> String {
    CatalogMessage::write(xid, &PublicationState::default(), &Secret::new(SECRET)).unwrap()
}

pub(super) fn stream_start(xid: u32, first_segment: bool) -> Vec<u8> {
    bytes(&Message::StreamStart(StreamStart {
        xid: Xid(xid),
        first_segment,
    }))
}

pub(super) fn stream_stop() -> Vec<u8> {
    bytes(&Message::StreamStop)
}

pub(super) fn stream_commit(xid: u32, commit: u64) -> Vec<u8> {
    bytes(&Message::StreamCommit(StreamCommit {
        xid: Xid(xid),
        commit: commit_at(commit),
    }))
}

pub(super) fn stream_abort(xid: u32, subxid: u32) -> Vec<u8> {
    bytes(&Message::StreamAbort(StreamAbort {
        xid: Xid(xid),
        subxid: Xid(subxid),
        abort: None,
    }))
}

pub(super) fn recogniser() -> Arc<Recogniser> {
    Arc::new(Recogniser::new([Secret::new(SECRET)]))
}

pub(super) fn state() -> Arc<DecoderState> {
    Arc::new(DecoderState::new().0)
}

/// An assembler and what it said.
pub(super) struct Bench {
    assembler: Assembler,
    pub(super) state: Arc<DecoderState>,
    pub(super) told: Told,
}

impl Bench {
    pub(super) fn new(resume: u64) -> Self {
        let state = state();
        Self {
            assembler: Assembler::new(Lsn(resume), recogniser(), Arc::clone(&state)),
            state,
            told: Told::default(),
        }
    }

    pub(super) fn feed(&mut self, payload: &[u8]) -> Result<(), StreamError> {
        let incoming = Incoming {
            start: Lsn(3),
            send_time: PgTimestamp(2),
            payload,
        };
        self.assembler.message(&incoming, &mut self.told)
    }

    pub(super) fn feed_all(&mut self, messages: &[Vec<u8>]) -> &[String] {
        for message in messages {
            self.feed(message).unwrap();
        }
        &self.told.lines
    }

    pub(super) fn keepalive(&mut self, end: u64) {
        self.assembler.keepalive(Lsn(end), &mut self.told).unwrap();
    }
}

/// Writes down what it is told, a line each.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) lines: Vec<String>,
    staged: Vec<Xid>,
    prepared: Vec<Xid>,
}

impl Told {
    fn note(&mut self, line: String) -> Result<(), StreamError> {
        self.lines.push(line);
        Ok(())
    }
}

fn at(place: Place) -> String {
    match place {
        Place::Open => String::new(),
        Place::Staged { top, sub } => format!(" of {top}/{sub}"),
    }
}

impl Sink for Told {
    type Error = StreamError;

    fn begin(&mut self, begin: &Begin, message: &Incoming<'_>) -> Result<(), StreamError> {
        assert_eq!((message.start, message.send_time), (Lsn(3), PgTimestamp(2)));
        self.note(format!("begin {}", begin.final_lsn))
    }

    fn record(&mut self, place: Place, record: &Record<'_>) -> Result<(), StreamError> {
        // Whatever came in, what is stored is in protocol-1 form.
        pg_proto::pgoutput::decode(record.payload, pg_proto::pgoutput::Framing::Plain).unwrap();
        self.note(format!("{:?}{}", record.kind, at(place)))
    }

    fn publications(
        &mut self,
        place: Place,
        _: Lsn,
        state: Arc<PublicationState>,
    ) -> Result<(), StreamError> {
        self.note(format!(
            "{} publications{}",
            state.publications.len(),
            at(place)
        ))
    }

    fn commit(&mut self, commit: &Commit, _: &Incoming<'_>) -> Result<(), StreamError> {
        self.note(format!("commit {}", commit.end_lsn))
    }

    fn lone_message(&mut self, lsn: Lsn, _: &Incoming<'_>) -> Result<(), StreamError> {
        self.note(format!("lone message {lsn}"))
    }

    fn advance(&mut self, to: Lsn) -> Result<(), StreamError> {
        self.note(format!("advance {to}"))
    }

    fn stage_begin(&mut self, top: Xid, _: &Incoming<'_>) -> Result<(), StreamError> {
        self.staged.push(top);
        self.note(format!("stage {top}"))
    }

    fn is_staged(&self, top: Xid) -> bool {
        self.staged.contains(&top)
    }

    fn stage_stop(&mut self, top: Xid) -> Result<(), StreamError> {
        self.note(format!("stop {top}"))
    }

    fn stage_abort(&mut self, top: Xid, sub: Xid, at: Rollback) -> Result<(), StreamError> {
        self.staged.retain(|xid| *xid != top || top != sub);
        self.note(format!("abort {top}/{sub} {}", at.lsn))
    }

    fn stage_discard(&mut self, top: Xid) {
        self.staged.retain(|xid| *xid != top);
        self.lines.push(format!("discard {top}"));
    }

    fn stage_commit(&mut self, stream: &StreamCommit) -> Result<(), StreamError> {
        self.staged.retain(|xid| *xid != stream.xid);
        self.note(format!(
            "commit staged {} {}",
            stream.xid, stream.commit.end_lsn
        ))
    }

    fn prepare_begin(&mut self, xid: Xid, _: &Incoming<'_>) -> Result<(), StreamError> {
        self.staged.push(xid);
        self.note(format!("stage {xid} whole"))
    }

    fn is_prepared(&self, xid: Xid, _: &[u8]) -> bool {
        self.prepared.contains(&xid)
    }

    fn prepare(&mut self, prepare: &Prepare<'_>, late: bool) -> Result<(), StreamError> {
        self.staged.retain(|xid| *xid != prepare.xid);
        self.prepared.push(prepare.xid);
        let late = if late { " late" } else { "" };
        self.note(format!("prepare {} {}{late}", prepare.xid, prepare.end_lsn))
    }

    fn commit_prepared(&mut self, end: &CommitPrepared<'_>) -> Result<(), StreamError> {
        self.prepared.retain(|xid| *xid != end.xid);
        self.note(format!(
            "commit prepared {} {}",
            end.xid, end.commit.end_lsn
        ))
    }

    fn rollback_prepared(
        &mut self,
        end: &RollbackPrepared<'_>,
        _: &Incoming<'_>,
    ) -> Result<(), StreamError> {
        self.prepared.retain(|xid| *xid != end.xid);
        self.note(format!(
            "rollback prepared {} {}",
            end.xid, end.rollback_end_lsn
        ))
    }
}
