//! Spans of waiting and holding. This test is alone in its program. A call site that another thread reaches for the
//! first time while a subscriber is being set never reports to that subscriber, so no other test may run concurrently.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tidelock_core::lock::{LockClass, Locks, scope};

/// A subscriber that records the names of new spans.
#[derive(Default)]
struct Spans(Arc<Mutex<Vec<&'static str>>>);

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == tidelock_core::telemetry::LOCK
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.0.lock().unwrap().push(span.metadata().name());
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_wait_is_a_span_and_so_is_a_hold() {
    static THING: LockClass = LockClass::new("thing");
    let (locks, spans) = (Locks::new(), Spans::default());
    let (names, term) = (Arc::clone(&spans.0), THING.key(["spans"]).expect("declared once"));
    let mut context = Context::from_waker(Waker::noop());
    tracing::subscriber::with_default(spans, || {
        let Poll::Ready(Ok(guard)) = pin!(scope(locks.lock(&term))).poll(&mut context) else {
            panic!("the lock is free")
        };
        let mut waiting = pin!(scope(locks.with(&term, async {})));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(guard);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    });
    assert_eq!(*names.lock().unwrap(), ["lock.wait", "lock.hold"], "a free lock is no span");
}
