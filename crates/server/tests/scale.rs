//! Load time of each inspector page on a large store. The store has a million events, a hundred thousand work rows and ten thousand runs.
//! It also has a reaction with a thousand blocked keys, a thousand leases, a history, tasks and an audit stream. `cargo xtask soak`
//! runs this test.
//!
//! `cargo test --release -p tidelock-server --test scale -- --ignored --nocapture`. `TIDELOCK_SCALE=0.1` scales the numbers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]
#![allow(clippy::print_stdout, reason = "this test reports numbers")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Site, encoded};
use serde_json::json;
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock::schedule::{Schedule, Scheduler};
use tidelock::store::NewWork;

/// The time limit for all requests of a page.
const LIMIT: Duration = Duration::from_secs(1);
const STREAMS: usize = 10_000;

fn scaled(count: usize) -> usize {
    let by: f64 = std::env::var("TIDELOCK_SCALE").map_or(1.0, |by| by.parse().unwrap());
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size"
    )]
    let scaled = (count as f64 * by) as usize;
    scaled.max(100)
}

/// Applies batches concurrently, so that they share flushes.
async fn apply_all(store: &SharedStore, batches: impl Iterator<Item = Batch>) {
    let mut under_way = tokio::task::JoinSet::new();
    for batch in batches {
        let store = Arc::clone(store);
        under_way.spawn(async move { store.apply(batch).await.unwrap() });
        if under_way.len() >= 64 {
            under_way.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(done) = under_way.join_next().await {
        done.unwrap();
    }
}

async fn fill(store: &SharedStore) {
    let (events, streams) = (scaled(1_000_000), scaled(STREAMS));
    let name: tidelock::id::EventType = "placed".parse().unwrap();
    let append = |stream: usize| {
        let key = Key::new("order", [format!("o-{stream:06}")]).unwrap();
        let payload =
            Payload::from_json(r#"{"item":"apples","count":3,"note":"as always, at the door"}"#).unwrap();
        let one = || NewEvent::new(name.clone(), payload.clone());
        Batch::new().append(&key, Expect::Any, std::iter::repeat_with(one).take(events / streams))
    };
    apply_all(store, (0..streams).map(append)).await;
    let queue: tidelock::id::QueueName = "mails".parse().unwrap();
    let rows: Vec<usize> = (0..scaled(100_000)).collect();
    let work = rows.chunks(500).map(|chunk| {
        chunk.iter().fold(Batch::new(), |batch, row| {
            let key = Key::new("mail", [format!("m-{row:07}")]).unwrap();
            batch.enqueue(NewWork::once(key, queue.clone()))
        })
    });
    apply_all(store, work).await;
    let client = tidelock::workflow::WorkflowClient::new(Arc::clone(store));
    let workflow: tidelock::workflow::Workflow<u32, u32> = tidelock::workflow::Workflow::new("order");
    let runs = (0..scaled(10_000))
        .map(|run| client.start(workflow, &3).id(format!("r-{run:06}")).batch().unwrap().1);
    apply_all(store, runs).await;
    let documents = (0..scaled(10_000)).map(|of| {
        let key = Key::new("user", [format!("u-{of:06}"), "cart".to_owned()]).unwrap();
        Batch::new().put(&key, Expect::Absent, Payload::null())
    });
    apply_all(store, documents).await;
}

/// Adds a reaction with blocked keys, held leases, a document with a history, tasks and audit events.
async fn fill_engines(store: &SharedStore, site: &Site) {
    let policy = tidelock::model::retry::RetryPolicy { max_attempts: 1, ..Default::default() };
    let reaction = Reaction::new("mail").on(["sent"]).retry(policy);
    let reaction = reaction.each(async |_, _| Err::<Batch, _>(Failure::retry("no")));
    let name: tidelock::id::EventType = "sent".parse().unwrap();
    let stuck = (0..scaled(1_000)).map(|of| {
        let key = Key::new("letter", [format!("l-{of:06}")]).unwrap();
        let events = std::iter::repeat_with(|| NewEvent::new(name.clone(), Payload::null())).take(20);
        Batch::new().append(&key, Expect::Absent, events)
    });
    apply_all(store, stuck).await;
    let running = Reactions::new(Arc::clone(store)).with(reaction).start().await.unwrap();
    running.quiesce().await.unwrap();
    running.shutdown().await;
    let states = StateRegistry::new(Arc::clone(store)).with_history();
    let cart = states.state::<serde_json::Value>(&Scope::user("h"), "cart").unwrap();
    cart.set(json!({"total": 0})).await.unwrap();
    for _ in 0..scaled(1_000) {
        cart.inc("/total", 1).await.unwrap();
    }
    let task = |n: usize| {
        Schedule::new(format!("t-{n:04}")).cron("0 3 * * *").zone("UTC").run(async |_| Ok(Batch::new()))
    };
    let scheduler = (0..100).fold(Scheduler::new(Arc::clone(store)), |all, n| all.with(task(n)));
    scheduler.start().await.unwrap().shutdown().await;
    for n in 0..scaled(1_000) {
        let take = json!({"owner": "o", "ttl_ms": 3_600_000});
        site.post(&format!("/api/v1/leases/l-{n}"), &take).await.when(200);
    }
}

/// Returns each page of the inspector with the paths that it requests.
fn pages() -> Vec<(&'static str, Vec<String>)> {
    let stream = encoded("order(\"o-000077\")");
    let journal = encoded("tidelock.journal(\"r-000077\", 0)");
    let cart = encoded("user(\"h\", \"cart\")");
    let all = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    vec![
        ("overview", all(&["info", "overview"])),
        ("streams", all(&["streams?limit=100"])),
        ("streams of a kind", all(&["streams?prefix=order&limit=100"])),
        ("a stream", vec![format!("streams/{stream}"), format!("streams/{stream}/events?from=50&limit=50")]),
        ("stuck", all(&["work/rows?blocked=true&limit=100", "work/blocked?limit=1"])),
        ("work", all(&["work/rows?limit=100"])),
        ("work that is held", all(&["work/rows?leased=true&limit=100"])),
        ("work like nothing", all(&["work?pattern=nothing&limit=100"])),
        ("reactions", all(&["reactions"])),
        ("a reaction", all(&["reactions/mail/keys?limit=100", "reactions/mail/parked?limit=100"])),
        ("blocked keys", all(&["reactions/mail/keys?blocked=true&limit=100"])),
        ("runs", all(&["runs?limit=50"])),
        ("runs that failed", all(&["runs?status=failed&limit=50"])),
        (
            "a run",
            vec![
                "runs/r-000077".to_owned(),
                "runs/r-000077/steps?limit=100".to_owned(),
                format!("streams/{journal}/events?limit=500"),
                format!("work/rows?key={}", encoded("tidelock.run(\"r-000077\")")),
            ],
        ),
        ("leases", all(&["leases?limit=100"])),
        ("a lease", all(&["leases/l-7"])),
        ("locks", all(&["locks"])),
        ("state", all(&["state?limit=100", "conflicts"])),
        (
            "a document",
            vec![
                format!("state/{cart}"),
                format!("state/{cart}/history?limit=50"),
                format!("state/{cart}/at?number=50"),
            ],
        ),
        ("schedules", all(&["schedules?limit=100"])),
        ("a schedule", all(&["schedules/t-0007"])),
        (
            "audit",
            all(&["streams?prefix=tidelock.audit&limit=1", "streams/tidelock.audit/events?from=10&limit=50"]),
        ),
    ]
}

async fn every_page_opens_within_a_second(store: SharedStore, backend: &str) {
    let began = Instant::now();
    let site = Site::on(Arc::clone(&store), |options| {
        options.allow_writes().any_rate().request_time(Duration::from_mins(1))
    });
    fill(&store).await;
    fill_engines(&store, &site).await;
    println!("{backend}: filled in {:.0?}", began.elapsed());
    let mut slow = Vec::new();
    for (page, paths) in pages() {
        let mut longest = Duration::ZERO;
        for _ in 0..3 {
            let mut sum = Duration::ZERO;
            for path in &paths {
                let began = Instant::now();
                let answer = site.get(&format!("/api/v1/{path}")).await;
                sum += began.elapsed();
                assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            }
            longest = longest.max(sum);
            // The sleep lets the cached overview expire, so that each round measures a new one.
            if page == "overview" {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        }
        println!("{backend:>10} | {page:<20} | {:>2} requests | {longest:>10.1?}", paths.len());
        if longest > LIMIT {
            slow.push(format!("{page}: {longest:.1?}"));
        }
    }
    assert!(slow.is_empty(), "{backend}: {slow:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn soak_every_page_opens_within_a_second_on_sqlite() {
    let (store, _directory) = common::stores::sqlite().await;
    every_page_opens_within_a_second(store, "sqlite").await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn soak_every_page_opens_within_a_second_on_postgres() {
    every_page_opens_within_a_second(common::stores::postgres().await, "postgres").await;
}
