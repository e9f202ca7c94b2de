//! The doctor: machines, healthy stores, unhealthy stores, and paths without a store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidelock::clock::ManualClock;
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};

use crate::support::{stderr, stdout, tidelock};

/// Creates a store with one batch in it, still open.
async fn store_with(path: &Path, batch: Batch) -> SqliteStore {
    let store = SqliteStore::open(path, SqliteOptions::default()).await.unwrap();
    store.apply(batch).await.unwrap();
    store
}

fn job(name: &str) -> NewWork {
    NewWork::once(Key::new("job", [name]).unwrap(), "jobs".parse().unwrap())
}

fn checks(path: &Path) -> (Option<i32>, serde_json::Value) {
    let output = tidelock(&["doctor", "--store", path.to_str().unwrap(), "-o", "json"]);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

fn status<'a>(report: &'a serde_json::Value, name: &str) -> &'a str {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    check["status"].as_str().unwrap()
}

#[test]
fn the_machine_is_checked_when_no_store_is_named() {
    let output = tidelock(&["doctor", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report}");
    for name in ["sqlite", "temporary files", "flush"] {
        assert_ne!(status(&report, name), "fail");
    }
}

#[test]
fn a_missing_file_is_not_found_and_not_created() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing.db");
    let output = tidelock(&["doctor", "--store", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).is_empty());
    assert!(stderr(&output).contains("error[TL0401]"), "{}", stderr(&output));
    assert!(stderr(&output).contains("tidelock explain TL0401"));
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("letter.txt");
    std::fs::write(&path, "dear doctor, ".repeat(500)).unwrap();
    let output = tidelock(&["doctor", "--store", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("error[TL0"), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear doctor, ".repeat(500));
}

#[tokio::test]
async fn a_store_that_is_well_ends_with_0() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("well.db");
    store_with(&path, Batch::new().enqueue(job("a"))).await.close().await;
    let (code, report) = checks(&path);
    assert_eq!(code, Some(0), "{report}");
    for name in ["store", "durability", "integrity", "leases", "overdue", "blocked"] {
        assert_eq!(status(&report, name), "ok", "{report}");
    }
}

/// Creates a store with a blocked row, under a name with control characters.
pub(crate) async fn with_blocked_work(path: &Path) {
    let store = store_with(path, Batch::new().enqueue(job("\u{202e}evil"))).await;
    let owner: Owner = "worker".parse().unwrap();
    let claim = Claim::queues(&owner, ["jobs".parse().unwrap()], 1, Duration::from_secs(60));
    let claimed = store.claim(claim).await.unwrap();
    let lease = claimed.grants.first().unwrap().lease();
    store.apply(Batch::new().block(&lease, "bad \u{1b}[31maddress")).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_changes_no_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("blocked.db");
    with_blocked_work(&path).await;
    let store = path.to_str().unwrap();
    for (args, code) in [
        (&["doctor"][..], 5),
        (&["work", "blocked"], 5),
        (&["work", "blocked", "-o", "jsonl"], 5),
        (&["work", "list"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = crate::support::command(&[args, &["--store", store]].concat());
        let status = command.stdout(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[tokio::test]
async fn a_probe_answers_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let ask = |more: &[&str]| {
        tidelock(&[&["doctor", "--health", "--store", path.to_str().unwrap()], more].concat())
    };
    let missing = ask(&[]);
    assert_eq!(missing.status.code(), Some(1), "{}", stdout(&missing));
    assert!(stdout(&missing).starts_with("not well: ") && stdout(&missing).lines().count() == 1);
    store_with(&path, Batch::new().enqueue(job("a"))).await.close().await;
    let well = ask(&[]);
    assert_eq!(well.status.code(), Some(0));
    assert!(stdout(&well).starts_with("well: sqlite ") && stdout(&well).lines().count() == 1);
    let json: serde_json::Value = serde_json::from_slice(&ask(&["-o", "json"]).stdout).unwrap();
    assert_eq!(json["healthy"], true);
    assert_eq!(tidelock(&["doctor", "--health"]).status.code(), Some(2), "of what?");
}

#[tokio::test]
async fn blocked_work_ends_with_5_and_shows_no_tricks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("blocked.db");
    with_blocked_work(&path).await;
    let output = tidelock(&["doctor", "--store", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stdout(&output).contains("blocked"));
    assert!(!stdout(&output).contains(['\u{1b}', '\u{202e}']), "{:?}", stdout(&output));
}

#[tokio::test]
async fn expired_leases_and_unclaimed_work_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("late.db");
    let long_ago = Due::At(Timestamp::from_micros(1_000_000_000_000_000));
    let batch = Batch::new().enqueue(job("late").due(long_ago)).enqueue(job("held"));
    let store = store_with(&path, batch).await;
    let owner: Owner = "dead".parse().unwrap();
    store.claim(Claim::existing(&owner, &job("held").key, Duration::ZERO)).await.unwrap();
    store.close().await;
    let (code, report) = checks(&path);
    assert_eq!(code, Some(0), "warnings do not fail: {report}");
    assert_eq!(status(&report, "leases"), "warn", "{report}");
    assert_eq!(status(&report, "overdue"), "warn", "{report}");
}

/// A store of an hour ago, with a reaction that has stopped and an event that it has not seen.
async fn with_a_stopped_reaction(path: &Path) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let an_hour_ago = Timestamp::from_micros((now - Duration::from_hours(1)).as_micros().try_into().unwrap());
    let clock = Arc::new(ManualClock::new(an_hour_ago));
    let store = SqliteStore::open(path, SqliteOptions { clock, ..SqliteOptions::default() }).await.unwrap();
    let reaction = Reaction::new("notify").each(async |_, _| Ok(Batch::new()));
    let running = Reactions::new(Arc::new(store.clone())).with(reaction).start().await.unwrap();
    running.shutdown().await;
    // More internal events than one look at the log returns.
    let internal = (0..1_100).map(|_| NewEvent::new("tidelock.noise".parse().unwrap(), Payload::null()));
    let noise = Key::new("noise", ["1"]).unwrap();
    store.apply(Batch::new().append(&noise, Expect::Any, internal)).await.unwrap();
    let placed = NewEvent::new("Placed".parse().unwrap(), Payload::null());
    let order = Key::new("order", ["1"]).unwrap();
    store.apply(Batch::new().append(&order, Expect::Any, [placed])).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_reaction_that_no_process_routes_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("suspended.db");
    with_a_stopped_reaction(&path).await;
    let (code, report) = checks(&path);
    assert_eq!((code, status(&report, "reactions")), (Some(0), "warn"), "{report}");
    let text = stdout(&tidelock(&["doctor", "--store", path.to_str().unwrap()]));
    assert!(text.contains("1 suspended: notify (1 waiting, the oldest for 60 min"), "{text}");
}
