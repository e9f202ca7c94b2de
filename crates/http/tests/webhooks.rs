//! Webhooks from an outbox to a server that receives them.
#![cfg(all(feature = "send", feature = "axum"))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::post as to;
use common::{Count, ask, request, until};
use tidelock_core::clock::{Clock as _, SystemClock};
use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::outbox::{Delivery, Message, MessageState, MessageView, Outbox, OutboxEngine, Sender};
use tidelock_core::store::{Batch, MemoryStore, Page, SharedStore};
use tidelock_core::worker::WorkerHandle;
use tidelock_http::IdempotencyLayer;
use tidelock_http::webhook::{SIGNATURE, Secret, Verifier, WebhookOptions, WebhookSender, sign};

const HOOKS: Outbox = Outbox::new("hooks");

fn secret(text: &str) -> Secret {
    Secret::new(text.repeat(16)).unwrap()
}

fn memory() -> SharedStore {
    Arc::new(MemoryStore::new())
}

/// Options for tests, which reach this machine without TLS.
fn local() -> WebhookOptions {
    WebhookOptions { https_only: false, public_only: false, ..WebhookOptions::default() }
}

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/orders")
}

async fn sending(store: &SharedStore, options: WebhookOptions) -> WorkerHandle<OutboxEngine> {
    let hooks = WebhookSender::new(|_: &Delivery| Some(secret("a")), options).unwrap();
    let retry = RetryPolicy { max_attempts: 3, base: Duration::ZERO, ..RetryPolicy::default() };
    let sender =
        Sender::new(Arc::clone(store), HOOKS, hooks).retry(retry).poll_interval(Duration::from_millis(5));
    sender.start().await.unwrap()
}

async fn put(store: &SharedStore, url: &str, id: &str) {
    let message = Message::new(url, &serde_json::json!({ "order": id })).unwrap().id(id);
    store.apply(HOOKS.put(Batch::new(), &message).unwrap()).await.unwrap();
}

async fn waiting(store: &SharedStore) -> Vec<MessageView> {
    HOOKS.list(store, Page::first(10)).await.unwrap().rows
}

#[tokio::test]
async fn a_webhook_is_signed_and_runs_once() {
    let (calls, runs) = (Count::default(), Count::default());
    let (called, ran) = (calls.clone(), runs.clone());
    let handler = to(move |headers: HeaderMap, body: String| {
        let (called, ran) = (called.clone(), ran.clone());
        async move {
            assert_eq!(
                (headers["idempotency-key"].to_str().unwrap(), body.as_str()),
                (r#""hooks:17""#, r#"{"order":"17"}"#)
            );
            if called.add() == 1 {
                return StatusCode::SERVICE_UNAVAILABLE;
            }
            ran.add();
            StatusCode::OK
        }
    });
    let layer = IdempotencyLayer::webhooks(&memory(), Verifier::new(secret("b")).or(secret("a")));
    let url = serve(Router::new().route("/orders", handler).layer(layer)).await;
    let store = memory();
    let sending = sending(&store, local()).await;
    put(&store, &url, "17").await;
    until("it is sent", async || waiting(&store).await.is_empty()).await;
    assert_eq!((calls.get(), runs.get()), (2, 1));
    // Sent again, as after a crash between the delivery and its record: the receiver knows the key.
    put(&store, &url, "17").await;
    until("it is sent again", async || sending.stats().delivered == 2).await;
    assert_eq!((calls.get(), runs.get()), (2, 1));
    sending.shutdown().await;
}

#[tokio::test]
async fn requests_without_a_recent_signature_do_not_run() {
    let calls = Count::default();
    let called = calls.clone();
    let handler = to(move || {
        let called = called.clone();
        async move { called.add().to_string() }
    });
    let layer = IdempotencyLayer::webhooks(&memory(), Verifier::new(secret("a")));
    let app = Router::new().route("/orders", handler).layer(layer);
    let now = SystemClock::default().now();
    let long_ago = tidelock_core::clock::Timestamp::EPOCH;
    let signed = |signature: Option<String>| {
        let mut request = request("POST", Some("k"), "body");
        if let Some(signature) = signature {
            request.headers_mut().insert(SIGNATURE, signature.parse().unwrap());
        }
        request
    };
    for (signature, code) in [
        (None, "TL1216"),
        (Some(sign(&secret("b"), now, "k", b"body")), "TL1216"),
        (Some(sign(&secret("a"), now, "k", b"other")), "TL1216"),
        (Some(sign(&secret("a"), now, "another", b"body")), "TL1216"),
        (Some(sign(&secret("a"), long_ago, "k", b"body")), "TL1217"),
    ] {
        let refused = ask(&app, signed(signature)).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::UNAUTHORIZED, code.to_owned()));
    }
    assert_eq!(calls.get(), 0);
    for _ in 0..2 {
        assert_eq!(ask(&app, signed(Some(sign(&secret("a"), now, "k", b"body")))).await.text(), "1");
    }
    assert_eq!(ask(&app, request("POST", None, "body")).await.code(), "TL1212");
}

#[tokio::test]
async fn redirects_are_not_followed_and_refusals_for_good_are_blocked() {
    let elsewhere = Count::default();
    let gone_to = elsewhere.clone();
    let app = Router::new()
        .route(
            "/orders",
            to(async || (StatusCode::TEMPORARY_REDIRECT, [("location", "/elsewhere")]).into_response()),
        )
        .route("/orders/gone", to(async || StatusCode::GONE))
        .route("/elsewhere", to(async move || gone_to.add().to_string()));
    let url = serve(app).await;
    let store = memory();
    let sending = sending(&store, local()).await;
    put(&store, &url, "moved").await;
    put(&store, &format!("{url}/gone"), "gone").await;
    until("both are blocked", async || HOOKS.count_blocked(&store).await.unwrap() == 2).await;
    let seen: Vec<_> = waiting(&store).await.into_iter().map(|view| (view.id, view.attempts)).collect();
    assert_eq!(seen, [("gone".to_owned(), 1), ("moved".to_owned(), 3)]);
    assert_eq!(elsewhere.get(), 0);
    sending.shutdown().await;
}

#[tokio::test]
async fn a_url_does_not_lead_into_the_own_network() {
    let calls = Count::default();
    let called = calls.clone();
    let url = serve(Router::new().route("/orders", to(async move || called.add().to_string()))).await;
    let port = url.trim_end_matches("/orders").rsplit_once(':').unwrap().1.to_owned();
    let store = memory();
    let sending = sending(&store, WebhookOptions { https_only: false, ..WebhookOptions::default() }).await;
    let urls = [
        url.clone(),
        format!("http://localhost:{port}/orders"),
        format!("http://[::ffff:127.0.0.1]:{port}/orders"),
        format!("http://user@127.0.0.1:{port}/orders"),
        "ftp://example.com/".to_owned(),
        "not a url".to_owned(),
    ];
    for (n, url) in urls.iter().enumerate() {
        put(&store, url, &n.to_string()).await;
    }
    until("all are blocked", async || HOOKS.count_blocked(&store).await.unwrap() == urls.len() as u64).await;
    assert_eq!(calls.get(), 0);
    sending.shutdown().await;

    let strict =
        self::sending(&store, WebhookOptions { public_only: false, ..WebhookOptions::default() }).await;
    put(&store, &url, "plain").await;
    until("it is blocked", async || {
        waiting(&store).await.iter().any(|view| {
            view.id == "plain"
                && matches!(&view.state, MessageState::Blocked { reason, .. } if reason.contains("https"))
        })
    })
    .await;
    assert_eq!(calls.get(), 0);
    strict.shutdown().await;
}
