//! Server behaviour on a socket: slow, numerous and remote clients, log followers, and shutdown.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Site;
use common::listening::{LONG, Listening, listen, rest};
use serde_json::{Value, json};
use tidelock_server::ServerOptions;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

impl Listening {
    async fn follow(&self, query: &str, more: &str) -> Following {
        let mut stream = self.connect().await;
        stream.write_all(self.head(&format!("/api/v1/events/tail{query}"), more).as_bytes()).await.unwrap();
        let mut following = Following { lines: BufReader::new(stream) };
        let status = following.line().await.unwrap();
        assert_eq!(status, "HTTP/1.1 200 OK");
        let mut kept = Vec::new();
        loop {
            let line = following.line().await.unwrap();
            if line.is_empty() {
                break;
            }
            kept.extend(line.strip_prefix("cache-control: ").map(str::to_owned));
        }
        assert_eq!(kept, ["no-store"]);
        following
    }
}

/// A client that follows the log.
struct Following {
    lines: BufReader<TcpStream>,
}

impl Following {
    /// Reads a line; `None` at the end of the stream.
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = timeout(LONG, self.lines.read_line(&mut line)).await.expect("nothing comes").unwrap_or(0);
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Reads the next event and returns its id and its data.
    async fn event(&mut self) -> Option<(u64, Value)> {
        let (mut id, mut data) = (None, None);
        loop {
            let line = self.line().await?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.parse().unwrap());
            }
            if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).unwrap());
            }
            if let (Some(id), Some(data)) = (id, &data) {
                return Some((id, Value::clone(data)));
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_is_slow_with_its_head_is_cut() {
    let site = listen(|options| options.head_time(Duration::from_millis(300))).await;
    // The time is taken before the server sees the connection, so its timeout has not started.
    let began = Instant::now();
    let mut slow = site.connect().await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await.unwrap();
    let answer = rest(&mut slow).await;
    assert!(!answer.contains("200 OK"), "{answer}");
    assert!(began.elapsed() >= Duration::from_millis(250), "it had some time");
    let mut silent = site.connect().await;
    assert_eq!(rest(&mut silent).await, "", "neither may it say nothing");
    assert!(site.whole("/healthz").await.ends_with("ok\n"), "others are served");
    site.shut().await;
}

#[tokio::test]
async fn a_client_with_a_slow_body_gets_a_timeout() {
    let site = listen(|options| options.request_time(Duration::from_millis(300))).await;
    let mut slow = site.connect().await;
    let head = site.head(
        "/api/v1/state/k",
        "if-none-match: *\r\ncontent-type: application/json\r\ncontent-length: 100\r\n",
    );
    slow.write_all(head.replacen("GET", "PUT", 1).as_bytes()).await.unwrap();
    slow.write_all(b"{").await.unwrap();
    let answer = rest(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert!(answer.contains("TL1312"), "{answer}");
    site.shut().await;
}

#[tokio::test]
async fn a_head_has_a_limit() {
    let site = listen(|options| options).await;
    let mut long = site.connect().await;
    let head = site.head("/healthz", &format!("x: {}\r\n", "x".repeat(20_000)));
    long.write_all(head.as_bytes()).await.unwrap();
    assert!(rest(&mut long).await.starts_with("HTTP/1.1 431"));
    site.shut().await;
}

#[tokio::test]
async fn connections_have_a_limit_and_the_next_one_waits() {
    let site = listen(|options| options.connections(1).head_time(LONG)).await;
    let first = site.connect().await;
    let mut second = site.connect().await;
    second.write_all(site.head("/healthz", "connection: close\r\n").as_bytes()).await.unwrap();
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(200), second.read(&mut byte)).await.is_err(), "it has to wait");
    drop(first);
    assert!(rest(&mut second).await.ends_with("ok\n"));
    site.shut().await;
}

#[tokio::test]
async fn the_largest_limits_are_none() {
    let endless = |options: ServerOptions| {
        let options = options.connections(usize::MAX).followers(usize::MAX).request_time(Duration::MAX);
        let options = options.head_time(Duration::MAX).handshake_time(Duration::MAX);
        options
            .write_time(Duration::MAX)
            .end_time(Duration::MAX)
            .body_bytes(usize::MAX)
            .rate(u32::MAX, u32::MAX)
    };
    let listening = listen(endless).await;
    let answer = listening.whole("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = listening.whole("/api/v1/runs/missing/result").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    listening.shut().await;
}

#[tokio::test]
async fn the_log_is_followed_and_gone_on_with() {
    let site = listen(|options| options).await;
    site.append("a", "One").await;
    site.append("b", "Two").await;
    let mut all = site.follow("?from=beginning", "").await;
    let (first, event) = all.event().await.unwrap();
    assert_eq!((&event["type"], &event["stream"]), (&json!("One"), &json!("a")));
    assert_eq!(all.event().await.unwrap().1["type"], "Two");
    drop(all);

    let mut again = site.follow("?from=beginning", &format!("last-event-id: {first}\r\n")).await;
    let (second, event) = again.event().await.unwrap();
    assert_eq!(event["type"], "Two", "it continues after the last event id");
    assert!(second > first);
    site.append("a", "Three").await;
    assert_eq!(again.event().await.unwrap().1["type"], "Three", "and with what happens");

    let mut some = site.follow("?from=beginning&stream=a&types=Three,Four", "").await;
    assert_eq!(some.event().await.unwrap().1["type"], "Three");
    let mut told = site.follow("?from=beginning&internal=true&prefix=tidelock.audit", "").await;
    assert_eq!(told.event().await.unwrap().1["payload"]["did"], "append");
    site.shut().await;
}

impl Following {
    /// Reads the first frame, which contains only an id, and returns the id.
    async fn began(&mut self) -> u64 {
        let mut id = None;
        loop {
            let line = self.line().await.unwrap();
            assert!(!line.starts_with("data") && !line.starts_with("event"), "{line}");
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.parse().unwrap());
            }
            // A frame ends with an empty line. Chunk sizes are interleaved with the lines.
            if let (Some(id), true) = (id, line.is_empty()) {
                return id;
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_was_cut_off_before_anything_happened_misses_nothing() {
    let site = listen(|options| options).await;
    for (query, before) in [("", 0), ("?from=now", 2), ("?from=now&stream=a", 4), ("?stream=other", 6)] {
        let mut first = site.follow(query, "").await;
        let began = first.began().await;
        assert_eq!(began, before, "each event here comes with one of the audit");
        drop(first);
        let stream = if query.contains("other") { "other" } else { "a" };
        site.append(stream, "Missed").await;
        let mut again = site.follow(query, &format!("last-event-id: {began}\r\n")).await;
        assert_eq!(again.began().await, began, "nothing was sent yet");
        let (id, event) = again.event().await.unwrap();
        assert_eq!((&event["type"], &event["stream"]), (&json!("Missed"), &json!(stream)), "{query}");
        assert!(id > began);
    }
    site.shut().await;
}

#[tokio::test]
async fn followers_are_limited_and_released_at_shutdown() {
    let site = listen(|options| options.followers(1)).await;
    let mut first = site.follow("", "").await;
    let answer = site.whole("/api/v1/events/tail").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("TL1311") && answer.contains("retry-after: 5"), "{answer}");
    site.shut().await;
    assert!(first.event().await.is_none(), "it was let go");
}

#[tokio::test]
async fn the_seat_of_one_who_left_is_free() {
    let site = listen(|options| options.followers(1)).await;
    drop(site.follow("", "").await);
    let deadline = Instant::now() + LONG;
    loop {
        // The server writes each event to the disconnected client, and thereby detects the disconnect.
        site.append("a", "One").await;
        let mut stream = site.connect().await;
        stream.write_all(site.head("/api/v1/events/tail", "").as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        if status.ends_with(b"200") {
            break;
        }
        assert!(Instant::now() < deadline, "the seat is still taken");
    }
    site.shut().await;
}

#[tokio::test]
async fn the_server_ends_when_a_client_does_not() {
    let site = listen(|options| options.end_time(Duration::from_millis(100)).head_time(LONG)).await;
    let mut held = site.connect().await;
    let head = site.head(
        "/api/v1/state/k",
        "if-none-match: *\r\ncontent-type: application/json\r\ncontent-length: 100\r\n",
    );
    held.write_all(head.replacen("GET", "PUT", 1).as_bytes()).await.unwrap();
    assert!(site.whole("/healthz").await.ends_with("ok\n"));
    site.shut().await;
    assert_eq!(rest(&mut held).await, "");
}

/// Returns the number of connections that the server reports.
async fn connections(site: &Site) -> u64 {
    let text = site.get("/metrics").await.text;
    let line = text.lines().find_map(|line| line.strip_prefix("tidelock_http_connections ")).unwrap();
    line.parse().unwrap()
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let site = listen(|options| options.write_time(Duration::from_millis(200)).followers(1).any_rate()).await;
    let big = json!({"expected": "any", "events": [{"type": "Big", "payload": "x".repeat(900_000)}]});
    for _ in 0..16 {
        site.site.post("/api/v1/streams/big/events", &big).await.when(201);
    }
    // One client follows the log, the other requests a page. Neither reads the response.
    let mut unread = Vec::new();
    for path in ["/api/v1/events/tail?from=beginning", "/api/v1/streams/big/events"] {
        let mut stream = site.connect().await;
        stream.write_all(site.head(path, "").as_bytes()).await.unwrap();
        stream.readable().await.unwrap();
        unread.push(stream);
    }
    let deadline = Instant::now() + LONG;
    while connections(&site.site).await > 0 {
        assert!(Instant::now() < deadline, "they are still there");
        tokio::task::yield_now().await;
    }
    // The permit of the follower is free again.
    site.follow("", "").await.began().await;
    site.shut().await;
    drop(unread);
}

#[tokio::test]
async fn a_token_has_a_rate_and_others_have_their_own() {
    let site = listen(|options| options.rate(1, 3)).await;
    let ask = async |token: &str| site.with_token(token).await;
    let mut refused = None;
    // More requests than the bucket can refill while this runs.
    for _ in 0..50 {
        let answer = ask(site.site.read.reveal()).await;
        if answer.starts_with("HTTP/1.1 429") {
            refused = Some(answer);
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let refused = refused.expect("it was never too much");
    assert!(refused.contains("TL1318") && refused.contains("retry-after: 1\r\n"), "{refused}");
    assert!(ask(site.site.write.reveal()).await.starts_with("HTTP/1.1 200"), "another token");
    assert!(site.whole("/healthz").await.ends_with("ok\n"), "and what is open");
    site.shut().await;
}

#[tokio::test]
async fn many_wrong_tokens_delay_their_address() {
    let site = listen(|options| options).await;
    let ask = async |token: &str| site.with_token(token).await;
    for _ in 0..30 {
        assert!(ask("old").await.starts_with("HTTP/1.1 401"), "the same one again is no guess");
    }
    let right = async || ask(site.site.read.reveal()).await;
    let mut refused = None;
    for guess in 0..30 {
        let answer = ask(&format!("guess-{guess}")).await;
        if answer.starts_with("HTTP/1.1 429") {
            refused = Some(answer);
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    let refused = refused.expect("wrong guesses are limited");
    assert!(refused.contains("TL1319") && refused.contains("retry-after: "), "{refused}");
    assert!(site.whole("/healthz").await.ends_with("ok\n"), "open routes stay reachable");
    for guess in 100..130 {
        assert!(right().await.starts_with("HTTP/1.1 200"), "a valid token is never delayed");
        assert!(ask(&format!("guess-{guess}")).await.starts_with("HTTP/1.1 4"));
    }
    site.shut().await;

    let site = listen(ServerOptions::no_back_off).await;
    for guess in 0..30 {
        assert!(site.with_token(&format!("guess-{guess}")).await.starts_with("HTTP/1.1 401"));
    }
    site.shut().await;
}

#[tokio::test]
async fn answers_are_made_so_many_at_once_and_a_large_one_counts_until_it_is_sent() {
    let site =
        listen(|options| options.at_once(1).request_time(Duration::from_millis(300)).write_time(LONG)).await;
    let big = json!({"expected": "any", "events": [{"type": "Big", "payload": "x".repeat(900_000)}]});
    // This site has the default timeout of requests.
    let filling = Site::writing(Arc::clone(&site.site.store));
    for _ in 0..16 {
        filling.post("/api/v1/streams/big/events", &big).await.when(201);
    }
    let mut unread = site.connect().await;
    unread
        .write_all(site.head("/api/v1/streams/big/events", "connection: close\r\n").as_bytes())
        .await
        .unwrap();
    unread.readable().await.unwrap();
    let answer = site.whole("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("TL1322"), "{answer}");
    assert!(answer.contains("retry-after: 5\r\n") && answer.contains("not_applied"), "{answer}");
    assert!(site.whole("/healthz").await.ends_with("ok\n"), "what is open needs no seat");
    assert!(rest(&mut unread).await.len() > 16 * 900_000);
    assert!(site.whole("/readyz").await.starts_with("HTTP/1.1 200"), "the seat is free again");
    site.shut().await;
}
