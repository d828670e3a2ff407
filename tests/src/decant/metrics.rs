//! What a program counts, from its HTTP endpoint.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A metric as it is printed: the value in the line that begins with `name`, labels included.
pub(super) async fn metric(address: &str, name: &str) -> u64 {
    let text = get(address, "/metrics").await;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.find_map(|rest| rest.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no metric {name} in:\n{text}"))
}

/// What an HTTP server answers, headers included.
pub(super) async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address)
        .await
        .expect("metrics and health are served");
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("a request is taken");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("an answer comes");
    answer
}
