//! The layer in front of axum routes, on the memory store.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, post as to};
use axum::{Extension, Router};
use common::{Count, ask, effects_of, post, request, shop, until};
use tidelock_core::idempotency::Reservation;
use tidelock_core::store::{MemoryStore, SharedStore};
use tidelock_http::IdempotencyLayer;
use tokio::sync::Semaphore;

fn memory() -> SharedStore {
    Arc::new(MemoryStore::new())
}

/// Returns a route that counts its calls and responds like this.
fn counting(
    layer: IdempotencyLayer,
    answer: impl Fn(usize) -> Response + Clone + Send + Sync + 'static,
) -> (Router, Count) {
    let count = Count::default();
    let calls = count.clone();
    let handler = any(move || {
        let (calls, answer) = (calls.clone(), answer.clone());
        async move { answer(calls.add()) }
    });
    (Router::new().route("/orders", handler).layer(layer), count)
}

fn created(call: usize) -> Response {
    let headers = [("location", "/orders/1"), ("set-cookie", "a=b"), ("x-other", "c")];
    (StatusCode::CREATED, headers, format!("call {call}")).into_response()
}

#[tokio::test]
async fn the_response_is_repeated_and_marked() {
    let (app, calls) = counting(IdempotencyLayer::new(&memory()), created);
    let first = post(&app, "k", "a").await;
    let again = post(&app, "\"k\"", "a").await;
    assert_eq!((first.status, first.text(), first.is_replayed()), (StatusCode::CREATED, "call 1", false));
    assert_eq!((again.status, again.text(), again.is_replayed()), (StatusCode::CREATED, "call 1", true));
    assert_eq!(again.headers["location"], "/orders/1");
    assert_eq!(again.headers["content-type"], first.headers["content-type"]);
    assert!(first.headers.contains_key("set-cookie") && !again.headers.contains_key("set-cookie"));
    assert!(!again.headers.contains_key("x-other"));
    assert_eq!(calls.get(), 1);
}

#[tokio::test]
async fn chosen_headers_are_kept() {
    let layer = IdempotencyLayer::new(&memory()).headers([header::HeaderName::from_static("x-other")]);
    let (app, _) = counting(layer, created);
    post(&app, "k", "a").await;
    let again = post(&app, "k", "a").await;
    assert!(again.headers.contains_key("x-other") && !again.headers.contains_key("location"));
}

#[tokio::test]
async fn another_payload_is_422() {
    let (app, calls) = counting(IdempotencyLayer::new(&memory()), created);
    post(&app, "k", "a").await;
    let other = post(&app, "k", "b").await;
    assert_eq!((other.status, other.code()), (StatusCode::UNPROCESSABLE_ENTITY, "TL1211".to_owned()));
    let other = ask(&app, request("PATCH", Some("k"), "a")).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(calls.get(), 1);
}

#[tokio::test]
async fn a_missing_key_is_400_where_one_is_required() {
    let (optional, calls) = counting(IdempotencyLayer::new(&memory()), created);
    for _ in 0..2 {
        assert_eq!(ask(&optional, request("POST", None, "a")).await.status, StatusCode::CREATED);
    }
    assert_eq!(calls.get(), 2);
    let (required, calls) = counting(IdempotencyLayer::new(&memory()).required(), created);
    let refused = ask(&required, request("POST", None, "a")).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::BAD_REQUEST, "TL1212".to_owned()));
    for bad in ["", "\"a", &"k".repeat(256)] {
        let refused = post(&required, bad, "a").await;
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::BAD_REQUEST, "TL1201".to_owned()),
            "{bad:?}"
        );
    }
    assert_eq!(calls.get(), 0);
}

#[tokio::test]
async fn other_methods_are_left_alone() {
    let layer = || IdempotencyLayer::new(&memory()).required();
    let (app, calls) = counting(layer(), created);
    assert_eq!(ask(&app, request("GET", None, "")).await.status, StatusCode::CREATED);
    assert_eq!(ask(&app, request("PUT", Some("k"), "")).await.text(), "call 2");
    assert_eq!(ask(&app, request("PUT", Some("k"), "")).await.text(), "call 3");
    assert_eq!(calls.get(), 3);
    let (app, _) = counting(layer().methods([Method::PUT]), created);
    assert_eq!(ask(&app, request("PUT", Some("k"), "")).await.text(), "call 1");
    assert_eq!(ask(&app, request("PUT", Some("k"), "")).await.text(), "call 1");
    assert_eq!(ask(&app, request("POST", None, "")).await.text(), "call 2");
}

#[tokio::test]
async fn an_answer_that_is_not_kept_frees_the_key() {
    let failing = |call: usize| match call {
        1 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        2 => StatusCode::BAD_REQUEST.into_response(),
        call => created(call),
    };
    let (app, calls) = counting(IdempotencyLayer::new(&memory()), failing);
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(post(&app, "k", "a").await.status.as_u16());
    }
    assert_eq!((heard, calls.get()), (vec![503, 400, 201, 201], 3));
    let (app, calls) =
        counting(IdempotencyLayer::new(&memory()).keep(|status| status.as_u16() < 500), failing);
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(post(&app, "k", "a").await.status.as_u16());
    }
    assert_eq!((heard, calls.get()), (vec![503, 400, 400], 2));
}

#[tokio::test]
async fn a_panic_is_500_and_frees_the_key() {
    let store = memory();
    let (app, calls) = counting(IdempotencyLayer::new(&store), |call| {
        assert!(call > 1, "of all things");
        created(call)
    });
    let broken = post(&app, "k", "a").await;
    assert_eq!((broken.status, broken.code()), (StatusCode::INTERNAL_SERVER_ERROR, "TL1215".to_owned()));
    assert!(!broken.text().contains("of all things"));
    until("the key is free", async || post(&app, "k", "a").await.status == StatusCode::CREATED).await;
    assert_eq!(calls.get(), 2);
}

/// Returns a route whose handler waits for a permit.
fn gated(layer: IdempotencyLayer) -> (Router, Count, Arc<Semaphore>) {
    let (calls, gate) = (Count::default(), Arc::new(Semaphore::new(0)));
    let (count, open) = (calls.clone(), Arc::clone(&gate));
    let handler = to(move || {
        let (calls, gate) = (count.clone(), Arc::clone(&open));
        async move {
            let call = calls.add();
            gate.acquire().await.unwrap().forget();
            created(call)
        }
    });
    (Router::new().route("/orders", handler).layer(layer), calls, gate)
}

#[tokio::test]
async fn in_flight_is_409_or_waits_by_policy() {
    let store = memory();
    let (app, calls, gate) = gated(IdempotencyLayer::new(&store));
    let waits = IdempotencyLayer::new(&store).wait(Duration::from_secs(60));
    let (patient, _, _) = gated(waits);
    let first = tokio::spawn({
        let app = app.clone();
        async move { post(&app, "k", "a").await }
    });
    until("it runs", async || calls.get() == 1).await;
    let refused = post(&app, "k", "a").await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "TL1202".to_owned()));
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(
        !refused.text().contains(&std::process::id().to_string()),
        "the response reveals the owner of the key"
    );
    assert_eq!(post(&app, "k", "b").await.status, StatusCode::UNPROCESSABLE_ENTITY, "also in flight");
    let waiting = tokio::spawn(async move { post(&patient, "k", "a").await });
    gate.add_permits(1);
    let (first, waited) = (first.await.unwrap(), waiting.await.unwrap());
    assert_eq!((first.text(), waited.text(), calls.get()), ("call 1", "call 1", 1));
    assert!(!first.is_replayed() && waited.is_replayed());
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_break_the_handler_off() {
    let (app, calls, gate) = gated(IdempotencyLayer::new(&memory()));
    let gone = tokio::spawn({
        let app = app.clone();
        async move { post(&app, "k", "a").await }
    });
    until("it runs", async || calls.get() == 1).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert_eq!(post(&app, "k", "a").await.status, StatusCode::CONFLICT, "it still runs");
    gate.add_permits(1);
    until("it is answered", async || post(&app, "k", "a").await.is_replayed()).await;
    assert_eq!(calls.get(), 1);
}

#[tokio::test]
async fn keys_of_different_scopes_are_different_keys() {
    let scope = |parts: &Parts| {
        parts.headers.get("x-tenant").map_or("", |tenant| tenant.to_str().unwrap()).to_owned()
    };
    let (app, calls) = counting(IdempotencyLayer::new(&memory()).scope(scope), created);
    for (tenant, call) in [("a", "call 1"), ("b", "call 2"), ("a", "call 1"), ("b", "call 2")] {
        let mut request = request("POST", Some("k"), tenant);
        request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
        assert_eq!(ask(&app, request).await.text(), call);
    }
    assert_eq!(calls.get(), 2);
}

#[tokio::test]
async fn a_request_that_is_too_large_is_413() {
    let (app, calls) = counting(IdempotencyLayer::new(&memory()).request_bytes(4), created);
    assert_eq!(post(&app, "k", "1234").await.status, StatusCode::CREATED);
    let refused = post(&app, "l", "12345").await;
    assert_eq!((refused.status, refused.code()), (StatusCode::PAYLOAD_TOO_LARGE, "TL1213".to_owned()));
    // A stream does not declare its length.
    let parts = ["12", "34", "5"].map(|part| Ok::<_, std::io::Error>(Bytes::from(part)));
    let stream = Body::from_stream(futures_util::stream::iter(parts));
    assert_eq!(ask(&app, request("POST", Some("m"), stream)).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let broken = futures_util::stream::iter([Ok(Bytes::from("1")), Err(std::io::Error::other("gone"))]);
    let broken = ask(&app, request("POST", Some("n"), Body::from_stream(broken))).await;
    assert_eq!((broken.status, broken.code()), (StatusCode::BAD_REQUEST, "TL1218".to_owned()));
    assert_eq!(calls.get(), 1);
}

#[tokio::test]
async fn an_answer_that_is_too_large_or_a_stream_is_passed_on_and_does_not_run_again() {
    let large = |_| "12345".into_response();
    let (app, calls) = counting(IdempotencyLayer::new(&memory()).answer_bytes(4), large);
    assert_eq!(post(&app, "k", "a").await.text(), "12345");
    let refused = post(&app, "k", "a").await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "TL1214".to_owned()));
    assert_eq!(calls.get(), 1);
    let stream = |_| {
        let parts = ["12", "34"].map(|part| Ok::<_, std::io::Error>(Bytes::from(part)));
        Body::from_stream(futures_util::stream::iter(parts)).into_response()
    };
    let (app, calls) = counting(IdempotencyLayer::new(&memory()), stream);
    assert_eq!(post(&app, "k", "a").await.text(), "1234");
    assert_eq!((post(&app, "k", "a").await.code(), calls.get()), ("TL1214".to_owned(), 1));
}

#[tokio::test]
async fn the_response_is_the_one_that_the_handler_commits() {
    let store = memory();
    let app = shop(IdempotencyLayer::new(&store).required());
    let first = post(&app, "k", "3 apples").await;
    assert_eq!(first.status, StatusCode::CREATED);
    assert!(first.text().starts_with("3 apples ordered"), "{first:?}");
    let again = post(&app, "k", "3 apples").await;
    assert_eq!((again.body, again.status), (first.body, first.status));
    assert_eq!(effects_of(&store, "k").await, 1);
}

#[tokio::test]
async fn a_handler_can_release_its_key() {
    let calls = Count::default();
    let count = calls.clone();
    let handler = to(async move |Extension(once): Extension<Reservation>| {
        once.release().await;
        created(count.add())
    });
    let app = Router::new().route("/orders", handler).layer(IdempotencyLayer::new(&memory()));
    assert_eq!(post(&app, "k", "a").await.text(), "call 1");
    assert_eq!(post(&app, "k", "a").await.text(), "call 2");
}
