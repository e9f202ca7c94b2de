//! How long each GET of the inspector takes on a store with a million events, a hundred thousand rows of work and ten thousand runs.
//!
//! `cargo test --release -p tidelock-server --test scale -- --ignored --nocapture`. Numbers of another size: `TIDELOCK_SCALE=0.1`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]
#![allow(clippy::print_stdout, reason = "this one tells numbers")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Site, encoded};
use tidelock::prelude::*;
use tidelock::store::NewWork;

/// What a page may take.
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

/// Applies batches, many at once so that they share flushes.
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
    let lane: tidelock::id::Lane = "mails".parse().unwrap();
    let rows: Vec<usize> = (0..scaled(100_000)).collect();
    let work = rows.chunks(500).map(|chunk| {
        chunk.iter().fold(Batch::new(), |batch, row| {
            let key = Key::new("mail", [format!("m-{row:07}")]).unwrap();
            batch.enqueue(NewWork::once(key, lane.clone()))
        })
    });
    apply_all(store, work).await;
    let client = tidelock::workflow::Client::new(Arc::clone(store));
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn every_page_opens_within_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("store.db"), SqliteOptions::default()).await.unwrap();
    let store: SharedStore = Arc::new(store);
    let began = Instant::now();
    fill(&store).await;
    println!("filled in {:.0?}", began.elapsed());
    let site = Site::on(store, |options| options.request_time(Duration::from_mins(1)));
    let stream = encoded("order(\"o-000077\")");
    let journal = encoded("tidelock.journal(\"r-000077\", 0)");
    let paths = [
        "about".to_owned(),
        "overview".to_owned(),
        "streams?limit=100".to_owned(),
        "streams?prefix=order&limit=100".to_owned(),
        format!("streams?limit=100&after={stream}"),
        format!("streams/{stream}"),
        format!("streams/{stream}/events?from=50&limit=50"),
        "work/blocked?limit=1".to_owned(),
        "work/rows?blocked=true&limit=100".to_owned(),
        "work/rows?limit=100".to_owned(),
        "work/rows?leased=true&limit=100".to_owned(),
        "work/rows?like=nothing&limit=100".to_owned(),
        "reactions".to_owned(),
        "runs?limit=50".to_owned(),
        "runs?status=failed&limit=50".to_owned(),
        "runs?prefix=r-009&limit=50".to_owned(),
        "runs/r-000077".to_owned(),
        format!("streams/{journal}/events?limit=500"),
        "leases?limit=100".to_owned(),
        "locks".to_owned(),
        "state?limit=100".to_owned(),
        "state?prefix=user&limit=100".to_owned(),
        format!("state/{}/history?limit=50", encoded("user(\"u-000007\", \"cart\")")),
        "schedules?limit=100".to_owned(),
        "streams?prefix=tidelock.audit&limit=1".to_owned(),
    ];
    let mut slow = Vec::new();
    for path in &paths {
        let mut times = Vec::new();
        for _ in 0..3 {
            let began = Instant::now();
            let answer = site.get(&format!("/api/v1/{path}")).await;
            times.push(began.elapsed());
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            // What the overview remembers for a moment is not what is measured.
            if path == "overview" {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        let longest = times.iter().max().copied().unwrap_or_default();
        println!("{longest:>10.1?}  {path}");
        if longest > LIMIT {
            slow.push(format!("{path}: {longest:.1?}"));
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}
