//! How a transaction was prepared that commits later.

use pg_proto::pgoutput::{BeginPrepare, Prepare};
use pg_proto::read::{ReadError, Reader};
use pg_proto::{Lsn, PgTimestamp, Xid};

use crate::staging::PreparedId;

/// Bytes before the gid.
const FIXED_LEN: usize = 29;
/// The flag of [`PreparedRecord::at_prepare`].
const AT_PREPARE: u8 = 1;

/// The content of a [`Prepared`](super::RecordKind::Prepared) record, which stands behind the BEGIN of a transaction that
/// was committed by COMMIT PREPARED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedRecord {
    /// Start of the prepare record.
    pub prepare_lsn: Lsn,
    /// Its end.
    pub prepare_end_lsn: Lsn,
    /// When the transaction was prepared.
    pub prepare_time: PgTimestamp,
    /// The transaction.
    pub xid: Xid,
    /// Whether the log has the transaction at its PREPARE, too. Not so if it was prepared before the source's slot sent
    /// prepared transactions.
    pub at_prepare: bool,
    /// The identifier that its user gave it.
    pub gid: Vec<u8>,
}

impl PreparedRecord {
    /// What a PREPARE says.
    #[must_use]
    pub fn new(prepare: &Prepare<'_>, at_prepare: bool) -> Self {
        Self {
            prepare_lsn: prepare.prepare_lsn,
            prepare_end_lsn: prepare.end_lsn,
            prepare_time: prepare.prepare_time,
            xid: prepare.xid,
            at_prepare,
            gid: prepare.gid.to_vec(),
        }
    }

    /// Which transaction this is.
    #[must_use]
    pub fn id(&self) -> PreparedId {
        PreparedId {
            prepare_end_lsn: self.prepare_end_lsn,
            gid: self.gid.clone(),
        }
    }

    /// The BEGIN PREPARE.
    #[must_use]
    pub fn begin_prepare(&self) -> BeginPrepare<'_> {
        BeginPrepare {
            prepare_lsn: self.prepare_lsn,
            end_lsn: self.prepare_end_lsn,
            prepare_time: self.prepare_time,
            xid: self.xid,
            gid: &self.gid,
        }
    }

    /// The PREPARE.
    #[must_use]
    pub fn prepare(&self) -> Prepare<'_> {
        Prepare {
            prepare_lsn: self.prepare_lsn,
            end_lsn: self.prepare_end_lsn,
            prepare_time: self.prepare_time,
            xid: self.xid,
            gid: &self.gid,
        }
    }

    /// Appends the stored bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(FIXED_LEN + self.gid.len());
        out.extend_from_slice(&self.prepare_lsn.0.to_le_bytes());
        out.extend_from_slice(&self.prepare_end_lsn.0.to_le_bytes());
        out.extend_from_slice(&self.prepare_time.0.to_le_bytes());
        out.extend_from_slice(&self.xid.0.to_le_bytes());
        out.push(if self.at_prepare { AT_PREPARE } else { 0 });
        out.extend_from_slice(&self.gid);
    }

    /// The inverse of [`Self::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader::new(bytes);
        let mut lsn = |field| reader.u64(field).map(u64::swap_bytes);
        let prepare_lsn = Lsn(lsn("prepare LSN")?);
        let prepare_end_lsn = Lsn(lsn("prepare end LSN")?);
        let prepare_time = PgTimestamp(lsn("prepare time")?.cast_signed());
        let xid = Xid(reader.u32("transaction id")?.swap_bytes());
        let flags = reader.u8("flags")?;
        Ok(Self {
            prepare_lsn,
            prepare_end_lsn,
            prepare_time,
            xid,
            at_prepare: flags & AT_PREPARE != 0,
            gid: reader.rest().to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PreparedRecord {
        PreparedRecord {
            prepare_lsn: Lsn(0x0102),
            prepare_end_lsn: Lsn(0x0304),
            prepare_time: PgTimestamp(-5),
            xid: Xid(7),
            at_prepare: true,
            gid: b"it's".to_vec(),
        }
    }

    #[test]
    fn round_trips() {
        let mut bytes = Vec::new();
        record().encode(&mut bytes);
        assert_eq!(bytes.len(), FIXED_LEN + 4);
        assert_eq!(&bytes[..2], &[2, 1]);
        assert_eq!(PreparedRecord::decode(&bytes).unwrap(), record());
    }

    #[test]
    fn every_truncation_of_the_fixed_part_is_refused() {
        let mut bytes = Vec::new();
        record().encode(&mut bytes);
        for end in 0..FIXED_LEN {
            assert!(PreparedRecord::decode(&bytes[..end]).is_err(), "{end}");
        }
    }
}
