//! The whole process, without a decoder.

use std::net::SocketAddr;
use std::time::Duration;

use service::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{RunError, serve};
use crate::testing::TestLog;

/// An address that was free a moment ago.
async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

async fn config(log: &TestLog) -> Config {
    let mut config = Config::default();
    config.log.directory = log.folder.path().to_owned();
    config.fanout.http = free_address().await;
    config.fanout.grpc = free_address().await;
    config.fanout.postgres = free_address().await;
    config.fanout.decoder = "http://127.0.0.1:9".to_owned();
    config
}

/// Status line and body.
async fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut socket = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

async fn until(address: SocketAddr, path: &str, what: &str) {
    let mut last = None;
    for _ in 0..500 {
        last = get(address, path).await;
        if last.as_ref().is_some_and(|answer| answer.contains(what)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no {what} at {path}: {last:?}");
}

#[tokio::test]
async fn it_is_ready_when_the_log_is_there_and_ends_when_it_is_told() {
    let log = TestLog::new();
    let config = config(&log).await;
    let watermark = log.folder.path().join("watermark");
    let aside = log.folder.path().join("aside");
    std::fs::rename(&watermark, &aside).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(serve(config.clone(), stop.clone()));
    until(config.fanout.http, "/readyz", "503").await;
    until(config.fanout.http, "/healthz", "200").await;
    assert!(TcpStream::connect(config.fanout.grpc).await.is_err());
    std::fs::rename(&aside, &watermark).unwrap();
    until(config.fanout.http, "/readyz", "200").await;
    assert!(TcpStream::connect(config.fanout.grpc).await.is_ok());
    assert!(TcpStream::connect(config.fanout.postgres).await.is_ok());
    until(
        config.fanout.http,
        "/metrics",
        "decant_fanout_head_lsn 16777216",
    )
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(get(config.fanout.http, "/healthz").await, None);
}

#[tokio::test]
async fn what_can_not_be_had_is_named() {
    let log = TestLog::new();
    let mut taken = config(&log).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    taken.fanout.postgres = listener.local_addr().unwrap();
    let error = serve(taken, CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("fanout.postgres"), "{error}");

    let mut unreachable = config(&log).await;
    unreachable.fanout.decoder = "nowhere at all".to_owned();
    let error = serve(unreachable, CancellationToken::new()).await;
    assert!(matches!(error, Err(RunError::Decoder(_))));

    let damaged = config(&log).await;
    std::fs::write(log.folder.path().join("watermark"), [7; 4096]).unwrap();
    let error = serve(damaged, CancellationToken::new()).await;
    assert!(matches!(error, Err(RunError::Log(_))), "{error:?}");
}
