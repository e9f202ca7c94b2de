//! Audit events of writes by engines. The event is committed with the change or not at all. It names the keys, the caller and the request.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::away::Away;
use common::logged::Logged;
use common::{Site, encoded};
use serde_json::{Value, json};
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock::schedule::{Schedule, Scheduler};
use tidelock::store::{Grant, WorkFilter};
use tidelock::workflow::{Ctx, Failure, Signal, Worker, Workflow, WorkflowClient};
use tidelock_server::{Server, ServerOptions, Token, Tokens};
use tower::ServiceExt as _;

const APPROVED: Signal<bool> = Signal::new("approved");
const ORDER: Workflow<Value, Value> = Workflow::new("order").accepts(APPROVED);

/// Waits for approval after a step.
async fn order(cx: &Ctx, _: Value) -> Result<Value, Failure> {
    let reserved: u32 = cx.step("reserve", async |_| Ok(7)).await?;
    Ok(json!({"reserved": reserved, "approved": cx.signal(APPROVED).await?}))
}

/// Creates a store with a waiting run, a task, and a reaction whose key `order("bad")` is blocked. All its workers have been stopped.
async fn filled() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let worker = Worker::new(Arc::clone(&store)).register(ORDER, order).start().await.unwrap();
    let client = WorkflowClient::new(Arc::clone(&store));
    client.start(ORDER, &json!({})).id("r").await.unwrap();
    while client.steps("r").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    worker.shutdown().await;
    let task = Schedule::new("t").cron("0 3 * * *").zone("UTC").run(async |_| Ok(Batch::new()));
    Scheduler::new(Arc::clone(&store)).with(task).start().await.unwrap().shutdown().await;
    let policy = tidelock::model::retry::RetryPolicy { max_attempts: 1, ..Default::default() };
    let reaction = Reaction::new("mail")
        .on(["placed"])
        .retry(policy)
        .each(async |_, _| Err::<Batch, _>(Failure::retry("no")));
    let placed = NewEvent::new("placed".parse().unwrap(), Payload::null());
    let key = Key::new("order", ["bad"]).unwrap();
    store.apply(Batch::new().append(&key, Expect::Absent, [placed])).await.unwrap();
    let running = Reactions::new(Arc::clone(&store)).with(reaction).start().await.unwrap();
    running.quiesce().await.unwrap();
    running.shutdown().await;
    store
}

/// Returns the content of the store without the audit stream, and the number of audit events.
async fn seen(store: &SharedStore) -> (String, u64) {
    let all = KeyPrefix::all;
    let documents = store.documents(&all(), Page::first(1_000)).await.unwrap().rows;
    let rows = store.works(&WorkFilter::default(), Page::first(1_000)).await.unwrap().rows;
    let mut streams = store.streams(&all(), Page::first(1_000)).await.unwrap().rows;
    let audit = streams.iter().position(|stream| stream.key.kind() == "tidelock.audit");
    let told = audit.map(|at| streams.remove(at)).and_then(|audit| audit.head).map_or(0, |head| head.0 + 1);
    (format!("{documents:?}\n{rows:?}\n{streams:?}"), told)
}

#[tokio::test]
async fn a_change_and_its_audit_are_both_there_or_neither_wherever_the_store_goes_away() {
    let asks = [
        ("runs", json!({"workflow": "order", "id": "new"})),
        ("runs/r/signals", json!({"name": "approved", "value": true})),
        ("runs/r/cancel", json!({"reason": "late"})),
        ("runs/r/fork", json!({"from": "reserve", "id": "forked"})),
        ("schedules/t/pause", json!({"reason": "rest"})),
        ("schedules/t/run", json!({})),
        ("reactions/mail/keys:batch", json!({"verb": "unblock", "confirm": 1})),
        ("reactions/mail/keys:batch", json!({"verb": "park", "confirm": 1})),
        ("work:batch", json!({"verb": "unblock", "confirm": 1})),
    ];
    for (path, body) in asks {
        for writes in 0..3 {
            let store = filled().await;
            let before = seen(&store).await;
            let site = Site::writing(Away::after(&store, writes));
            let answer = site.post(&format!("/api/v1/{path}"), &body).await;
            let (after, told) = seen(&store).await;
            let changed = after != before.0;
            assert_eq!(told - before.1, u64::from(changed), "{path} with {writes} writes: {answer:?}");
            assert_eq!(changed, answer.status.is_success(), "{path} with {writes} writes: {answer:?}");
            assert_eq!(changed, writes > 0, "one batch is enough: {path}: {answer:?}");
        }
    }
}

/// Returns the last audit event.
async fn last(store: &SharedStore) -> Value {
    let key = Key::single("tidelock.audit").unwrap();
    let found = store.read_stream(StreamQuery::backward(&key, 1)).await.unwrap();
    found.events[0].payload.parse().unwrap()
}

#[tokio::test]
async fn the_audit_names_the_run_that_the_server_named_and_the_keys_that_were_meant() {
    let site = Site::writing(filled().await);
    let run = site.post("/api/v1/runs", &json!({"workflow": "order"})).await.when(201)["run"].clone();
    assert_eq!(last(&site.store).await["on"], run);
    site.post("/api/v1/reactions/mail/keys:batch", &json!({"verb": "unblock", "confirm": 1})).await.when(200);
    assert_eq!(
        last(&site.store).await["details"]["selected"],
        json!({"count": 1, "keys": ["order(\"bad\")"]})
    );
}

#[tokio::test]
async fn a_request_has_one_name_in_its_answer_in_the_audit_and_in_the_log() {
    let logged = Logged::here();
    let site = Site::writing(filled().await);
    let pause = || site.ask("POST", "/api/v1/schedules/t/pause").json(&json!({"reason": "rest"}));
    let answer = pause().header("x-request-id", "from-the-caller.1").send().await;
    assert_eq!(answer.headers["x-request-id"], "from-the-caller.1");
    assert_eq!(last(&site.store).await["request"], "from-the-caller.1");
    let answer = pause().header("x-request-id", "not plain").send().await;
    let made = answer.headers["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!((made.len(), last(&site.store).await["request"].clone()), (36, json!(made)));
    // The task that acquires a lease may outlive its request.
    let take = site.ask("POST", "/api/v1/leases/k").json(&json!({"owner": "me", "ttl_ms": 10_000}));
    take.header("x-request-id", "from-the-caller.2").send().await.when(200);
    assert_eq!(last(&site.store).await["request"], "from-the-caller.2");
    let away = Site::writing(Away::after(&site.store, 0));
    let failed = away.post("/api/v1/schedules/t/pause", &json!({"reason": "rest"})).await;
    failed.refused(503);
    let name = failed.headers["x-request-id"].to_str().unwrap();
    let lines = logged.lines();
    assert!(lines.iter().any(|line| line.contains("a request failed") && line.contains(name)), "{lines:#?}");
}

#[tokio::test]
async fn a_token_with_a_name_writes_under_it() {
    let (store, token) = (filled().await, Token::generate().unwrap());
    let options = ServerOptions::new(Tokens::none().write_as("ada", &token)).allow_writes();
    let request = http::Request::post("/api/v1/schedules/t/pause").header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {}", token.reveal()));
    let request = request.header("content-type", "application/json").body(r#"{"reason": "x"}"#.to_owned());
    let router = Server::new(Arc::clone(&store), options).router();
    assert_eq!(router.oneshot(request.unwrap()).await.unwrap().status(), 202);
    assert_eq!(last(&store).await["by"], "ada");
}

/// Creates a store with `count` blocked rows.
async fn blocked(count: usize) -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let queue: tidelock::id::QueueName = "mails".parse().unwrap();
    let keys: Vec<Key> = (0..count).map(|n| Key::new("mail", [format!("m-{n:06}")]).unwrap()).collect();
    for some in keys.chunks(5_000) {
        let enqueue = |batch: Batch, key: &Key| batch.enqueue(NewWork::once(key.clone(), queue.clone()));
        store.apply(some.iter().fold(Batch::new(), enqueue)).await.unwrap();
    }
    let owner: tidelock::id::Owner = "w".parse().unwrap();
    loop {
        let claim = Claim::queues(&owner, [queue.clone()], 1_000, Duration::from_secs(60));
        let granted = store.claim(claim).await.unwrap().grants;
        if granted.is_empty() {
            return store;
        }
        let block = |batch: Batch, grant: &Grant| batch.block(&grant.lease(), "no");
        store.apply(granted.iter().fold(Batch::new(), block)).await.unwrap();
    }
}

#[tokio::test]
async fn more_than_ten_thousand_rows_are_counted_and_unblocked_at_once() {
    let site = Site::writing(blocked(10_001).await);
    let path = "/api/v1/work:batch";
    let offered = site.get("/api/v1/work?blocked=true&limit=1").await.when(200)["blocked"].clone();
    let would = site.post(path, &json!({"verb": "unblock", "dry_run": true})).await.when(200);
    assert_eq!((&would["would_change"], &would["changed"]), (&offered, &json!(0)));
    assert_eq!(offered, 10_001);
    let key = |n: usize| format!("mail(\"m-{n:06}\")");
    let two = json!({"verb": "unblock", "keys": [key(10_000), key(7), key(7), "none"], "confirm": 2});
    assert_eq!(
        site.post(path, &two).await.when(200)["changed"],
        2,
        "the named keys, beyond the first page as well"
    );
    assert_eq!(last(&site.store).await["details"]["selected"]["keys"], json!([key(7), key(10_000)]));
    assert_eq!(
        site.post(path, &json!({"verb": "unblock", "confirm": 9_999})).await.when(200)["changed"],
        9_999
    );
    let told = last(&site.store).await["details"]["selected"].clone();
    assert_eq!((&told["count"], told["keys"].as_array().unwrap().len()), (&json!(9_999), 1_000));
    let many: Vec<String> = (0..1_001).map(key).collect();
    assert_eq!(
        site.post(path, &json!({"verb": "unblock", "keys": many, "confirm": 0})).await.refused(400),
        "TL1308"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_put_itself_off_is_tried_when_its_row_is() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let shut = Arc::clone(&open);
    let reaction = Reaction::new("mail").on(["placed"]).each(move |_, _| {
        let open = shut.load(std::sync::atomic::Ordering::SeqCst);
        async move {
            let later = Due::After(Duration::from_hours(1));
            if open { Ok(Batch::new()) } else { Err(Failure::defer(later)) }
        }
    });
    let placed = NewEvent::new("placed".parse().unwrap(), Payload::null());
    let key = Key::new("order", ["o"]).unwrap();
    store.apply(Batch::new().append(&key, Expect::Absent, [placed])).await.unwrap();
    let running = Reactions::new(Arc::clone(&store)).with(reaction).start().await.unwrap();
    let row: Key = "tidelock.reaction(\"mail\", \"order\", \"o\")".parse().unwrap();
    let waits = async || store.work(&row).await.unwrap().is_some_and(|row| row.payload != Payload::null());
    while !waits().await {
        tokio::task::yield_now().await;
    }
    open.store(true, std::sync::atomic::Ordering::SeqCst);
    let site = Site::writing(Arc::clone(&store));
    let retry = json!({"verb": "retry", "keys": [row.to_string()], "confirm": 1});
    site.post("/api/v1/work:batch", &retry).await.when(200);
    let handled = async || {
        let row = store.work(&row).await.unwrap().unwrap();
        row.position.is_some_and(|position| position.0 > 0) && row.lease.is_none()
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !handled().await {
        assert!(
            std::time::Instant::now() < deadline,
            "it put itself off again: {:?}",
            store.work(&row).await
        );
        tokio::task::yield_now().await;
    }
    running.shutdown().await;
}

#[tokio::test]
async fn rows_of_other_engines_are_not_retried_and_the_answer_says_where() {
    let site = Site::writing(filled().await);
    for (key, route) in [("tidelock.run(\"r\")", "/runs/{run}/resume"), ("tidelock.task(\"t\")", "/run")] {
        let answer =
            site.post("/api/v1/work:batch", &json!({"verb": "retry", "keys": [key], "confirm": 1})).await;
        assert_eq!(answer.refused(400), "TL1308");
        assert!(answer.json()["detail"].as_str().unwrap().contains(route), "{answer:?}");
    }
    let shown = site.get(&format!("/api/v1/work/{}", encoded("tidelock.run(\"r\")"))).await.when(200);
    assert_eq!(shown["blocked"], Value::Null);
}
