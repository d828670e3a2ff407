//! What the machine itself can carry: a sender that has nothing to do but to send.
//!
//! It answers as a walsender does as far as the receivers need it, then writes the same frames again and again from one
//! buffer. A thread for each connection, blocking writes: there is no cheaper way to send from memory by TCP.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use pg_proto::replication::XLogData;
use pg_proto::{Lsn, PgTimestamp};

/// Sends so much with one write.
const WRITE_BYTES: usize = 256 << 10;

/// Where the last transaction ends.
pub const END: Lsn = Lsn(1 << 20);

/// A sender on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Sender {
    port: u16,
    accepting: JoinHandle<()>,
}

/// What is sent on each connection.
#[derive(Clone, Debug)]
struct Load {
    /// Whole frames.
    chunk: Vec<u8>,
    chunk_rows: u64,
    frame_bytes: usize,
    rows: u64,
}

impl Sender {
    /// Will send `rows` rows, each in a frame of `frame_bytes`, to each of `connections` clients.
    pub fn start(connections: usize, rows: u64, frame_bytes: usize) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback is free");
        let port = listener.local_addr().expect("it is bound").port();
        let load = Arc::new(Load::new(rows, frame_bytes));
        let accepting = std::thread::spawn(move || {
            let mut senders = Vec::new();
            for _ in 0..connections {
                let (stream, _) = listener.accept().expect("the receivers connect");
                let load = Arc::clone(&load);
                // The receivers hang up when they have everything.
                senders.push(std::thread::spawn(move || drop(serve(stream, &load))));
            }
            for sender in senders {
                let _ = sender.join();
            }
        });
        Self { port, accepting }
    }

    /// Where to connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until every client has hung up.
    pub fn join(self) {
        let _ = self.accepting.join();
    }
}

impl Load {
    fn new(rows: u64, frame_bytes: usize) -> Self {
        let row = frame(b'I', frame_bytes);
        let chunk_rows = (WRITE_BYTES / row.len()).max(1);
        Self {
            chunk: row.repeat(chunk_rows),
            chunk_rows: chunk_rows as u64,
            frame_bytes: row.len(),
            rows,
        }
    }

    fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        for _ in 0..self.rows / self.chunk_rows {
            stream.write_all(&self.chunk)?;
        }
        let rest = usize::try_from(self.rows % self.chunk_rows).unwrap_or(0);
        stream.write_all(&self.chunk[..rest * self.frame_bytes])?;
        stream.write_all(&commit())
    }
}

/// A CopyData frame with a message of one kind, so long in all.
fn frame(kind: u8, bytes: usize) -> Vec<u8> {
    let mut payload = vec![b' '; bytes.saturating_sub(31)];
    payload.insert(0, kind);
    encode(&payload)
}

fn commit() -> Vec<u8> {
    let mut payload = vec![b'C', 0];
    for field in [END.0 - 8, END.0, 0] {
        payload.extend_from_slice(&field.to_be_bytes());
    }
    encode(&payload)
}

fn encode(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    XLogData {
        start: END,
        end: END,
        send_time: PgTimestamp(0),
        payload,
    }
    .encode_frame(&mut out);
    out
}

/// AuthenticationOk and ReadyForQuery.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
/// CopyBothResponse of no columns.
const COPY_BOTH: &[u8] = b"W\0\0\0\x07\0\0\0";

fn serve(mut stream: TcpStream, load: &Load) -> io::Result<()> {
    stream.set_nodelay(true)?;
    skip(&mut stream, 0)?;
    stream.write_all(WELCOME)?;
    skip(&mut stream, 1)?;
    stream.write_all(COPY_BOTH)?;
    load.send(&mut stream)?;
    // Status updates until the receivers hang up.
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

/// Reads one message with `kind_bytes` in front of its length.
fn skip(stream: &mut TcpStream, kind_bytes: usize) -> io::Result<()> {
    let mut head = [0; 5];
    let head = &mut head[..kind_bytes + 4];
    stream.read_exact(head)?;
    let length = head[kind_bytes..]
        .iter()
        .fold(0, |length, byte| length << 8 | u64::from(*byte));
    let mut body = stream.take(length.saturating_sub(4));
    io::copy(&mut body, &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::Tally;

    #[test]
    fn the_receivers_understand_what_is_sent() {
        let load = Load::new(10_000, 180);
        let mut bytes = load.chunk.clone();
        assert_eq!(bytes.len() % load.frame_bytes, 0);
        assert_eq!(load.frame_bytes, 180);
        bytes.extend(commit());
        let mut tally = Tally::default();
        assert_eq!(tally.take(&bytes).unwrap(), bytes.len());
        assert_eq!((tally.rows, tally.commits), (load.chunk_rows, 1));
        assert_eq!(tally.position, END);
    }
}
