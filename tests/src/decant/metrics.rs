//! What a program counts, from its HTTP endpoint.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A metric as it is printed: the value in the line that begins with `name`, labels included.
pub(super) async fn metric(address: &str, name: &str) -> u64 {
    let text = metrics(address).await;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.find_map(|rest| rest.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no metric {name} in:\n{text}"))
}

async fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address)
        .await
        .expect("metrics are served");
    let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.expect("a request is taken");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("an answer comes");
    answer
}
