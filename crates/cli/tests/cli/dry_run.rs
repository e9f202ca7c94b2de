//! `--dry-run` changes nothing: each verb that has it is tried on a store with something to change.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidelock::idempotency::{Fingerprint, Idempotency, ReserveOutcome, StoredResponse};
use tidelock::outbox::{Message, Outbox};
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock::schedule::{Schedule, Scheduler};
use tidelock::store::{Page, WorkFilter};
use tidelock::workflow::{Ctx, Failure, RunStatus, Worker, Workflow, WorkflowClient};

use crate::support::{self, stderr, stdout};

const MAILS: Outbox = Outbox::new("mails");
const QUICK: Workflow<(), ()> = Workflow::new("quick");

async fn quick(_: &Ctx, (): ()) -> Result<(), Failure> {
    Ok(())
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

/// A store in which every verb finds something to change.
struct Site {
    directory: TempDir,
    store: SharedStore,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let store: SharedStore = Arc::new(SqliteStore::open(path, SqliteOptions::default()).await.unwrap());
        let site = Self { directory, store };
        site.blocked_work().await;
        site.stuck_reaction().await;
        site.runs().await;
        let report = Schedule::new("report").cron("@daily").run(async |_| Ok(()));
        Scheduler::new(Arc::clone(&site.store)).with(report).start().await.unwrap().shutdown().await;
        let answered = Idempotency::new(&site.store).reserve("", "order-17", &Fingerprint::of(["a"])).await;
        let ReserveOutcome::Run(reservation) = answered.unwrap() else { panic!("it is new") };
        reservation.complete(StoredResponse::new(200)).await.unwrap();
        let greeting = Batch::new().put(&key("greeting"), Expect::Absent, Payload::of("hello").unwrap());
        site.store.apply(greeting).await.unwrap();
        site
    }

    /// Creates a blocked row, a blocked message, and a row that waits.
    async fn blocked_work(&self) {
        let job = |name: &str, queue: &str| NewWork::once(key(name), queue.parse().unwrap());
        let mail = MAILS.put(Batch::new(), &Message::new("ada", "hello").unwrap().id("m-1")).unwrap();
        self.store.apply(mail.enqueue(job("stuck", "jobs")).enqueue(job("waits", "later"))).await.unwrap();
        let owner: Owner = "worker".parse().unwrap();
        for queue in ["jobs", "outbox.mails", "later"] {
            let claim = Claim::queues(&owner, [queue.parse().unwrap()], 10, Duration::from_secs(3600));
            for grant in self.store.claim(claim).await.unwrap().grants {
                let batch = match queue {
                    "later" => {
                        Batch::new().fail(&grant.lease(), "later", Due::After(Duration::from_secs(3600)))
                    }
                    _ => Batch::new().block(&grant.lease(), "no such address"),
                };
                self.store.apply(batch).await.unwrap();
            }
        }
    }

    /// Creates a reaction with one blocked key, and one key with a parked event.
    async fn stuck_reaction(&self) {
        for stream in ["order(\"o-1\")", "order(\"o-2\")"] {
            let event = NewEvent::new("Placed".parse().unwrap(), Payload::null());
            self.store.apply(Batch::new().append(&key(stream), Expect::Absent, [event])).await.unwrap();
        }
        // The second round executes the request made after the first.
        for round in 1..=2 {
            let refuses = |_, _| async { Err::<Batch, _>(Failure::permanent("no")) };
            let reaction = Reaction::new("mail").on(["Placed"]).each(refuses);
            let running = Reactions::new(Arc::clone(&self.store)).with(reaction).start().await.unwrap();
            running.quiesce().await.unwrap();
            running.shutdown().await;
            if round == 1 {
                self.run(&["reactions", "park", "mail", "order(\"o-2\")"]);
            }
        }
    }

    /// Creates a run that has ended, and one that no worker has started.
    async fn runs(&self) {
        let client = WorkflowClient::new(Arc::clone(&self.store));
        let driving = Worker::new(Arc::clone(&self.store)).register(QUICK, quick).start().await.unwrap();
        client.start(QUICK, &()).id("r-1").await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while client.show("r-1").await.unwrap().status != RunStatus::Completed {
            assert!(Instant::now() < deadline, "it does not end");
            tokio::task::yield_now().await;
        }
        driving.shutdown().await;
        client.start(QUICK, &()).id("r-2").await.unwrap();
    }

    /// Runs a call that must succeed, and returns its output.
    fn run(&self, args: &[&str]) -> String {
        let mut command = support::command(args);
        let output = command.env("TIDELOCK_STORE", self.directory.path().join("a.db")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {} {}", stdout(&output), stderr(&output));
        stdout(&output) + &stderr(&output)
    }

    /// Returns the whole contents of the store.
    async fn everything(&self) -> String {
        let (all, page) = (KeyPrefix::all(), Page::first(500));
        let documents = self.store.documents(&all, page.clone()).await.unwrap().rows;
        let streams = self.store.streams(&all, page.clone()).await.unwrap().rows;
        let work = self.store.works(&WorkFilter::default(), page).await.unwrap().rows;
        let log = self.store.read_log(LogQuery::all(10_000)).await.unwrap().events;
        format!("{documents:#?}\n{streams:#?}\n{work:#?}\n{log:#?}")
    }
}

/// Returns the verbs that have the flag, by the names of their manual pages.
fn verbs_that_have_it(directory: &Path) -> BTreeSet<String> {
    let output = support::tidelock(&["man", "--dir", directory.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let pages = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let has_it = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path).unwrap().contains("\\fB\\-\\-dry\\-run\\fR")
    };
    let name = |path: std::path::PathBuf| {
        path.file_stem().unwrap().to_str().unwrap().trim_start_matches("tidelock-").to_owned()
    };
    pages.filter(has_it).map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_leaves_the_store_as_it_is() {
    let site = Site::new().await;
    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("export.jsonl");
    let file = file.to_str().unwrap();
    site.run(&["streams", "export", "--file", file]);
    // The exported streams are renamed, so that there is something to import.
    let text = std::fs::read_to_string(file).unwrap().replace("o-1", "o-9").replace("o-2", "o-8");
    std::fs::write(file, text).unwrap();
    let calls: [&[&str]; 21] = [
        &["outbox", "retry", "mails"],
        &["outbox", "discard", "mails", "m-1"],
        &["state", "delete", "greeting"],
        &["streams", "close", "order(\"o-1\")"],
        &["streams", "import", "--file", file],
        &["work", "unblock"],
        &["work", "reset"],
        &["work", "retry"],
        &["work", "prioritize", "9", "--queue", "jobs"],
        &["reactions", "unblock", "mail"],
        &["reactions", "reset", "mail"],
        &["reactions", "retry", "mail"],
        &["reactions", "prioritize", "9", "mail"],
        &["reactions", "park", "mail"],
        &["reactions", "replay", "mail"],
        &["reactions", "drop", "mail"],
        &["runs", "cancel", "r-2"],
        &["runs", "prune", "--older", "0s"],
        &["idempotency", "delete", "order-17"],
        &["restored"],
        &["schedules", "run", "report", "--after", "2026-03-01T00:00:00Z", "--to", "2026-03-08T00:00:00Z"],
    ];
    let before = site.everything().await;
    let mut tried = BTreeSet::new();
    for call in calls {
        let said = site.run(&[call, &["--dry-run"]].concat());
        assert!(
            !said.trim().is_empty() && !said.starts_with("0 "),
            "there is something to change: {call:?}: {said}"
        );
        // `--yes` does not override `--dry-run`.
        site.run(&[call, &["--dry-run", "--yes"]].concat());
        assert_eq!(site.everything().await, before, "{call:?}");
        tried.insert(call[..call.len().min(2)].join("-"));
    }
    assert_eq!(tried, verbs_that_have_it(&other.path().join("man")));
}
