//! What a server says of itself besides answering.

use std::collections::{BTreeMap, VecDeque};

use pg_proto::wire::{BackendMessage, ErrorFields, Frame, TransactionStatus};

use crate::error::Error;

/// Notices that nobody took; more push the oldest out.
const NOTICES_MAX: usize = 64;

/// The state of a session as the server reported it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) status: TransactionStatus,
    pub(crate) notices: VecDeque<ErrorFields>,
    pub(crate) pid: u32,
    pub(crate) key: Vec<u8>,
    /// Whether authentication was bound to the TLS connection.
    pub(crate) channel_bound: bool,
}

impl Session {
    pub(crate) const fn new() -> Self {
        Self {
            parameters: BTreeMap::new(),
            status: TransactionStatus::Idle,
            notices: VecDeque::new(),
            pid: 0,
            key: Vec::new(),
            channel_bound: false,
        }
    }

    /// Takes note of a frame that changes the state. True if that is all there is to it: settings, notices and
    /// notifications may come at any time. ReadyForQuery is noted too, and is for the caller.
    pub(crate) fn note(&mut self, frame: Frame<'_>) -> Result<bool, Error> {
        if !matches!(frame.tag, b'S' | b'N' | b'A' | b'K' | b'Z') {
            return Ok(false);
        }
        match BackendMessage::decode(frame)? {
            BackendMessage::ParameterStatus { name, value } => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                self.parameters.insert(text(name), text(value));
                Ok(true)
            }
            BackendMessage::NoticeResponse(notice) => {
                if self.notices.len() >= NOTICES_MAX {
                    self.notices.pop_front();
                }
                self.notices.push_back(notice);
                Ok(true)
            }
            BackendMessage::BackendKeyData { pid, key } => {
                self.pid = pid;
                self.key = key.to_vec();
                Ok(true)
            }
            BackendMessage::ReadyForQuery(status) => {
                self.status = status;
                Ok(false)
            }
            _ => Ok(true),
        }
    }
}

/// The error of an ErrorResponse.
pub(crate) fn server_error(frame: Frame<'_>) -> Error {
    match ErrorFields::decode(frame.body) {
        Ok(fields) => Error::Server(Box::new(fields)),
        Err(malformed) => Error::Message(malformed),
    }
}
