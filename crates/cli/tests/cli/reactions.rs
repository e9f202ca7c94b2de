//! The operator commands on reactions: stuck work is listed, resumed, reset, or parked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, ReactionEngine, Reactions, WhenExhausted};
use tidelock::worker::WorkerHandle;

use crate::streams::{ORDER, Site};
use crate::support::{stderr, stdout};

const LONG: Duration = Duration::from_secs(3600);
const OTHER: &str = r#"order("o-2")"#;

/// A reaction that fails on bad events until it is switched to succeed.
#[derive(Clone, Default)]
struct Picky {
    well: Arc<AtomicBool>,
    handled: Arc<AtomicU32>,
}

impl Picky {
    fn reaction(&self) -> Reaction {
        let mine = self.clone();
        Reaction::new("mail").on(["Placed"]).each(move |_, event| {
            let mine = mine.clone();
            async move {
                if event.payload.as_str() == "\"bad\"" && !mine.well.load(Ordering::SeqCst) {
                    return Err(Failure::permanent("no such address"));
                }
                mine.handled.fetch_add(1, Ordering::SeqCst);
                Ok(Batch::new())
            }
        })
    }

    async fn start(&self, site: &Site, reaction: Reaction) -> WorkerHandle<ReactionEngine> {
        Reactions::new(Arc::new(site.store.clone())).with(reaction).start().await.unwrap()
    }

    /// Runs the reaction until no work is left.
    async fn work(&self, site: &Site) -> u32 {
        let running = self.start(site, self.reaction()).await;
        running.quiesce().await.unwrap();
        running.shutdown().await;
        self.handled.load(Ordering::SeqCst)
    }
}

/// Creates one key that is blocked at its second event of three, and another that has handled its
/// only event.
async fn stuck() -> (Site, Picky) {
    let (site, picky) = (Site::of("reactions").await, Picky::default());
    for payload in ["good", "bad", "late"] {
        site.append(ORDER, "Placed", json!(payload)).await;
    }
    site.append(OTHER, "Placed", json!("good")).await;
    assert_eq!(picky.work(&site).await, 2);
    (site, picky)
}

fn keys(status: &Value) -> Vec<&str> {
    status["keys"].as_array().unwrap().iter().map(|line| line["key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_status_reports_progress_and_errors_of_a_reaction() {
    let (site, _) = stuck().await;
    let all = &site.json(&["list"])["reactions"];
    assert_eq!(
        (&all[0]["name"], &all[0]["keys"], &all[0]["blocked_keys"]),
        (&json!("mail"), &json!(2), &json!(1))
    );
    assert_eq!((&all[0]["lag"]["events"], &all[0]["position"]), (&json!(0), &all[0]["head"]));
    let mail = site.json(&["status", "mail"]);
    assert_eq!(keys(&mail), [ORDER, OTHER]);
    let line = &mail["keys"][0];
    assert_eq!(
        (&line["position"], &line["lag"]["events"], &line["error"]),
        (&json!(1), &json!(2), &json!("no such address"))
    );
    assert!(
        line["blocked_at"].is_string() && line["owner"].is_null() && line["lag"]["seconds"].is_f64(),
        "{line}"
    );
    assert_eq!(keys(&site.json(&["status", "mail", "--blocked"])), [ORDER]);
    assert_eq!(keys(&site.json(&["status", "mail", OTHER])), [OTHER]);
    assert_eq!(keys(&site.json(&["status", "mail", "--pattern", "o-2$"])), [OTHER]);
    let page = site.json(&["status", "mail", "--limit", "1"]);
    assert_eq!(keys(&site.json(&["status", "mail", "--cursor", page["next"].as_str().unwrap()])), [OTHER]);

    let table = stdout(&site.run(&["status", "mail"], 0));
    assert!(
        table.contains("blocked") && table.contains("no such address") && table.contains("idle"),
        "{table}"
    );
    assert!(stdout(&site.run(&["list"], 0)).contains("mail"));
    assert!(stderr(&site.run(&["status", "mail", "missing"], 3)).contains("has no key missing"));
    let unknown = stderr(&site.run(&["status", "other"], 3));
    assert!(unknown.contains("error[TL0706]") && unknown.contains("there are: mail"), "{unknown}");
    assert!(stderr(&Site::of("reactions").await.run(&["list"], 0)).contains("no reaction has run"));
}

#[tokio::test]
async fn a_blocked_key_resumes_where_it_stopped() {
    let (site, picky) = stuck().await;
    let dry = site.json(&["unblock", "mail", "--dry-run"]);
    assert_eq!(
        (&dry["would_change"], &dry["changed"], &dry["rows"][0]["key"]),
        (&json!(1), &json!(0), &json!(ORDER))
    );
    site.run(&["blocked", "mail"], 5);
    let missing = stderr(&site.run(&["unblock", "mail", ORDER, "missing"], 3));
    assert!(missing.contains("has no key missing"), "{missing}");
    site.run(&["unblock", "other"], 3);
    site.run(&["unblock", "mail", "--pattern", "a", ORDER], 2);
    site.run(&["blocked", "mail"], 5);

    picky.well.store(true, Ordering::SeqCst);
    let done = site.json(&["unblock", "mail", OTHER, ORDER]);
    assert_eq!((&done["selected"], &done["changed"]), (&json!(2), &json!(1)));
    assert_eq!(picky.work(&site).await, 4, "each event once");
    site.run(&["blocked", "mail"], 0);
}

#[tokio::test]
async fn a_reset_of_a_key_or_of_the_whole_handles_events_again() {
    let (site, picky) = stuck().await;
    picky.well.store(true, Ordering::SeqCst);
    let own = stderr(&site.work(&["reset", r#"tidelock.reaction("mail", "order", "o-1")"#], 2));
    assert!(own.contains("tidelock reactions reset REACTION KEY"), "{own}");
    let others = stdout(&site.work(&["reset", "--yes", "-o", "json"], 0));
    let others: Value = serde_json::from_str(&others).unwrap();
    assert_eq!(
        (&others["selected"], &others["skipped"]),
        (&json!(0), &json!(1)),
        "rows of reactions are left alone"
    );
    assert_eq!(site.json(&["reset", "mail", ORDER])["changed"], 1);
    assert_eq!(picky.work(&site).await, 2 + 3);

    assert!(stderr(&site.run(&["reset", "mail"], 2)).contains("no key was given"));
    assert!(stderr(&site.run(&["reset", "mail", "--whole"], 2)).contains("cannot be undone"));
    site.run(&["reset", "--whole"], 2);
    site.run(&["reset", "mail", "--whole", ORDER], 2);
    assert_eq!(site.json(&["reset", "mail", "--whole", "--dry-run"])["would_change"], 2);
    assert_eq!(site.json(&["reset", "mail", "--whole", "--yes"])["changed"], 2);
    let forgotten = &site.json(&["list"])["reactions"];
    assert_eq!(
        (&forgotten[0]["keys"], &forgotten[0]["position"]),
        (&json!(0), &json!(0)),
        "routing restarts at the beginning"
    );
    assert_eq!(picky.work(&site).await, 5 + 4);
}

#[tokio::test]
async fn an_event_is_parked_replayed_and_dropped() {
    let (site, picky) = stuck().await;
    site.run(&["park", "mail"], 2);
    let dry = site.run(&["park", "mail", "--dry-run"], 0);
    assert!(
        stderr(&dry).contains("1 of 1 keys would change") && stdout(&dry).contains(ORDER),
        "{}",
        stderr(&dry)
    );
    assert_eq!(site.json(&["park", "mail", ORDER])["changed"], 1);
    assert_eq!(picky.work(&site).await, 3, "it continues with the next event");
    let parked = site.json(&["dead-letters", "mail"]);
    assert_eq!(
        (&parked["events"][0]["event"]["payload"], &parked["events"][0]["key"]),
        (&json!("bad"), &json!(ORDER))
    );
    let position = parked["events"][0]["event"]["position"].to_string();
    assert!(stdout(&site.run(&["dead-letters", "mail"], 0)).contains("no such address"));

    assert_eq!(site.json(&["replay", "mail", "--position", &position])["changed"], 1);
    assert_eq!(picky.work(&site).await, 3);
    assert_eq!(site.json(&["dead-letters", "mail"])["events"][0]["replays"], 1, "it failed again");
    picky.well.store(true, Ordering::SeqCst);
    assert_eq!(site.json(&["replay", "mail", ORDER])["changed"], 1);
    assert_eq!(picky.work(&site).await, 4);
    assert!(stderr(&site.run(&["dead-letters", "mail"], 0)).contains("no dead letters"));
}

#[tokio::test]
async fn dropping_is_asked_about_and_urgency_needs_a_condition() {
    let (site, picky) = (Site::of("reactions").await, Picky::default());
    site.append(ORDER, "Placed", json!("bad")).await;
    let running = picky.start(&site, picky.reaction().when_exhausted(WhenExhausted::Park)).await;
    running.quiesce().await.unwrap();
    running.shutdown().await;
    site.run(&["park", "mail", "--yes"], 0);
    picky.work(&site).await;
    assert_eq!(site.json(&["drop", "mail", "--dry-run"])["would_change"], 1);
    assert!(stderr(&site.run(&["drop", "mail", ORDER], 2)).contains("--yes"));
    assert_eq!(site.json(&["drop", "mail", "--position", "99", "--yes"])["changed"], 0);
    assert_eq!(site.json(&["drop", "mail", "--yes"])["changed"], 1);
    assert_eq!(site.json(&["dead-letters", "mail"])["events"], json!([]));

    site.work(&["prioritize", "9"], 2);
    site.work(&["prioritize", "10", "--queue", "a"], 2);
    assert_eq!(site.json(&["prioritize", "9", "mail", ORDER])["changed"], 1);
    let row: Key = r#"tidelock.reaction("mail", "order", "o-1")"#.parse().unwrap();
    assert_eq!(site.store.work(&row).await.unwrap().unwrap().priority, Priority::FIRST);
}

#[tokio::test]
async fn a_key_that_waits_is_tried_at_once() {
    let site = Site::of("reactions").await;
    site.append(ORDER, "Placed", json!(1)).await;
    let later = Reaction::new("later").each(async |_, _| Err::<Batch, _>(Failure::defer(Due::After(LONG))));
    let running = Picky::default().start(&site, later).await;
    let row: Key = r#"tidelock.reaction("later", "order", "o-1")"#.parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // The key is deferred once its row has a payload and no lease.
    while !site
        .store
        .work(&row)
        .await
        .unwrap()
        .is_some_and(|row| row.lease.is_none() && row.payload != Payload::null())
    {
        assert!(Instant::now() < deadline, "it does not put itself off");
        tokio::task::yield_now().await;
    }
    running.shutdown().await;
    let due_at = || -> Timestamp {
        let status = site.json(&["status", "later"]);
        status["keys"][0]["due_at"].as_str().unwrap().parse().unwrap()
    };
    let due = due_at();
    let left = stdout(&site.work(&["retry", "--yes", "-o", "json"], 0));
    let left: Value = serde_json::from_str(&left).unwrap();
    assert_eq!(left["changed"], 0, "rows of reactions are selected with their reaction only: {left}");
    assert_eq!(site.json(&["retry", "later"])["changed"], 1, "that needs no question");
    assert!(due_at() < due);
}
