//! Leases over HTTP whose clients leave during the request.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[macro_use]
mod common;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::listening::LONG;
use common::{Site, TestResponse};
use serde_json::json;
use tidelock::lease;
use tokio::sync::Notify;

/// A request whose client leaves after a number of polls.
struct Cut<F> {
    asked: Pin<Box<F>>,
    left: u32,
}

/// Polls a request until it is pending for the n-th time, waits until the server wakes it, and drops it unread. Returns whether
/// the request got that far.
async fn leaves_when_woken(request: impl Future<Output = TestResponse>, wakes: u32) -> bool {
    let mut request = Box::pin(request);
    for _ in 0..wakes {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        if request.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return false;
        }
        woken.0.notified().await;
    }
    true
}

/// A waker that a test awaits.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<F: Future> Future for Cut<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        self.left = left;
        match self.asked.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

async fn take(site: &Site, owner: &str) -> TestResponse {
    site.post("/api/v1/leases/k", &json!({"owner": owner, "ttl_ms": 3_600_000})).await
}

/// Acquires the lease as soon as it is free, and releases it.
async fn passed_on(site: &Site, owner: &str) {
    let deadline = Instant::now() + LONG;
    let held = loop {
        let answer = take(site, owner).await;
        if answer.status == 200 {
            break answer.json();
        }
        assert_eq!(answer.refused(409), "TL0511");
        assert!(Instant::now() < deadline, "{owner}: it is still held: {answer:?}");
    };
    let path = format!("/api/v1/leases/k?fence={}", held["fence"]);
    site.ask("DELETE", &path).send().await.when(200);
}

/// Returns whether the lease is free and the audit has a release for every acquisition.
async fn is_over(site: &Site) -> bool {
    let view = lease::view(&site.store, &"k".parse().unwrap()).await.unwrap();
    let audit = site.audit().await;
    let count = |did: &str| audit.iter().filter(|line| line.contains(did)).count();
    view.is_none_or(|view| view.holder.is_none()) && count("acquire") == count("release")
}

async fn a_take_that_is_cut_off_anywhere_leaves_no_lease(site: Site) {
    for left in 1.. {
        let (gone, next) = (format!("gone-{left}"), format!("next-{left}"));
        let answer = Cut { asked: Box::pin(take(&site, &gone)), left }.await;
        // A client that received the response releases the lease. On the memory store the first request may complete.
        if let Some(held) = answer.as_ref().filter(|answer| answer.status == 200) {
            let path = format!("/api/v1/leases/k?fence={}", held.json()["fence"]);
            site.ask("DELETE", &path).send().await.when(200);
            break;
        }
        passed_on(&site, &next).await;
    }
    ends(&site).await;
}

/// The answer is ready, and the client leaves without reading it.
async fn an_answer_that_is_not_read_leaves_no_lease(site: Site) {
    for wakes in 1..=20 {
        if !leaves_when_woken(take(&site, &format!("gone-{wakes}")), wakes).await {
            break;
        }
        passed_on(&site, &format!("next-{wakes}")).await;
    }
}

async fn ends(site: &Site) {
    let deadline = Instant::now() + LONG;
    while !is_over(site).await {
        assert!(Instant::now() < deadline, "{:#?}", site.audit().await);
        tokio::task::yield_now().await;
    }
}

on_each_store! {
    a_take_that_is_cut_off_anywhere_leaves_no_lease,
    an_answer_that_is_not_read_leaves_no_lease,
}

#[tokio::test]
async fn the_time_of_a_lease_has_a_limit_of_the_server() {
    let site = Site::with(|options| options.allow_writes().lease_time(Duration::from_secs(10)));
    let ask = async |method: &str, body: serde_json::Value| {
        site.ask(method, "/api/v1/leases/k").json(&body).send().await
    };
    let long = ask("POST", json!({"owner": "me", "ttl_ms": 10_001})).await;
    assert_eq!(long.refused(400), "TL1321");
    assert!(long.json()["detail"].as_str().unwrap().contains("for 10s at most"), "{long:?}");
    let fence = ask("POST", json!({"owner": "me", "ttl_ms": 10_000})).await.when(200)["fence"].clone();
    assert_eq!(ask("PUT", json!({"fence": fence, "ttl_ms": 10_001})).await.refused(400), "TL1321");
    ask("PUT", json!({"fence": fence, "ttl_ms": 10_000})).await.when(200);
}
