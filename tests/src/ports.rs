//! Free ports on the loopback interface.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which the kernel takes ports for outgoing connections, so that none of those can take
/// a port between its choice and its use.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// `port` if nobody listens on it, else another one.
pub fn preferably(port: u16) -> u16 {
    if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
        port
    } else {
        free_port()
    }
}

/// A port that nobody listens on; each is handed out once in this process.
pub fn free_port() -> u16 {
    // Test processes that run at the same time start at different places.
    let start = u16::try_from(std::process::id() * 97 % u32::from(COUNT)).unwrap_or(0);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start.wrapping_add(step)) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
