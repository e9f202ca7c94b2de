//! A shop behind the layer, and its clients.
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Router};
use tidelock_core::idempotency::{Reservation, StoredResponse};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Delta, SharedStore};
use tidelock_http::{IdempotencyLayer, Problem};
use tower::ServiceExt as _;

/// The time limit of any wait on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The response that a client receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedResponse {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
    }

    /// Returns the code of a problem.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status.as_u16());
        problem["code"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn request(method: &str, key: Option<&str>, body: impl Into<Body>) -> Request {
    let mut request = Request::builder().method(method).uri("/orders?a=b");
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    request.body(body.into()).unwrap()
}

pub(crate) async fn heard(response: axum::response::Response) -> ReceivedResponse {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    ReceivedResponse { status: parts.status, headers: parts.headers, body }
}

pub(crate) async fn ask(app: &Router, request: Request) -> ReceivedResponse {
    heard(app.clone().oneshot(request).await.unwrap()).await
}

pub(crate) async fn post(app: &Router, key: &str, body: &str) -> ReceivedResponse {
    ask(app, request("POST", Some(key), body.to_owned())).await
}

/// Counts the calls of handlers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Returns the key of the document that counts the effects of a key.
pub(crate) fn effects(key: &str) -> Key {
    Key::new("effects", [key]).unwrap()
}

pub(crate) async fn effects_of(store: &SharedStore, key: &str) -> i64 {
    let document = store.document(&effects(key)).await.unwrap();
    document.map_or(0, |document| document.value.parse::<serde_json::Value>().unwrap()["n"].as_i64().unwrap())
}

/// Counts the request in the store, in the commit of its answer.
async fn order(Extension(once): Extension<Reservation>, body: String) -> Result<&'static str, Problem> {
    let count = Batch::new().merge_or_create(
        &effects(once.key()),
        Payload::from_json(r#"{"n": 0}"#)?,
        [Delta::inc("/n", 1)],
    );
    let said = format!("{} ordered by process {} as {}", body, std::process::id(), once.fence());
    once.commit(count, StoredResponse::new(201).header("location", "/orders/1").text(said)).await?;
    Ok("this is not the answer")
}

/// Returns a shop whose effects are in the store.
pub(crate) fn shop(layer: IdempotencyLayer) -> Router {
    Router::new().route("/orders", axum::routing::post(order)).layer(layer)
}
