//! A recorded stream in the place of a walsender, which is slower than what is to be measured.
//!
//! A proxy in front of the source: everything that a client asks goes through, so that it finds the server that it expects.
//! Only START_REPLICATION is answered here, with the recording, as fast as it is taken.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pg_proto::replication::Keepalive;
use pg_proto::{Lsn, PgTimestamp};

/// Messages that are no frames: their first word is a length, their second a code.
const SSL_REQUEST: u32 = 80_877_103;
/// CopyBothResponse of no columns.
const COPY_BOTH: &[u8] = b"W\0\0\0\x07\0\0\0";
const KEEPALIVE_EVERY: Duration = Duration::from_millis(100);
const WRITE_BYTES: usize = 256 << 10;

/// What is played.
#[derive(Debug)]
pub struct Recording {
    /// CopyData frames.
    pub frames: Vec<u8>,
    /// Position behind the last of them.
    pub end: Lsn,
}

/// The proxy.
#[derive(Debug)]
pub struct Player {
    port: u16,
    go: Arc<AtomicBool>,
}

impl Player {
    /// Listens in front of the server on `source_port`. Ends with the process.
    pub fn start(source_port: u16, recording: Recording) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback is free");
        let port = listener.local_addr().expect("it is bound").port();
        let go = Arc::new(AtomicBool::new(false));
        let recording = Arc::new(recording);
        let begin = Arc::clone(&go);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (recording, begin) = (Arc::clone(&recording), Arc::clone(&begin));
                // Either side may hang up.
                thread::spawn(move || drop(serve(client, source_port, &recording, &begin)));
            }
        });
        Self { port, go }
    }

    /// Where to connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets the recording be played.
    pub fn go(&self) {
        self.go.store(true, Ordering::Release);
    }
}

fn serve(
    mut client: TcpStream,
    source_port: u16,
    recording: &Recording,
    go: &AtomicBool,
) -> io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, source_port))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    pass_startup(&mut client, &mut server)?;
    loop {
        let mut kind = [0];
        client.read_exact(&mut kind)?;
        let body = read_body(&mut client)?;
        if kind == *b"Q" && body.starts_with(b"START_REPLICATION") {
            return play(client, recording, go);
        }
        server.write_all(&frame(Some(kind[0]), &body))?;
    }
}

/// Passes on the packets that have no type byte: one, or two if encryption was asked for first, which the server refuses.
fn pass_startup(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    loop {
        let body = read_body(client)?;
        server.write_all(&frame(None, &body))?;
        if !body.starts_with(&SSL_REQUEST.to_be_bytes()) {
            return Ok(());
        }
    }
}

fn read_body(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = Vec::new();
    let length = u64::from(u32::from_be_bytes(length)).saturating_sub(4);
    stream.take(length).read_to_end(&mut body)?;
    Ok(body)
}

fn frame(kind: Option<u8>, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    let mut out: Vec<u8> = kind.into_iter().collect();
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn play(mut client: TcpStream, recording: &Recording, go: &AtomicBool) -> io::Result<()> {
    client.write_all(COPY_BOTH)?;
    // Status updates are not looked at, but have to be taken.
    let mut reports = client.try_clone()?;
    thread::spawn(move || io::copy(&mut reports, &mut io::sink()));
    while !go.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    for piece in recording.frames.chunks(WRITE_BYTES) {
        client.write_all(piece)?;
    }
    loop {
        let mut keepalive = Vec::new();
        Keepalive {
            end: recording.end,
            send_time: PgTimestamp::now(),
            reply_requested: true,
        }
        .encode_frame(&mut keepalive);
        client.write_all(&keepalive)?;
        thread::sleep(KEEPALIVE_EVERY);
    }
}
