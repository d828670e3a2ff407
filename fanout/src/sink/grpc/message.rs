//! Messages as they go to the socket: a `SubscribeResponse` with gRPC's prefix before it, in one piece of memory.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use pg_proto::Lsn;
use prost::Message as _;
use prost::encoding::{encode_varint, encoded_len_varint};
use proto::v1::{Commit, SubscribeResponse};

use super::encode::{EVENTS, content_key, put_head};

/// gRPC's prefix: whether it is compressed, and the length.
const PREFIX_LEN: usize = 5;
/// The longest varint of a length that fits gRPC's prefix.
const LENGTH_MAX: usize = 5;
/// Room before a batch for the prefix, `SubscribeResponse.batch` and its length.
const HEAD_ROOM: usize = PREFIX_LEN + 1 + LENGTH_MAX;

const BATCH: u8 = content_key(1);
const PARTS: u8 = content_key(1);
const BEGIN: u8 = content_key(1);
const COMMIT: u8 = content_key(3);

/// One message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// With gRPC's prefix.
    pub(super) bytes: Bytes,
    /// The position behind the last transaction that it completes.
    pub(super) end: Option<Lsn>,
}

impl Message {
    /// One that was built.
    pub(super) fn of(response: &SubscribeResponse) -> Self {
        let len = response.encoded_len();
        let mut out = BytesMut::with_capacity(PREFIX_LEN + len);
        put_prefix(len, &mut out);
        response
            .encode(&mut out)
            .expect("there is room for the message");
        Self {
            bytes: out.freeze(),
            end: None,
        }
    }

    /// Its length without the prefix.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - PREFIX_LEN
    }
}

/// What is longer than 4 GiB is no message that gRPC has; a record of the log is never longer than 2 GiB.
fn put_prefix(len: usize, out: &mut impl BufMut) {
    out.put_u8(0);
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
}

/// A batch that is being written.
///
/// Lengths stand before what they measure and are known behind it. That of the batch is written into room that is left
/// before it. That of a part is written into [`LENGTH_MAX`] bytes, which is longer than it need be: protobuf's varints may
/// have zeros behind them.
#[derive(Debug, Default)]
pub(super) struct BatchWriter {
    out: BytesMut,
    /// Where the contents of the part at hand begin.
    part: Option<usize>,
    end: Option<Lsn>,
    /// Length of the last message: the next one is likely to be as long.
    last: usize,
}

impl BatchWriter {
    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Where the events of the part at hand are appended, each as a field; one begins if there is none.
    pub(super) fn events(&mut self) -> &mut BytesMut {
        if self.out.is_empty() {
            self.out.reserve(HEAD_ROOM + self.last);
            self.out.put_bytes(0, HEAD_ROOM);
        }
        if self.part.is_none() {
            self.out.put_u8(PARTS);
            self.out.put_bytes(0, LENGTH_MAX);
            self.part = Some(self.out.len());
        }
        &mut self.out
    }

    /// Begins a part with the transaction's begin.
    pub(super) fn begin(&mut self, begin: &proto::v1::Begin) {
        self.end_part();
        let out = self.events();
        put_message(BEGIN, begin, out);
    }

    /// Appends an event.
    pub(super) fn event(&mut self, event: &proto::v1::Event) {
        put_message(EVENTS, event, self.events());
    }

    /// Ends the part with the transaction's commit.
    pub(super) fn commit(&mut self, commit: &Commit) {
        put_message(COMMIT, commit, self.events());
        self.end = Some(Lsn(commit.end_lsn));
        self.end_part();
    }

    /// Ends the part at hand, if there is one.
    pub(super) fn end_part(&mut self) {
        let Some(start) = self.part.take() else {
            return;
        };
        let mut len = self.out.len() - start;
        let field = self.out.get_mut(start - LENGTH_MAX..start);
        let Some((last, others)) = field.and_then(<[u8]>::split_last_mut) else {
            return;
        };
        for byte in others {
            let [low, ..] = len.to_le_bytes();
            *byte = low | 0x80;
            len >>= 7;
        }
        let [low, ..] = len.to_le_bytes();
        *last = low & 0x7f;
    }

    /// The batch, if anything was written.
    pub(super) fn finish(&mut self) -> Option<Message> {
        self.end_part();
        if self.out.is_empty() {
            return None;
        }
        let len = self.out.len() - HEAD_ROOM;
        let field = 1 + encoded_len_varint(len as u64);
        self.last = len;
        let mut message = std::mem::take(&mut self.out);
        message.advance(HEAD_ROOM - PREFIX_LEN - field);
        let (mut prefix, rest) = message.split_at_mut(PREFIX_LEN);
        put_prefix(field + len, &mut prefix);
        let (key, mut length) = rest.split_at_mut(1);
        key.fill(BATCH);
        encode_varint(len as u64, &mut length);
        Some(Message {
            bytes: message.freeze(),
            end: self.end.take(),
        })
    }
}

fn put_message(key: u8, message: &impl prost::Message, out: &mut BytesMut) {
    put_head(key, message.encoded_len(), out);
    message.encode(out).expect("memory grows as it needs");
}
