//! How much memory the server takes while many clients send it much. It is measured for the whole process, so this test is alone here.
#![cfg(target_os = "linux")]
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::listening::listen;
use tidelock_server::Options;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(300);

/// The most memory that this process had so far, in MiB.
fn most() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

/// How many clients this process may have: the server and they share its files.
fn clients() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    (files.saturating_sub(100) / 2).min(1_000)
}

/// The answer to a request on a connection of its own.
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
    // Everybody here shares a machine that may be slow; what counts is the memory.
    let patient = |options: Options| options.any_rate().head_time(PATIENCE).request_time(PATIENCE);
    let site = listen(patient).await;
    let body = Arc::new(vec![b'x'; 1024 * 1024]);
    let more = "if-none-match: *\r\ncontent-type: application/json\r\ncontent-length: 1048576\r\nconnection: close\r\n";
    let head = Arc::new(site.head("/api/v1/state/k", more).replacen("GET", "PUT", 1));
    let (address, before) = (site.address, most());
    let mut all = JoinSet::new();
    for _ in 0..clients() {
        let (head, body) = (Arc::clone(&head), Arc::clone(&body));
        // The system turns some of them away while very many come at once.
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
        // All of it was read before it was found to be no JSON.
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("TL1308"), "{answer}");
    }
    let after = most();
    assert!(after < 256, "{after} MiB, and {before} MiB before");
    site.shut().await;
}
