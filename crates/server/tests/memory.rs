//! Memory use of the server while many clients send large bodies. The test measures the whole process, so this file has no other test.
#![cfg(target_os = "linux")]
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::listening::listen;
use tidelock_server::ServerOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the peak memory use of this process so far, in MiB.
fn most() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

/// Returns the number of clients that this process can run. Clients and server share its limit on open files.
fn clients() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    (files.saturating_sub(100) / 2).min(1_000)
}

/// Sends a request on a new connection and returns the response.
async fn sent(address: SocketAddr, head: &str, body: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_with_large_bodies_do_not_take_the_memory() {
    // All clients share a machine that may be slow, so the timeouts are long. The test measures memory only.
    let patient = |options: ServerOptions| options.any_rate().head_time(PATIENCE).request_time(PATIENCE);
    let site = listen(patient).await;
    let body = Arc::new(vec![b'x'; 1024 * 1024]);
    let more = "if-none-match: *\r\ncontent-type: application/json\r\ncontent-length: 1048576\r\nconnection: close\r\n";
    let head = Arc::new(site.head("/api/v1/state/k", more).replacen("GET", "PUT", 1));
    let (address, before) = (site.address, most());
    let mut all = JoinSet::new();
    for _ in 0..clients() {
        let (head, body) = (Arc::clone(&head), Arc::clone(&body));
        // The operating system rejects some connections while very many arrive at once, so each client retries.
        all.spawn(async move {
            loop {
                if let Ok(answer) = sent(address, &head, &body).await {
                    return answer;
                }
            }
        });
    }
    while let Some(answer) = all.join_next().await {
        let answer = answer.unwrap();
        // The server read the whole body before it found that it is not JSON.
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("TL1308"), "{answer}");
    }
    let after = most();
    assert!(after < 256, "{after} MiB, and {before} MiB before");
    site.shut().await;
}
