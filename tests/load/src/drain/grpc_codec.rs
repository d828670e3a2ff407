//! Counts what is in a response without building it.

use std::sync::Arc;

use bytes::Buf;
use parking_lot::Mutex;
use pg_proto::{Lsn, PgTimestamp};
use prost::Message;
use proto::v1::SubscribeRequest;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::frames::Tally;

/// Encodes requests, counts responses.
pub(super) struct CountingCodec(pub(super) Arc<Mutex<Tally>>);

/// The encoding half.
pub(super) struct RequestEncoder;

/// The counting half.
pub(super) struct CountingDecoder(Arc<Mutex<Tally>>);

impl Codec for CountingCodec {
    type Encode = SubscribeRequest;
    type Decode = ();
    type Encoder = RequestEncoder;
    type Decoder = CountingDecoder;

    fn encoder(&mut self) -> RequestEncoder {
        RequestEncoder
    }

    fn decoder(&mut self) -> CountingDecoder {
        CountingDecoder(Arc::clone(&self.0))
    }
}

impl Encoder for RequestEncoder {
    type Item = SubscribeRequest;
    type Error = Status;

    fn encode(&mut self, item: SubscribeRequest, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(out)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for CountingDecoder {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        let message = buffer.copy_to_bytes(buffer.remaining());
        let mut tally = self.0.lock();
        tally.bytes += message.len() as u64;
        let counted = Fields(&message).try_for_each(|field| tally.response(field));
        counted.ok_or_else(|| Status::internal("a response that is no SubscribeResponse"))?;
        Ok(Some(()))
    }
}

/// A field of a message: its number, and its value as a number or as bytes.
type Field<'a> = (u64, u64, &'a [u8]);

/// The fields of a message, one after the other; ends early at what is no protobuf.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let key = varint(&mut self.0)?;
        let number = key >> 3;
        match key & 7 {
            0 => Some((number, varint(&mut self.0)?, &[])),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                let (value, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Some((number, 0, value))
            }
            _ => None,
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The field numbers are those of `subscribe.proto`.
impl Tally {
    fn response(&mut self, (number, _, value): Field<'_>) -> Option<()> {
        match number {
            1 => Fields(value)
                .try_for_each(|(_, _, part)| Fields(part).try_for_each(|field| self.part(field))),
            2 => {
                let (_, lsn, _) = Fields(value).find(|(number, _, _)| *number == 1)?;
                self.position = self.position.max(Lsn(lsn));
                Some(())
            }
            _ => None,
        }
    }

    fn part(&mut self, (number, _, value): Field<'_>) -> Option<()> {
        match number {
            2 => {
                let (kind, _, _) = Fields(value).next()?;
                if kind == 2 || kind == 3 {
                    self.rows += 1;
                    self.first_row.get_or_insert_with(PgTimestamp::now);
                }
            }
            3 => self.grpc_commit(value),
            _ => {}
        }
        Some(())
    }

    fn grpc_commit(&mut self, value: &[u8]) {
        self.commits += 1;
        for (number, value, _) in Fields(value) {
            match number {
                2 => self.position = self.position.max(Lsn(value)),
                3 => {
                    let now = PgTimestamp::now().unix_micros();
                    let took = now.saturating_sub_unsigned(value);
                    if let Some(latencies) = &mut self.latencies {
                        latencies.push(u32::try_from(took).unwrap_or(0));
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::v1::subscribe_response::Kind;
    use proto::v1::{
        Batch, Change, Commit, Event, Progress, SubscribeResponse, TransactionPart, event,
    };

    use super::*;

    fn count(kind: Kind, tally: &mut Tally) {
        let response = SubscribeResponse { kind: Some(kind) };
        let bytes = response.encode_to_vec();
        Fields(&bytes)
            .try_for_each(|field| tally.response(field))
            .unwrap();
    }

    #[test]
    fn counts_what_prost_encodes() {
        let change = |raw: &'static [u8]| Event {
            kind: Some(event::Kind::Change(Change {
                raw: raw.into(),
                ..Change::default()
            })),
        };
        let relation = Event {
            kind: Some(event::Kind::Relation(proto::v1::Relation::default())),
        };
        let part = TransactionPart {
            begin: Some(proto::v1::Begin::default()),
            events: vec![relation, change(b"one"), change(&[7; 300])],
            commit: Some(Commit {
                commit_lsn: 90,
                end_lsn: 100,
                commit_time: 1,
            }),
        };
        let mut tally = Tally::default();
        let parts = vec![part.clone(), part];
        count(Kind::Batch(Batch { parts }), &mut tally);
        assert_eq!((tally.rows, tally.commits), (4, 2));
        assert_eq!(tally.position, Lsn(100));
        let progress = Progress {
            lsn: 120,
            head_lsn: 130,
        };
        count(Kind::Progress(progress), &mut tally);
        assert_eq!(tally.position, Lsn(120));
    }
}
