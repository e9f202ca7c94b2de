//! Work, leases and messages at the command line: due, held and blocked rows, and retries.

use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidelock::lease;
use tidelock::outbox::{Message, Outbox};
use tidelock::prelude::*;

use crate::support::{self, stderr, stdout};

const MAILS: Outbox = Outbox::new("mails");

/// A store in a temporary directory.
struct Site {
    directory: TempDir,
    store: SharedStore,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let store: SharedStore = Arc::new(SqliteStore::open(path, SqliteOptions::default()).await.unwrap());
        Self { directory, store }
    }

    async fn enqueue(&self, name: &str) {
        let job = NewWork::once(Key::new("job", [name]).unwrap(), "jobs".parse().unwrap());
        self.store.apply(Batch::new().enqueue(job)).await.unwrap();
    }

    /// Claims the due work of a queue.
    async fn claim(&self, queue: &str) -> Vec<tidelock::store::Grant> {
        let owner: Owner = "worker\u{202e}-1".parse().unwrap();
        let claim = Claim::queues(&owner, [queue.parse().unwrap()], 10, Duration::from_secs(60));
        self.store.claim(claim).await.unwrap().grants
    }

    /// Blocks the due work of a queue.
    async fn block(&self, queue: &str, reason: &str) {
        for grant in self.claim(queue).await {
            self.store.apply(Batch::new().block(&grant.lease(), reason)).await.unwrap();
        }
    }

    fn run(&self, args: &[&str], code: i32) -> Output {
        let mut command = support::command(args);
        let output = command.env("TIDELOCK_STORE", self.directory.path().join("a.db")).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    }

    fn json(&self, args: &[&str], code: i32) -> Value {
        serde_json::from_slice(&self.run(&[args, &["-o", "json"]].concat(), code).stdout).unwrap()
    }
}

fn states(listing: &Value) -> Vec<(&str, &str)> {
    let rows = listing["rows"].as_array().unwrap().iter();
    rows.map(|row| (row["key"].as_str().unwrap(), row["state"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_listed_by_state() {
    let site = Site::new().await;
    site.enqueue("a").await;
    site.block("jobs", "bad\naddress").await;
    site.enqueue("b").await;
    assert_eq!(site.claim("jobs").await.len(), 1);
    site.enqueue("c").await;
    let (a, b, c) = (r#"job("a")"#, r#"job("b")"#, r#"job("c")"#);
    assert_eq!(states(&site.json(&["work", "list"], 0)), [(a, "blocked"), (b, "leased"), (c, "due")]);
    for (state, key) in [("blocked", (a, "blocked")), ("leased", (b, "leased")), ("free", (c, "due"))] {
        assert_eq!(states(&site.json(&["work", "list", "--state", state], 0)), [key]);
    }
    assert_eq!(states(&site.json(&["work", "list", "--pattern", "a$"], 0)), [(a, "blocked")]);
    let page = site.json(&["work", "list", "--limit", "2"], 0);
    assert_eq!(
        states(&site.json(&["work", "list", "--cursor", page["next"].as_str().unwrap()], 0)),
        [(c, "due")]
    );
    let table = stdout(&site.run(&["work", "list"], 0));
    assert!(table.contains("bad address") && table.contains("worker\\u{202e}-1"), "{table}");

    let shown = stdout(&site.run(&["work", "show", b], 0));
    assert!(shown.contains("fence") && shown.contains("expires at"), "{shown}");
    assert_eq!(site.json(&["work", "show", a], 0)["blocked"]["reason"], "bad\naddress");
    assert!(stderr(&site.run(&["work", "show", r#"job("z")"#], 3)).contains("there is no work"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_left_out_do_not_make_pages_short() {
    let site = Site::new().await;
    let held = lease::request(&site.store, Key::single("report").unwrap()).try_acquire().await.unwrap();
    for name in ["a", "b"] {
        MAILS
            .put(Batch::new(), &Message::new("x", &1).unwrap().id(name))
            .map(|batch| site.store.apply(batch))
            .unwrap()
            .await
            .unwrap();
    }
    let zone = NewWork::once(Key::single("zone").unwrap(), "jobs".parse().unwrap());
    site.store.apply(Batch::new().enqueue(zone)).await.unwrap();
    assert_eq!(states(&site.json(&["work", "list", "--limit", "1"], 0)), [("zone", "due")]);
    assert_eq!(site.json(&["work", "list", "--all"], 0)["rows"].as_array().unwrap().len(), 4);
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_listed_with_owner_fence_and_time_left() {
    let site = Site::new().await;
    assert!(stderr(&site.run(&["leases", "list"], 0)).contains("no leases are held"));
    site.enqueue("a").await;
    let fence = site.claim("jobs").await[0].lease().fence;
    let leases = site.json(&["leases", "list"], 0);
    let line = &leases["leases"][0];
    assert_eq!(
        (&line["key"], &line["fence"], &line["expired"]),
        (&json!(r#"job("a")"#), &json!(fence), &json!(false))
    );
    assert!(stdout(&site.run(&["leases", "list"], 0)).contains("5"), "some seconds are left");
    assert!(stderr(&site.run(&["leases", "list", "--expired"], 0)).contains("no lease has expired"));

    let held = lease::request(&site.store, Key::single("report").unwrap()).try_acquire().await.unwrap();
    let shown = stdout(&site.run(&["leases", "show", "report"], 0));
    assert!(shown.contains("holder") && shown.contains("fence"), "{shown}");
    assert!(
        stderr(&site.run(&["leases", "show", "nothing"], 3))
            .contains("nothing has neither a lease nor waiters")
    );
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_blocked_are_listed_sent_again_or_removed() {
    let site = Site::new().await;
    for id in ["m-1", "m-2", "m-3"] {
        let batch =
            MAILS.put(Batch::new(), &Message::new("ada@example.com", "hello").unwrap().id(id)).unwrap();
        site.store.apply(batch).await.unwrap();
    }
    assert!(stdout(&site.run(&["outbox", "list", "mails"], 0)).contains("ada@example.com"));
    site.block("outbox.mails", "no such address").await;
    let listed = site.json(&["outbox", "list", "mails"], 5);
    assert_eq!((&listed["blocked"], listed["messages"].as_array().unwrap().len()), (&json!(3), 3));

    assert_eq!(site.json(&["outbox", "retry", "mails", "--dry-run"], 0)["selected"], 3);
    assert!(
        stderr(&site.run(&["outbox", "retry", "mails"], 2)).contains("3 blocked in mails"),
        "there is no terminal for the confirmation"
    );
    assert_eq!(site.json(&["outbox", "retry", "mails", "m-1"], 0)["changed"], 1);
    assert!(stderr(&site.run(&["outbox", "retry", "mails", "m-9"], 3)).contains("m-9"));

    assert!(
        stdout(&site.run(&["outbox", "discard", "mails", "m-2", "--dry-run"], 0))
            .contains("would be removed")
    );
    site.run(&["outbox", "discard", "mails", "m-2"], 2);
    site.run(&["outbox", "discard", "mails", "m-2", "--yes"], 0);
    site.run(&["outbox", "discard", "mails", "m-2", "--yes"], 3);
    assert_eq!(site.json(&["outbox", "retry", "mails", "--yes"], 0)["changed"], 1);
    assert_eq!(site.json(&["outbox", "list", "mails"], 0)["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_read_is_removed_only_if_that_is_meant() {
    let site = Site::new().await;
    let row = Key::new("tidelock.outbox", ["mails", "odd"]).unwrap();
    let row = NewWork::once(row, "outbox.mails".parse().unwrap()).payload(Payload::of(&7).unwrap());
    site.store.apply(Batch::new().enqueue(row)).await.unwrap();
    let count = || site.json(&["outbox", "list", "mails"], 0)["messages"].as_array().unwrap().len();
    assert!(stdout(&site.run(&["outbox", "list", "mails"], 0)).contains("odd"));
    let dry = stdout(&site.run(&["outbox", "discard", "mails", "odd", "--dry-run"], 0));
    assert!(dry.contains("odd, which does not read, would be removed"), "{dry}");
    site.run(&["outbox", "discard", "mails", "odd"], 2);
    assert_eq!(count(), 1, "the removal was not confirmed");
    site.run(&["outbox", "discard", "mails", "odd", "--yes"], 0);
    assert_eq!(count(), 0);
    for verb in ["retry", "discard"] {
        let missing = stderr(&site.run(&["outbox", verb, "mails", "missing", "--dry-run"], 3));
        assert!(missing.contains("error[TL1222]"), "{missing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_have_ended_fill_their_pages() {
    let site = Site::new().await;
    let owner: Owner = "worker".parse().unwrap();
    for (name, ttl) in [("a", 60), ("b", 60), ("c", 0), ("d", 60), ("e", 0)] {
        site.enqueue(name).await;
        let job = Key::new("job", [name]).unwrap();
        site.store.claim(Claim::existing(&owner, &job, Duration::from_secs(ttl))).await.unwrap();
    }
    let page = site.json(&["leases", "list", "--expired", "--limit", "1"], 0);
    assert_eq!(page["leases"][0]["key"], json!(r#"job("c")"#));
    let next = page["next"].as_str().unwrap();
    let page = site.json(&["leases", "list", "--expired", "--limit", "1", "--cursor", next], 0);
    assert_eq!(page["leases"][0]["key"], json!(r#"job("e")"#));
}

#[test]
fn the_version_says_what_is_built_in() {
    let about: Value = serde_json::from_slice(&support::tidelock(&["version", "-o", "json"]).stdout).unwrap();
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    assert!(about["postgres_schema"].as_u64().is_some_and(|schema| schema > 0), "{about}");
}
