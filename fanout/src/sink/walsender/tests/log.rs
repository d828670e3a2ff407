//! A log in a temporary directory, with one table in one publication.

use std::path::Path;
use std::sync::Arc;

use pg_proto::pgoutput::{
    Begin, Commit, LogicalMessage, Message, Relation, RelationColumn, ReplicaIdentity, encode,
};
use pg_proto::{Lsn, Oid, PgTimestamp, Xid};
use storage_format::block::BlockBuilder;
use storage_format::catalog::{
    Publication, PublicationActions, PublicationTable, ServerParameters, encode_publications,
};
use storage_format::fs::RealFs;
use storage_format::log::{Log, ReadOptions};
use storage_format::record::RecordKind;
use storage_format::{Identity, LogWriter, WriterOptions};

use crate::replay::{HeadTeller, Replay};

/// Where the log begins.
pub(super) const START: Lsn = Lsn(0x100);
/// `public.t`, which publication `p` publishes.
const TABLE: Oid = Oid(16_384);
/// `public.other`, which no publication publishes.
const OTHER: Oid = Oid(16_390);

/// Writes a log as the decoder would.
pub(super) struct TestLog {
    writer: LogWriter,
    builder: BlockBuilder,
    head: HeadTeller,
    pub(super) replay: Replay,
}

fn payload(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

impl TestLog {
    /// A log of database `app` of a server of `version`.
    pub(super) fn create(directory: &Path, version: &str) -> Self {
        let options = WriterOptions {
            segment_bytes: WriterOptions::MIN_SEGMENT_BYTES,
            start_lsn: START,
        };
        let identity = Identity {
            system_identifier: 7_710_463_238_060_845_282,
            timeline: 1,
            database: "app".to_owned(),
            slot: "decant".to_owned(),
            writer_epoch: 0,
        };
        let fs = Arc::new(RealFs);
        let (writer, _) = LogWriter::open(directory, options, identity, fs).unwrap();
        let log = Log::open(directory, ReadOptions::default()).unwrap();
        let (head, told) = HeadTeller::new(Arc::clone(&log));
        let mut this = Self {
            writer,
            builder: BlockBuilder::new(),
            head,
            replay: Replay::new(log, told),
        };
        this.write_catalog(version);
        this
    }

    /// Parameters and the publication, in a transaction of their own.
    fn write_catalog(&mut self, version: &str) {
        let mut parameters = ServerParameters::default();
        parameters.set("server_version", version);
        parameters.set("server_encoding", "UTF8");
        let mut bytes = Vec::new();
        parameters.encode(&mut bytes);
        let aux = self.builder.push_aux(RecordKind::ServerParameters, &bytes);
        aux.unwrap();
        let publication = Publication {
            oid: Oid(16_400),
            name: "p".to_owned(),
            actions: PublicationActions::ALL,
            tables: vec![PublicationTable {
                relation: TABLE,
                schema: "public".to_owned(),
                name: "t".to_owned(),
                ..PublicationTable::default()
            }],
            ..Publication::default()
        };
        let mut bytes = Vec::new();
        encode_publications(&[publication], &mut bytes);
        self.begin(Lsn(0x110));
        let aux = self.builder.push_aux(RecordKind::Publications, &bytes);
        aux.unwrap();
        self.commit(Lsn(0x110), Lsn(0x120));
    }

    fn begin(&mut self, commit_lsn: Lsn) {
        let begin = Begin {
            final_lsn: commit_lsn,
            commit_time: PgTimestamp(1),
            xid: Xid(700),
        };
        let bytes = payload(&Message::Begin(begin));
        let start = Lsn(commit_lsn.0 - 8);
        let pushed = self
            .builder
            .push_begin(&begin, start, PgTimestamp(2), &bytes);
        pushed.unwrap();
    }

    fn commit(&mut self, commit_lsn: Lsn, end_lsn: Lsn) {
        let commit = Commit {
            commit_lsn,
            end_lsn,
            commit_time: PgTimestamp(1),
        };
        let bytes = payload(&Message::Commit(commit));
        self.builder.push_commit(&commit, end_lsn, &bytes).unwrap();
        self.append();
    }

    /// A transaction that inserts one row; it commits at `commit` and ends 16 bytes further.
    pub(super) fn insert(&mut self, commit: u64, value: &str) {
        self.transaction(commit, TABLE, "t", value);
    }

    /// The same in the table that is not published.
    pub(super) fn insert_unpublished(&mut self, commit: u64) {
        self.transaction(commit, OTHER, "other", "x");
    }

    fn transaction(&mut self, commit: u64, oid: Oid, name: &str, value: &str) {
        let commit_lsn = Lsn(commit);
        self.begin(commit_lsn);
        let relation = payload(&Message::Relation(Relation {
            xid: None,
            oid,
            namespace: b"public",
            name: name.as_bytes(),
            replica_identity: ReplicaIdentity::Default,
            columns: vec![RelationColumn {
                is_key: true,
                name: b"id",
                type_oid: Oid(25),
                type_modifier: -1,
            }],
        }));
        let kind = RecordKind::Relation;
        let pushed = self.builder.push_change(kind, oid, Lsn::INVALID, &relation);
        pushed.unwrap();
        let mut row = vec![b'I'];
        row.extend(oid.0.to_be_bytes());
        row.extend(b"N\0\x01t");
        row.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        row.extend(value.as_bytes());
        let start = Lsn(commit - 4);
        let pushed = self
            .builder
            .push_change(RecordKind::Insert, oid, start, &row);
        pushed.unwrap();
        self.commit(commit_lsn, Lsn(commit + 16));
    }

    /// A logical message that belongs to no transaction.
    pub(super) fn lone_message(&mut self, lsn: u64, content: &[u8]) {
        let message = payload(&Message::LogicalMessage(LogicalMessage {
            xid: None,
            transactional: false,
            lsn: Lsn(lsn),
            prefix: b"test",
            content,
        }));
        let time = PgTimestamp(2);
        let pushed = self
            .builder
            .push_lone_message(Lsn(lsn), Lsn(lsn), time, &message);
        pushed.unwrap();
        self.append();
    }

    fn append(&mut self) {
        self.writer.append(&mut self.builder).unwrap();
        self.builder.start(None);
        self.writer.sync().unwrap();
        self.head.look();
    }

    /// The source moved on without changes.
    pub(super) fn progress(&mut self, lsn: u64) {
        self.writer.progress(Lsn(lsn)).unwrap();
        self.writer.sync().unwrap();
        self.head.look();
    }
}
