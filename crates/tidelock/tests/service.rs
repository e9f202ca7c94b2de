//! The handle and the service: one value for every engine, started and stopped together.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::outbox::Message;
use tidelock::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Stock {
    left: i64,
}

#[derive(Serialize, Deserialize)]
enum StockEvent {
    Added(i64),
    Reserved(i64),
}

#[derive(Debug, thiserror::Error)]
#[error("only {0} left")]
struct SoldOut(i64);

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        match event {
            StockEvent::Added(count) => self.left += count,
            StockEvent::Reserved(count) => self.left -= count,
        }
    }
}

impl Stock {
    fn reserve(&self, count: i64) -> Result<[StockEvent; 1], SoldOut> {
        if count > self.left { Err(SoldOut(self.left)) } else { Ok([StockEvent::Reserved(count)]) }
    }
}

const ORDER: Workflow<i64, i64> = Workflow::new("order");
const MAILS: Outbox = Outbox::new("mails");

async fn order(cx: &Ctx, count: i64) -> Result<i64, Failure> {
    Ok(cx.step("double", async |_| Ok(count * 2)).await?)
}

async fn sqlite() -> (tempfile::TempDir, Tidelock) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("app.db").display());
    (dir, Tidelock::open(&url).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_runs_everything_and_reports_at_its_end() {
    let (_dir, tide) = sqlite().await;
    let (handled, delivered) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (seen, sent) = (Arc::clone(&handled), Arc::clone(&delivered));
    let fires = Arc::new(AtomicU32::new(0));
    let fired = Arc::clone(&fires);
    let service = tide
        .service()
        .workflow(ORDER, order)
        .reaction(Reaction::new("count").on(["Reserved"]).each(move |_, _| {
            seen.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        }))
        .schedule(Schedule::new("tick").every(Duration::from_hours(1)).run(move |_| {
            fired.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        }))
        .outbox(MAILS, move |_: Delivery| {
            sent.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        })
        .start()
        .await
        .unwrap();

    let apples = tide.aggregate::<Stock>("apples");
    apples.append([StockEvent::Added(3)]).await.unwrap();
    apples.execute(|stock| stock.reserve(2)).await.unwrap();
    let run = tide.start(ORDER, &21).id("order-17").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 42);
    let mail = Message::new("ann@example.com", &"hello").unwrap();
    tide.apply(MAILS.put(Batch::new(), &mail).unwrap()).await.unwrap();

    service.idle().await.unwrap();
    assert_eq!(handled.load(Ordering::Relaxed), 1);
    assert_eq!(delivered.load(Ordering::Relaxed), 1);
    let report = service.shutdown().await;
    assert!(report.workflows.is_some() && report.reactions.is_some() && report.schedules.is_some());
    assert_eq!(report.outboxes.len(), 1);

    // The store stays open until it is closed.
    assert_eq!(apples.load().await.unwrap().state.left, 1);
    tide.clone().close().await;
    assert!(apples.append([StockEvent::Added(1)]).await.is_err());
}

#[tokio::test]
async fn an_error_names_its_class_and_keeps_the_error_of_the_application() {
    let tide = Tidelock::open("memory:").await.unwrap();
    let refused: tidelock::Error =
        tide.aggregate::<Stock>("apples").execute(|stock| stock.reserve(1)).await.unwrap_err().into();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(refused.downcast_ref::<SoldOut>().unwrap().0, 0);
    assert!(refused.code().is_none());

    let conflict =
        tide.apply(Batch::new().put(&"k".into_key().unwrap(), Expect::Exists, Payload::null())).await;
    assert_eq!(conflict.unwrap_err().kind(), ErrorKind::Conflict);
    let held = tide.lease("nightly").try_acquire().await.unwrap();
    let (other, owner) = (tide.clone(), held.owner().clone());
    let second = tokio::spawn(async move { other.lease("nightly").try_acquire().await }).await.unwrap();
    let second = tidelock::Error::from(second.unwrap_err());
    assert_eq!(second.kind(), ErrorKind::Conflict);
    assert!(second.to_string().contains(owner.as_str()), "{second}");
}

#[tokio::test]
async fn errors_of_engines_have_the_class_of_their_cause() {
    use tidelock::outbox::OutboxError;
    use tidelock::reactions::ReactionFilter;
    use tidelock::store::{ApplyError, StoreError, StoreErrorKind};

    let kind = |error: tidelock::Error| error.kind();
    let (outbox, message) = ("mails".to_owned(), "m".to_owned());
    assert_eq!(kind(OutboxError::Unknown { outbox, message }.into()), ErrorKind::NotFound);
    let closed = StoreError::new(StoreErrorKind::Closed, "writing", "the store was closed");
    assert_eq!(kind(OutboxError::from(closed).into()), ErrorKind::Unavailable);

    let tide = Tidelock::open("memory:").await.unwrap();
    let absent = Batch::new().guard_document(&Key::single("k").unwrap(), Expect::Exists);
    let conflict: ApplyError = tide.store().apply(absent).await.unwrap_err();
    assert_eq!(kind(OutboxError::from(conflict).into()), ErrorKind::Conflict);
    let unknown = tide.operator().unblock(&ReactionFilter::of("nightly")).await.unwrap_err();
    assert_eq!(kind(unknown.into()), ErrorKind::NotFound);
    let oversize = Payload::of(&"x".repeat(10_000_000)).unwrap();
    let invalid = tide.apply(Batch::new().put(&Key::single("k").unwrap(), Expect::Any, oversize)).await;
    assert_eq!(kind(invalid.unwrap_err()), ErrorKind::Invalid);
}

#[tokio::test]
async fn invalid_keys_are_reported_by_the_call_that_uses_them() {
    let tide = Tidelock::open("memory:").await.unwrap();
    let huge = "x".repeat(5_000);
    let state = tide.state::<u64>(("cart", huge.as_str()));
    let errors = [
        tidelock::Error::from(state.mutate(|n| *n += 1).await.unwrap_err()),
        state.get().await.unwrap_err().into(),
        state.delete().await.unwrap_err().into(),
        state.watch().next().await.unwrap_err().into(),
        state.inc("", 1).await.unwrap_err().into(),
        tide.lease(("cart", huge.as_str())).acquire().await.unwrap_err().into(),
        tide.lock(("cart", huge.as_str())).await.unwrap_err(),
        tide.aggregate::<Stock>(huge.as_str()).load().await.unwrap_err().into(),
        tide.aggregate::<Stock>(u64::MAX).load().await.unwrap_err().into(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[tokio::test]
async fn locks_of_a_handle_name_the_place_of_the_caller() {
    let tide = Tidelock::open("memory:").await.unwrap();
    let _guard = tide.lock(("lock", "place")).await.unwrap();
    let again = tide.lock(("lock", "place")).await.unwrap_err();
    assert!(again.to_string().contains("tests/service.rs"), "{again}");
}

#[tokio::test]
async fn a_url_without_its_backend_names_the_feature() {
    let unknown = Tidelock::open("mysql://host/db").await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Invalid);
    #[cfg(not(feature = "postgres"))]
    {
        let missing = Tidelock::open("postgres://host/db").await.unwrap_err().to_string();
        assert!(missing.contains(r#"features = ["postgres"]"#), "{missing}");
    }
}

#[tokio::test]
async fn a_service_that_cannot_start_leaves_nothing_running() {
    let tide = Tidelock::open("memory:").await.unwrap();
    let twice = |name: &str| Reaction::new(name).each(async |_, _| Ok(()));
    let service = tide.service().workflow(ORDER, order).reaction(twice("a")).reaction(twice("a"));
    assert!(service.start().await.is_err());
    let deliver = async |_: Delivery| Ok(());
    let twice = tide.service().outbox(MAILS, deliver).outbox(MAILS, deliver);
    assert!(twice.start().await.unwrap_err().to_string().contains("mails"));
    let lead = async |_| Ok(());
    let twice = tide.service().leader("rebalance", lead).leader("rebalance", lead);
    assert!(twice.start().await.unwrap_err().to_string().contains("rebalance"));
    assert_eq!(tide.service().leader("", lead).start().await.unwrap_err().kind(), ErrorKind::Invalid);

    let report = tide.service().workflow(ORDER, order).run_until(async {}).await.unwrap();
    assert!(report.workflows.is_some() && report.reactions.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_leads_and_the_next_takes_over_at_shutdown() {
    let (_dir, tide) = sqlite().await;
    let (led, mut leaders) = tokio::sync::mpsc::unbounded_channel();
    let candidate = |name: &'static str| {
        let led = led.clone();
        tide.service().leader("rebalance", async move |lead| {
            led.send((name, lead)).unwrap();
            std::future::pending().await
        })
    };
    let first = candidate("first").start().await.unwrap();
    let (name, lead) = leaders.recv().await.unwrap();
    assert_eq!(name, "first");
    let (fence, put) =
        (lead.fence(), || Batch::new().put(&Key::single("plan").unwrap(), Expect::Any, Payload::null()));
    lead.apply(put()).await.unwrap();
    let late = lead.guard(put()).unwrap();

    // The clone in this test does not keep the lease.
    let second = candidate("second").start().await.unwrap();
    first.shutdown().await;
    let (name, next) = leaders.recv().await.unwrap();
    assert_eq!(name, "second");
    assert!(next.fence() > fence);
    assert_eq!(tide.apply(late).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(lead.apply(put()).await.is_err() && lead.token().is_cancelled());
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_fails_panics_or_is_robbed_leads_again() {
    let tide = Tidelock::open("memory:").await.unwrap();
    let (led, mut leaders) = tokio::sync::mpsc::unbounded_channel();
    let turns = Arc::new(AtomicU32::new(0));
    let service = tide.service().leader("robbed", async move |lead| {
        led.send(lead.fence()).unwrap();
        match turns.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Failure::new("no plan")),
            1 => panic!("no plan at all"),
            _ => std::future::pending().await,
        }
    });
    let service = service.start().await.unwrap();
    let mut fences = Vec::new();
    for _ in 0..3 {
        fences.push(leaders.recv().await.unwrap());
    }
    let stolen = tide.lease(("leader", "robbed")).steal("a test").await.unwrap();
    stolen.release().await.unwrap();
    fences.push(leaders.recv().await.unwrap());
    assert!(fences.is_sorted() && fences.windows(2).all(|pair| pair[0] != pair[1]), "{fences:?}");
    service.shutdown().await;
}

/// A live view of the inspector is an endless response, for which a graceful shutdown would wait.
#[cfg(all(unix, feature = "server"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_program_with_an_open_live_view() {
    use tidelock::server::ServerOptions;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::signal::unix::{SignalKind, signal};

    let tide = Tidelock::open("memory:").await.unwrap();
    let service = tide.service().start().await.unwrap();
    let routes = axum::Router::new().nest("/tide", service.inspector(ServerOptions::behind_own_auth()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // From here on, the signal does not end this process.
    let _listening = signal(SignalKind::terminate()).unwrap();
    let serving = axum::serve(listener, routes).with_graceful_shutdown(service.stopped());
    let serving = tokio::spawn(serving.into_future());

    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /tide/api/v1/events/changes HTTP/1.1\r\nhost: {address}\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");

    let ended = async {
        // The server listens for the signal from its first poll, which may be later than this.
        while !serving.is_finished() {
            let kill =
                std::process::Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status();
            assert!(kill.unwrap().success());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the live view keeps the server");
    service.shutdown().await;
}
