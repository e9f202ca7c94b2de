//! Hostile input from malicious clients, byte by byte on a socket.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::listening::{LONG, listen, rest};
use common::{Site, encoded};
use tidelock::prelude::*;
use tokio::io::AsyncWriteExt as _;

#[tokio::test]
async fn requests_for_other_hosts_are_refused_on_the_wire() {
    let site = listen(|options| options).await;
    let (port, token) = (site.address.port(), site.site.read.reveal().to_owned());
    let ask = async |first: &str, hosts: &[&str]| {
        let hosts: String = hosts.iter().map(|host| format!("host: {host}\r\n")).collect();
        let answer = site
            .send(&format!("{first}\r\n{hosts}authorization: Bearer {token}\r\nconnection: close\r\n\r\n"))
            .await;
        let status = answer.split(' ').nth(1).unwrap_or("nothing").to_owned();
        if status == "421" {
            assert!(answer.contains("TL1303") && !answer.contains("backend"), "{answer}");
        }
        status
    };
    let (new, old) = ("GET /readyz HTTP/1.1", "GET /readyz HTTP/1.0");
    for host in [
        "evil.test",
        "evil.test:80",
        "rebind.127.0.0.1.example",
        "127.0.0.1.evil.test",
        "localhost.",
        "localhost:",
        "localhost:80:80",
        "localhost@evil.test",
        "evil.test#localhost",
        "[::2]",
        "[::ffff:127.0.0.1]",
        "[::1",
        "::1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "",
    ] {
        assert_eq!(ask(new, &[host]).await, "421", "{host}");
        assert_eq!(ask(old, &[host]).await, "421", "{host}, HTTP/1.0");
    }
    for (first, hosts) in [
        (new, &[][..]),
        (old, &[]),
        (new, &["localhost", "localhost"]),
        (new, &["localhost", "evil.test"]),
        (new, &["evil.test", "localhost"]),
        ("GET http://evil.test/readyz HTTP/1.1", &["localhost"]),
        ("GET http://localhost/readyz HTTP/1.1", &["evil.test"]),
        ("GET http://localhost@evil.test/readyz HTTP/1.1", &["localhost"]),
    ] {
        let status = ask(first, hosts).await;
        assert!(status == "421" || status == "400", "{first} {hosts:?}: {status}");
    }
    let with_port = format!("localhost:{port}");
    for host in ["localhost", &with_port, "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:4400", "LocalHost"] {
        assert_eq!(ask(new, &[host]).await, "200", "{host}");
        assert_eq!(ask(old, &[host]).await, "200", "{host}, HTTP/1.0");
    }
    assert_eq!(ask("GET http://localhost/readyz HTTP/1.1", &["localhost"]).await, "200");
    site.shut().await;
}

#[tokio::test]
async fn a_page_of_nowhere_and_a_form_cannot_write() {
    let site = listen(|options| options).await;
    let post = async |more: &str| {
        let token = site.site.write.reveal();
        let head = "POST /api/v1/work:batch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        site.send(&format!(
            "{head}authorization: Bearer {token}\r\ncontent-length: 33\r\n{more}\r\n{{\"verb\": \"unblock\", \"confirm\": 0}}"
        ))
        .await
    };
    let json = "content-type: application/json\r\n";
    assert!(post(&format!("{json}origin: null\r\n")).await.contains("TL1304"));
    assert!(post(&format!("{json}origin: http://localhost\r\norigin: null\r\n")).await.contains("TL1304"));
    assert!(post("content-type: text/plain\r\n").await.contains("TL1305"));
    assert!(post("content-type: text/plain;charset=application/json\r\n").await.contains("TL1305"));
    assert!(post("").await.contains("TL1305"));
    let well = post(&format!("{json}origin: http://localhost\r\n")).await;
    assert!(well.starts_with("HTTP/1.1 200"), "{well}");
    for answer in [well, post(&format!("{json}origin: https://evil.test\r\n")).await] {
        assert!(!answer.to_ascii_lowercase().contains("access-control"), "{answer}");
    }
    site.shut().await;
}

#[tokio::test]
async fn clients_that_send_a_byte_now_and_then_are_cut_and_others_are_served() {
    let site = listen(|options| options.head_time(Duration::from_millis(500)).connections(8)).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut stream = site.connect().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n").await.unwrap();
        slow.push(tokio::spawn(async move {
            let began = Instant::now();
            // Each byte arrives in time, but the complete head never does.
            while stream.write_all(b"x").await.is_ok() {
                assert!(began.elapsed() < LONG, "the server never closes the connection");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }));
    }
    let answer = site.whole("/healthz").await;
    assert!(answer.ends_with("ok\n"), "all seats were taken, and are free again: {answer}");
    for client in slow {
        client.await.unwrap();
    }
    site.shut().await;
}

#[tokio::test]
async fn a_body_without_an_end_is_cut_early() {
    let site = listen(|options| options).await;
    let mut stream = site.connect().await;
    let more = "if-none-match: *\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n";
    let head = site.head("/api/v1/state/k", more).replacen("GET", "PUT", 1);
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
    let sent = tokio::spawn(async move {
        let mut sent = 0_usize;
        while sent < 1 << 30 {
            match tokio::time::timeout(Duration::from_secs(2), writer.write_all(chunk.as_bytes())).await {
                Ok(Ok(())) => sent += 0x1_0000,
                // The server has closed the connection, or has stopped reading.
                Ok(Err(_)) | Err(_) => break,
            }
        }
        sent
    });
    let mut head = vec![0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut reader, &mut head).await.unwrap();
    assert_eq!(head, b"HTTP/1.1 413");
    let sent = sent.await.unwrap();
    assert!(sent < 32 << 20, "{sent} bytes were taken");
    assert!(site.site.store.document(&"k".parse().unwrap()).await.unwrap().is_none());

    // The server does not read a body whose announced length is too large.
    let mut stream = site.connect().await;
    let more = "if-none-match: *\r\ncontent-type: application/json\r\ncontent-length: 1073741824\r\n";
    let head = site.head("/api/v1/state/k", more).replacen("GET", "PUT", 1);
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("TL1306"), "{answer}");
    // The server does not decompress bodies, so a compression bomb cannot expand. Compressed data is not JSON.
    let packed = site
        .site
        .ask("PUT", "/api/v1/state/k")
        .header("content-encoding", "gzip")
        .header("if-none-match", "*");
    let packed = packed.header("content-type", "application/json").body("\u{1f}\u{8b}\u{8}\u{0}");
    assert_eq!(packed.send().await.refused(400), "TL1308");
    site.shut().await;
}

/// Returns patterns on which a backtracking matcher takes exponential time.
fn bombs() -> Vec<String> {
    let mut bombs: Vec<String> =
        ["(a+)+$", "(a|a)*b", "(.*)\\1\\1", "a{1,1000}{1,1000}", "(?=a)a", "[a-z]+", "(((((a*)*)*)*)*)*"]
            .map(str::to_owned)
            .into();
    for n in 1..=83 {
        for part in
            [".*a", ".*", ".*.", "a.*", "a.*a", ".*aa", ".*a.", "..*", ".a.*", "aa.*.", ".*.*a", "a.*.*"]
        {
            bombs.push(part.repeat(n) + "b");
        }
    }
    bombs.push("a".repeat(10_000));
    bombs
}

#[tokio::test]
async fn a_pattern_cannot_keep_the_server_busy() {
    let site = Site::new();
    let (queue, owner): (QueueName, Owner) = ("mails".parse().unwrap(), "w".parse().unwrap());
    for n in 0..20 {
        let key: Key = format!("mail(\"{}\", {n})", "a".repeat(200)).parse().unwrap();
        site.store.apply(Batch::new().enqueue(NewWork::once(key, queue.clone()))).await.unwrap();
    }
    let claim = Claim::queues(&owner, [queue], 20, Duration::from_secs(30));
    for grant in site.store.claim(claim).await.unwrap().grants {
        site.store.apply(Batch::new().block(&grant.lease(), "why")).await.unwrap();
    }
    let (mut refused, bombs) = (0, bombs());
    assert!(bombs.len() >= 1_000, "{}", bombs.len());
    // An exponential pattern takes hours. The limit for all patterns is 100 ms on average. A single one may take longer on a busy machine.
    let limit = Duration::from_millis(100) * u32::try_from(bombs.len()).unwrap();
    let all = Instant::now();
    for bomb in bombs {
        let began = Instant::now();
        let answer = site.get(&format!("/api/v1/work?blocked=true&pattern={}", encoded(&bomb))).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{bomb}: {:?}", began.elapsed());
        assert!(all.elapsed() < limit, "{bomb}, after {:?}", all.elapsed());
        match answer.status.as_u16() {
            200 => {}
            _ => {
                assert_eq!(answer.refused(400), "TL0104", "{bomb}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 8, "what is no pattern here is refused");
}
