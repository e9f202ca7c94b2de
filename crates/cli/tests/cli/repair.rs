//! `work blocked`, `unblock`, `reset` and `retry`.

use std::time::Duration;

use serde_json::{Value, json};
use tidelock::prelude::*;
use tidelock::store::{Lease, WorkRow};

use crate::streams::Site;
use crate::support::{stderr, stdout};

const TTL: Duration = Duration::from_secs(3600);

impl Site {
    async fn enqueue(&self, queue: &str, names: &[String]) {
        let batch = names.iter().fold(Batch::new(), |batch, name| {
            let key = Key::new("job", [name.as_str()]).unwrap();
            batch.enqueue(NewWork::standing(key, queue.parse().unwrap()))
        });
        self.store.apply(batch).await.unwrap();
    }

    /// Claims all work of a queue and applies an outcome to each row.
    async fn each(&self, queue: &str, say: impl Fn(Batch, &Lease) -> Batch) {
        let owner: Owner = "worker".parse().unwrap();
        let claim = Claim::queues(&owner, [queue.parse().unwrap()], 1_000, TTL);
        let grants = self.store.claim(claim).await.unwrap().grants;
        let batch = grants.iter().fold(Batch::new(), |batch, grant| say(batch, &grant.lease()));
        self.store.apply(batch).await.unwrap();
    }

    /// Creates blocked work in this queue.
    async fn block(&self, queue: &str, names: &[&str]) {
        self.enqueue(queue, &names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).await;
        self.each(queue, |batch, lease| batch.block(lease, "bad\u{1b} address\nline 2")).await;
    }

    async fn job(&self, name: &str) -> WorkRow {
        self.store.work(&Key::new("job", [name]).unwrap()).await.unwrap().unwrap()
    }

    async fn blocked(&self, name: &str) -> bool {
        self.job(name).await.blocked.is_some()
    }
}

#[tokio::test]
async fn blocked_work_is_listed_and_exits_with_5() {
    let site = Site::of("work").await;
    let none = site.run(&["blocked"], 0);
    assert!(stdout(&none).is_empty() && stderr(&none).contains("nothing is blocked"));
    assert_eq!(site.json(&["blocked"]), json!({"blocked": 0, "rows": [], "next": null}));

    site.block("mails", &["a", "b"]).await;
    site.block("calls", &["c"]).await;
    let table = site.run(&["blocked"], 5);
    for text in [r#"job("a")"#, "mails", r"bad\u{1b} address line 2"] {
        assert!(stdout(&table).contains(text), "{text}: {}", stdout(&table));
    }
    let json = |args: &[&str]| -> Value {
        let output = site.run(&[&["blocked", "-o", "json"], args].concat(), 5);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let all = json(&["--limit", "2"]);
    assert_eq!((&all["blocked"], &all["next"]), (&json!(3), &json!(r#"job("b")"#)));
    assert_eq!(all["rows"][0]["attempts"], 1);
    assert!(all["rows"][0]["blocked_at"].is_string(), "{all}");
    assert_eq!(json(&["--queue", "calls"])["rows"][0]["key"], r#"job("c")"#);
    assert_eq!(json(&["--pattern", "b$"])["blocked"], 1);
    site.run(&["blocked", "--queue", "other"], 0);
    site.run(&["blocked", "--pattern", "a+"], 2);
}

#[tokio::test]
async fn blocked_work_is_unblocked_by_name_by_queue_by_pattern_and_as_a_whole() {
    let site = Site::of("work").await;
    site.block("mails", &["a", "b"]).await;
    site.block("calls", &["c", "d", "e"]).await;
    let missing = site.run(&["unblock", r#"job("a")"#, r#"job("x")"#], 3);
    assert!(stderr(&missing).contains(r#"there is no work job("x")"#), "{}", stderr(&missing));
    assert!(site.blocked("a").await, "nothing was changed");
    assert!(stdout(&site.run(&["unblock", r#"job("a")"#], 0)).contains("1 of 1 rows changed"));
    assert!(!site.blocked("a").await && site.blocked("b").await);

    let dry = site.json(&["unblock", "--queue", "calls", "--dry-run"]);
    assert_eq!((&dry["selected"], &dry["changed"], &dry["dry_run"]), (&json!(3), &json!(0), &json!(true)));
    assert_eq!(dry["would_change"], 3);
    assert_eq!(dry["rows"].as_array().unwrap().len(), 3);
    let table = site.run(&["unblock", "--queue", "calls", "--dry-run"], 0);
    assert!(stdout(&table).contains(r#"job("c")"#) && stderr(&table).contains("3 of 3 rows would change"));
    assert!(site.blocked("c").await, "nothing was changed");

    assert_eq!(site.json(&["unblock", "--queue", "calls", "--pattern", "c$"])["changed"], 1);
    assert!(!site.blocked("c").await && site.blocked("d").await);
    let all = site.run(&["unblock"], 2);
    assert!(
        stderr(&all).contains("--yes") && stderr(&all).contains("3 of 3 rows would change"),
        "{}",
        stderr(&all)
    );
    assert_eq!(site.json(&["unblock", "--yes"])["changed"], 3);
    site.run(&["blocked"], 0);
    assert_eq!(site.json(&["unblock"])["selected"], 0, "nothing needs no question");
    site.run(&["unblock", r#"job("a")"#, "--queue", "mails"], 2);
}

#[tokio::test]
async fn many_rows_need_a_yes() {
    let site = Site::of("work").await;
    let names: Vec<String> = (0..101).map(|n| format!("{n:03}")).collect();
    site.enqueue("jobs", &names).await;
    site.each("jobs", |batch, lease| batch.block(lease, "no")).await;
    site.run(&["unblock", "--queue", "jobs"], 2);
    assert_eq!(site.json(&["unblock", "--queue", "jobs", "--dry-run"])["selected"], 101);
    assert_eq!(site.json(&["unblock", "--pattern", "job 09"])["changed"], 10, "few need none");
    assert_eq!(site.json(&["unblock", "--queue", "jobs"])["changed"], 91, "so do the rest");
}

#[tokio::test]
async fn a_reset_begins_again_and_fences_the_holder_off() {
    let site = Site::of("work").await;
    let key = Key::new("job", ["a"]).unwrap();
    let work = NewWork { position: Some(Position(0)), ..NewWork::standing(key, "jobs".parse().unwrap()) };
    site.store.apply(Batch::new().enqueue(work)).await.unwrap();
    site.each("jobs", |batch, lease| batch.advance(lease, Position(7))).await;
    let before = site.job("a").await;
    assert!(before.lease.is_some() && before.position == Some(Position(7)), "{before:?}");
    assert_eq!(site.json(&["reset", "--yes"])["selected"], 0, "without a condition, blocked work is meant");
    assert_eq!(site.json(&["reset", "--queue", "jobs"])["changed"], 1);
    let after = site.job("a").await;
    assert!(after.lease.is_none() && after.position == Some(Position(0)), "{after:?}");
}

#[tokio::test]
async fn a_retry_makes_waiting_work_due_and_leaves_the_rest_alone() {
    let site = Site::of("work").await;
    site.block("stuck", &["s"]).await;
    site.enqueue("jobs", &["a".to_owned(), "b".to_owned()]).await;
    site.each("jobs", |batch, lease| batch.fail(lease, "not now", Due::After(TTL))).await;
    let due = site.job("a").await.due;
    assert_eq!(site.json(&["retry", r#"job("a")"#])["changed"], 1);
    assert!(site.job("a").await.due < due && site.job("b").await.due >= due);
    site.run(&["retry"], 2);
    let all = site.json(&["retry", "--yes"]);
    assert_eq!((&all["selected"], &all["changed"]), (&json!(2), &json!(1)), "one was due already");
    assert!(site.blocked("s").await);
}
