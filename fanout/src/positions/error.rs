//! What the decoder refused, or could not be asked.

/// A question to the decoder about slots failed.
#[derive(Debug, thiserror::Error)]
pub enum PositionsError {
    /// The decoder can't be reached.
    #[error("the decoder does not answer at {address}; is it running?")]
    Unavailable {
        /// Where it was looked for.
        address: String,
        /// What happened.
        #[source]
        source: tonic::Status,
    },
    /// There is no such slot. SQLSTATE 42704.
    #[error("replication slot \"{slot}\" does not exist")]
    UnknownSlot {
        /// Its name.
        slot: String,
    },
    /// There is one already. SQLSTATE 42710.
    #[error("replication slot \"{slot}\" already exists")]
    SlotExists {
        /// Its name.
        slot: String,
    },
    /// Another connection has it. SQLSTATE 55006.
    #[error("replication slot \"{slot}\" is active")]
    SlotInUse {
        /// Its name.
        slot: String,
        /// What the decoder said, or who has it on this fanout.
        holder: String,
    },
    /// The name is none, or the start position can't be had. SQLSTATE 42602 or 55000.
    #[error("{message}")]
    Refused {
        /// The decoder's words.
        message: String,
        /// SQLSTATE.
        sqlstate: &'static str,
    },
}

impl PositionsError {
    /// The SQLSTATE that PostgreSQL gives in this case.
    #[must_use]
    pub const fn sqlstate(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "57P03",
            Self::UnknownSlot { .. } => "42704",
            Self::SlotExists { .. } => "42710",
            Self::SlotInUse { .. } => "55006",
            Self::Refused { sqlstate, .. } => sqlstate,
        }
    }
}
