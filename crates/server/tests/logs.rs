//! Log output of the server: each loosened option at every start, no secrets, and no names that forge a line.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use axum::body::Body;
use axum::middleware::from_fn;
use common::Site;
use common::logged::Logged;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::json;
use tidelock::prelude::*;
use tidelock_server::{Caller, Role, ServerOptions, Token};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

#[tokio::test]
async fn each_loosening_is_logged_at_every_start() {
    let _ = Logged::here();
    let site = Site::with(|options| options.allow_writes().host("admin.example.com").any_rate());
    let logged = Logged::here();
    for start in 1..=2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        site.server.clone().serve(listener, async {}).await.unwrap();
        let lines = logged.lines();
        let told: Vec<&String> =
            lines.iter().filter(|line| line.starts_with("WARN tidelock::server")).collect();
        assert_eq!(told.len(), 3 * start, "{told:#?}");
        for part in ["writes are allowed", "host admin.example.com", "as many requests as it likes"] {
            assert_eq!(told.iter().filter(|line| line.contains(part)).count(), start, "{part}: {told:#?}");
        }
    }
    let tight = Site::with(|options| options);
    let before = logged.lines().len();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    tight.server.clone().serve(listener, async {}).await.unwrap();
    assert_eq!(logged.lines().len(), before, "nothing is loosened, and nothing told");
}

#[tokio::test]
async fn no_secret_is_logged_or_answered() {
    let logged = Logged::here();
    let site = Site::new();
    let canary = "canary-4f9d1c77-canary-4f9d1c77-canary";
    let known = site.write.reveal().to_owned();
    let mut answers = Vec::new();
    for secret in [canary, &known] {
        for path in ["/readyz", "/nothing", "/api/v1/state/k"] {
            let with = |name: &str, value: &str| {
                site.bare("PUT", path).header(name, value).json(&json!({"value": 1}))
            };
            answers.push(with("authorization", &format!("Bearer {secret}")).send().await);
            answers.push(with("authorization", &format!("Basic {secret}")).send().await);
            answers.push(with("cookie", &format!("token={secret}")).send().await);
            answers.push(with("x-token", secret).send().await);
            answers.push(site.bare("GET", &format!("{path}?token={secret}")).send().await);
            let other = site.ask("PUT", path).host(Some("evil.test")).header("cookie", secret);
            answers.push(other.send().await);
        }
    }
    // The data that callers store is secret as well.
    let body = json!({"expected": "any", "events": [{"type": "A", "payload": {"password": canary}, "meta": {"token": canary}}]});
    site.post("/api/v1/streams/s/events", &body).await.when(201);
    let put = site.ask("PUT", "/api/v1/state/k").header("if-none-match", "*").json(&json!({"value": canary}));
    put.send().await.when(200);
    answers.push(
        site.ask("PUT", "/api/v1/state/k")
            .header("if-none-match", "*")
            .json(&json!({"value": canary}))
            .send()
            .await,
    );
    answers.push(
        site.ask("POST", "/api/v1/runs")
            .header("content-type", "application/json")
            .body(&format!("{{\"x\": \"{canary}"))
            .send()
            .await,
    );
    answers.push(site.get("/metrics").await);
    answers.push(site.get("/api/v1/streams/tidelock.audit/events").await);
    let lines = logged.lines();
    assert!(lines.iter().any(|line| line.contains("a request was refused")), "something was logged");
    for secret in [canary, &known] {
        for line in &lines {
            assert!(!line.contains(secret), "{line}");
        }
        for answer in &answers {
            assert!(!format!("{answer:?}").contains(secret), "{answer:?}");
        }
    }
    assert!(!format!("{:?} {:?}", site.server, site.write).contains(&known));
}

/// Returns whether a line has no characters that move the cursor, start another line or change the direction of text.
fn is_harmless(line: &str) -> bool {
    !line.chars().any(|c| {
        c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c)
    })
}

const EVIL: &str = "a\r\nWARN forged\u{1b}[2J\u{202e}b\u{2066}";

#[tokio::test]
async fn a_name_does_not_forge_a_line() {
    let logged = Logged::here();
    let store: SharedStore = Arc::new(MemoryStore::new());
    let ours = tidelock_server::router(
        Arc::clone(&store),
        ServerOptions::behind_own_auth().allow_writes().host(EVIL),
    );
    let known = from_fn(async |mut request: axum::extract::Request, next: axum::middleware::Next| {
        request.extensions_mut().insert(Caller { role: Role::Write, name: EVIL.to_owned() });
        next.run(request).await
    });
    let app: axum::Router = ours.layer(known);
    let name = common::encoded(EVIL);
    for (method, path, host) in [
        ("PUT", format!("/api/v1/state/{name}"), "localhost".as_bytes()),
        ("PUT", format!("/api/v1/state/k%28%22{name}%22%29"), b"localhost"),
        ("GET", format!("/api/v1/state/k%28%22{name}%22%29"), b"localhost"),
        ("GET", format!("/api/v1/runs/{name}"), b"localhost"),
        ("GET", format!("/{name}"), b"localhost"),
        ("GET", "/readyz".to_owned(), "evil\u{202e}.test".as_bytes()),
        ("GET", "/readyz".to_owned(), b"evil\ttest"),
    ] {
        let request = Request::builder().method(method).uri(&path).header("host", host);
        let request = request.header("content-type", "application/json").header("if-none-match", "*");
        let request =
            request.header("origin", "http://localhost").body(Body::from(r#"{"value": 1}"#)).unwrap();
        let answer = app.clone().oneshot(request).await.unwrap();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(!text.chars().any(char::is_control), "JSON has them as escapes: {text}");
    }
    let lines = logged.lines();
    assert!(
        lines.iter().any(|line| line.contains("a write was answered") && line.contains("\\u{1b}")),
        "{lines:#?}"
    );
    assert!(lines.iter().any(|line| line.contains("requests for the host a")), "{lines:#?}");
    for line in lines {
        assert!(is_harmless(&line), "{line:?}");
    }
}

#[tokio::test]
async fn a_token_is_never_printed() {
    let token = Token::new("canary-4f9d1c77-canary-4f9d1c77-canary").unwrap();
    let refused = Token::new("canary-short").unwrap_err();
    assert!(!format!("{token:?} {refused} {refused:?}").contains("canary"));
}

#[tokio::test]
async fn many_refusals_of_long_names_do_not_fill_the_log() {
    let logged = Logged::here();
    let site = Site::new();
    let long = format!("/{}", "x".repeat(10_000));
    for _ in 0..100 {
        site.bare("GET", &long).send().await.refused(401);
        site.ask("GET", &long).host(Some(&"y".repeat(10_000))).send().await.refused(421);
    }
    let lines = logged.lines();
    let told: Vec<&String> = lines.iter().filter(|line| line.contains("a request was refused")).collect();
    assert!(told.len() >= 2, "each reason is logged: {told:#?}");
    // Each reason has one line per second, however long the loop took.
    assert!(told.len() < 100, "{} lines", told.len());
    for line in told {
        assert!(line.len() < 700 && line.contains("left_out="), "{line}");
    }
}
