//! The messages as Rust types that borrow from the payload.

use super::tuple::Tuple;
use crate::{Lsn, Oid, PgTimestamp, Xid};

/// One message of the stream. Names are the bytes that the source sent, in its own encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A transaction begins that is not streamed.
    Begin(Begin),
    /// It ends.
    Commit(Commit),
    /// The transaction came from another node.
    Origin(Origin<'a>),
    /// The description of a relation, before its first change and after it may have changed.
    Relation(Relation<'a>),
    /// The name of a type that is not built in.
    Type(Type<'a>),
    /// INSERT, UPDATE or DELETE of a row.
    Change(Change<'a>),
    /// TRUNCATE of one or more relations.
    Truncate(Truncate<'a>),
    /// What `pg_logical_emit_message` wrote.
    LogicalMessage(LogicalMessage<'a>),
    /// A part of an in-progress transaction begins.
    StreamStart(StreamStart),
    /// That part ends.
    StreamStop,
    /// A streamed transaction commits.
    StreamCommit(StreamCommit),
    /// A streamed (sub)transaction is rolled back.
    StreamAbort(StreamAbort),
    /// A transaction begins that will be prepared.
    BeginPrepare(BeginPrepare<'a>),
    /// It is prepared.
    Prepare(Prepare<'a>),
    /// A prepared transaction commits.
    CommitPrepared(CommitPrepared<'a>),
    /// A prepared transaction is rolled back.
    RollbackPrepared(RollbackPrepared<'a>),
    /// A streamed transaction is prepared.
    StreamPrepare(Prepare<'a>),
}

/// BEGIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Start of the commit record; equals [`Commit::commit_lsn`].
    pub final_lsn: Lsn,
    /// When the transaction committed, at its origin if it has one.
    pub commit_time: PgTimestamp,
    /// The top-level transaction.
    pub xid: Xid,
}

/// COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Start of the commit record.
    pub commit_lsn: Lsn,
    /// End of the commit record: the position after the transaction.
    pub end_lsn: Lsn,
    /// As in [`Begin`].
    pub commit_time: PgTimestamp,
}

/// ORIGIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The commit's position at the origin, `0/0` inside streams.
    pub origin_lsn: Lsn,
    /// The origin's name.
    pub name: &'a [u8],
}

/// `pg_class.relreplident`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReplicaIdentity {
    /// The primary key, if there is one.
    Default = b'd',
    /// None.
    Nothing = b'n',
    /// The whole row.
    Full = b'f',
    /// A chosen unique index.
    Index = b'i',
}

/// RELATION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation<'a> {
    /// The subtransaction, inside a stream only.
    pub xid: Option<Xid>,
    /// The relation's identifier at the source.
    pub oid: Oid,
    /// Its schema; empty stands for `pg_catalog`.
    pub namespace: &'a [u8],
    /// Its name.
    pub name: &'a [u8],
    /// Its replica identity.
    pub replica_identity: ReplicaIdentity,
    /// Its published columns, in order.
    pub columns: Vec<RelationColumn<'a>>,
}

/// A column of [`Relation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelationColumn<'a> {
    /// Whether it is part of the replica identity (flag bit 1).
    pub is_key: bool,
    /// Its name.
    pub name: &'a [u8],
    /// `pg_attribute.atttypid`.
    pub type_oid: Oid,
    /// `pg_attribute.atttypmod`, -1 for none.
    pub type_modifier: i32,
}

/// TYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type<'a> {
    /// The subtransaction, inside a stream only.
    pub xid: Option<Xid>,
    /// The type's identifier at the source.
    pub oid: Oid,
    /// Its schema; empty stands for `pg_catalog`.
    pub namespace: &'a [u8],
    /// Its name; of a domain, the name of its base type.
    pub name: &'a [u8],
}

/// The row as it was, as far as the replica identity tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldTuple<'a> {
    /// 'K': the key columns; the others are null.
    Key(Tuple<'a>),
    /// 'O': the whole row (replica identity full).
    Full(Tuple<'a>),
}

/// INSERT, UPDATE and DELETE. Insert: only `new`; update: `new` and perhaps `old`; delete: only `old`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A row is inserted.
    Insert {
        /// The subtransaction, inside a stream only.
        xid: Option<Xid>,
        /// The relation.
        relation: Oid,
        /// The row.
        new: Tuple<'a>,
    },
    /// A row is updated.
    Update {
        /// The subtransaction, inside a stream only.
        xid: Option<Xid>,
        /// The relation.
        relation: Oid,
        /// The row before, if the key changed or the identity is full.
        old: Option<OldTuple<'a>>,
        /// The row after.
        new: Tuple<'a>,
    },
    /// A row is deleted.
    Delete {
        /// The subtransaction, inside a stream only.
        xid: Option<Xid>,
        /// The relation.
        relation: Oid,
        /// The row before.
        old: OldTuple<'a>,
    },
}

impl Change<'_> {
    /// The relation.
    #[must_use]
    pub const fn relation(&self) -> Oid {
        match self {
            Self::Insert { relation, .. }
            | Self::Update { relation, .. }
            | Self::Delete { relation, .. } => *relation,
        }
    }

    /// The subtransaction, inside a stream only.
    #[must_use]
    pub const fn xid(&self) -> Option<Xid> {
        match self {
            Self::Insert { xid, .. } | Self::Update { xid, .. } | Self::Delete { xid, .. } => *xid,
        }
    }
}

/// TRUNCATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate<'a> {
    /// The subtransaction, inside a stream only.
    pub xid: Option<Xid>,
    /// `TRUNCATE ... CASCADE` (flag bit 1).
    pub cascade: bool,
    /// `TRUNCATE ... RESTART IDENTITY` (flag bit 2).
    pub restart_identity: bool,
    /// The relations, big-endian.
    pub(crate) relations: &'a [[u8; 4]],
}

impl<'a> Truncate<'a> {
    /// A TRUNCATE of `relations`, each a big-endian OID.
    #[must_use]
    pub const fn new(
        xid: Option<Xid>,
        cascade: bool,
        restart_identity: bool,
        relations: &'a [[u8; 4]],
    ) -> Self {
        Self {
            xid,
            cascade,
            restart_identity,
            relations,
        }
    }

    /// The relations.
    pub fn relations(&self) -> impl ExactSizeIterator<Item = Oid> + use<'a> {
        self.relations
            .iter()
            .map(|oid| Oid(u32::from_be_bytes(*oid)))
    }
}

/// A logical message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalMessage<'a> {
    /// The transaction, inside a stream only.
    pub xid: Option<Xid>,
    /// Whether it belongs to its transaction; if not, it stands alone, also when that rolls back.
    pub transactional: bool,
    /// End of the message's record.
    pub lsn: Lsn,
    /// Its prefix.
    pub prefix: &'a [u8],
    /// Its content.
    pub content: &'a [u8],
}

/// STREAM START.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamStart {
    /// The top-level transaction.
    pub xid: Xid,
    /// Whether this is the transaction's first part on this connection.
    pub first_segment: bool,
}

/// STREAM COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCommit {
    /// The top-level transaction.
    pub xid: Xid,
    /// As in [`Commit`].
    pub commit: Commit,
}

/// STREAM ABORT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamAbort {
    /// The top-level transaction.
    pub xid: Xid,
    /// The subtransaction that is rolled back; the top-level one if all is.
    pub subxid: Xid,
    /// Position and time of the abort, with `streaming = 'parallel'` only.
    pub abort: Option<(Lsn, PgTimestamp)>,
}

/// BEGIN PREPARE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeginPrepare<'a> {
    /// Start of the prepare record.
    pub prepare_lsn: Lsn,
    /// End of the prepare record.
    pub end_lsn: Lsn,
    /// When it was prepared.
    pub prepare_time: PgTimestamp,
    /// The transaction.
    pub xid: Xid,
    /// The identifier given by the user.
    pub gid: &'a [u8],
}

/// PREPARE and STREAM PREPARE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// Start of the prepare record.
    pub prepare_lsn: Lsn,
    /// End of the prepare record.
    pub end_lsn: Lsn,
    /// When it was prepared.
    pub prepare_time: PgTimestamp,
    /// The transaction.
    pub xid: Xid,
    /// The identifier given by the user.
    pub gid: &'a [u8],
}

/// COMMIT PREPARED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPrepared<'a> {
    /// Position and time of the commit.
    pub commit: Commit,
    /// The transaction.
    pub xid: Xid,
    /// The identifier given by the user.
    pub gid: &'a [u8],
}

/// ROLLBACK PREPARED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollbackPrepared<'a> {
    /// End of the prepare record.
    pub prepare_end_lsn: Lsn,
    /// End of the rollback record.
    pub rollback_end_lsn: Lsn,
    /// When it was prepared.
    pub prepare_time: PgTimestamp,
    /// When it was rolled back.
    pub rollback_time: PgTimestamp,
    /// The transaction.
    pub xid: Xid,
    /// The identifier given by the user.
    pub gid: &'a [u8],
}
