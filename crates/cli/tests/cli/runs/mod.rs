//! Runs at the command line: listing, starting, signalling, repairing, watching and removing.

mod change;
mod prune;
mod queues;
mod read;
mod start;
mod watch;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidelock::prelude::*;
use tidelock::worker::WorkerHandle;
use tidelock::workflow::{
    Ctx, Failure, RunActivity, RunStatus, RunView, Signal, Worker, Workflow, WorkflowClient, WorkflowEngine,
};

use crate::support::{self, stderr, stdout};

const APPROVED: Signal<bool> = Signal::new("approved");
const ORDER: Workflow<Value, Value> = Workflow::new("order").accepts(APPROVED);
const NAP: Workflow<(), ()> = Workflow::new("nap");
const COUNTDOWN: Workflow<u32, String> = Workflow::new("countdown");

const PARENT: Workflow<(), bool> = Workflow::new("parent").accepts(APPROVED);

/// Reserves, waits for approval, and charges. If the input names a gate, this file must exist for the charge to
/// succeed.
async fn order(cx: &Ctx, input: Value) -> Result<Value, Failure> {
    let reserved: u32 = cx.step("reserve", async |_| Ok(7)).await?;
    cx.set_query_value("stage", "reserved");
    let approved = cx.signal(APPROVED).await?;
    let gate = input["gate"].as_str().map(PathBuf::from);
    let open = gate.is_none_or(|gate| gate.exists());
    let charge = async move |_| {
        if open { Ok("paid".to_owned()) } else { Err(Failure::permanent("the bank is closed")) }
    };
    let charged: String = cx.step("charge", charge).await?;
    Ok(json!({ "reserved": reserved, "approved": approved, "charged": charged }))
}

async fn nap(cx: &Ctx, (): ()) -> Result<(), Failure> {
    Ok(cx.sleep(Duration::from_secs(86_400)).await?)
}

async fn countdown(cx: &Ctx, from: u32) -> Result<String, Failure> {
    cx.step("tick", async move |_| Ok(from)).await?;
    if from > 0 { cx.continue_as_new(&(from - 1)).await } else { Ok("lift off".to_owned()) }
}

/// Starts a child that ends, and then waits.
async fn parent(cx: &Ctx, (): ()) -> Result<bool, Failure> {
    cx.child("count", COUNTDOWN, &0).await?;
    Ok(cx.signal(APPROVED).await?)
}

/// A store in a temporary directory, with a worker.
struct Site {
    directory: TempDir,
    client: WorkflowClient,
    driving: WorkerHandle<WorkflowEngine>,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let store: SharedStore = Arc::new(SqliteStore::open(path, SqliteOptions::default()).await.unwrap());
        let worker = Worker::new(Arc::clone(&store)).register(ORDER, order).register(NAP, nap);
        let worker = worker.register(COUNTDOWN, countdown).register(PARENT, parent);
        let driving = worker.start().await.unwrap();
        Self { directory, client: WorkflowClient::new(store), driving }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = support::command(&[&["runs"], args].concat());
        command.env("TIDELOCK_STORE", self.path("a.db"));
        command
    }

    /// Runs a verb that must exit with this code.
    fn run(&self, args: &[&str], code: i32) -> Output {
        let output = self.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    }

    /// Runs a verb that must exit with this code and print this text on standard error.
    fn fails(&self, args: &[&str], code: i32, text: &str) {
        let output = self.run(args, code);
        assert!(stderr(&output).contains(text), "{args:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{args:?}: {}", stdout(&output));
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["-o", "json"]].concat(), 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until the run meets a condition, and returns it.
    async fn until(&self, run: &str, wanted: impl Fn(&RunView) -> bool) -> RunView {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let view = self.client.show(run).await.unwrap();
            if wanted(&view) {
                return view;
            }
            assert!(Instant::now() < deadline, "{view:?}");
            tokio::task::yield_now().await;
        }
    }

    /// Starts an order that waits for approval.
    async fn waiting(&self, run: &str, input: Value) {
        self.client.start(ORDER, &input).id(run).attribute("customer", "c-7").await.unwrap();
        self.until(run, |view| view.doing == RunActivity::Waits { until: None }).await;
    }

    /// Creates an order that failed because the bank is closed, and returns the gate that opens it.
    async fn failed(&self, run: &str) -> PathBuf {
        let gate = self.path(&format!("{run}.open"));
        self.waiting(run, json!({ "gate": gate })).await;
        self.client.signal(run, APPROVED, &true).await.unwrap();
        self.ended(run, RunStatus::Failed).await;
        gate
    }

    async fn ended(&self, run: &str, status: RunStatus) -> RunView {
        let view = self.until(run, |view| view.status.is_over()).await;
        assert_eq!(view.status, status, "{view:?}");
        view
    }
}

#[test]
fn no_verb_makes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing.db");
    let calls: [&[&str]; 13] = [
        &["list"],
        &["show", "a"],
        &["steps", "a"],
        &["history", "a"],
        &["queues"],
        &["limit", "a", "--concurrency", "1"],
        &["start", "w"],
        &["signal", "a", "s"],
        &["cancel", "a", "--yes"],
        &["resume", "a"],
        &["fork", "a", "--from", "s"],
        &["watch", "a"],
        &["prune", "--older", "1d", "--yes"],
    ];
    for call in calls {
        let args = [&["runs"], call, &["--store", path.to_str().unwrap()]].concat();
        let output = support::tidelock(&args);
        assert_eq!(output.status.code(), Some(3), "{call:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("error[TL0401]"), "{}", stderr(&output));
        assert!(!path.exists());
    }
}

#[test]
fn each_verb_has_examples() {
    for verb in ["list", "show", "steps", "start", "signal", "cancel", "resume", "fork", "watch", "prune"] {
        let help = support::tidelock(&["runs", verb, "--help"]);
        assert_eq!(help.status.code(), Some(0));
        assert!(stdout(&help).contains(&format!("tidelock runs {verb}")), "{verb}: {}", stdout(&help));
        assert!(stdout(&help).contains("Examples:"), "{verb}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_not_there_ends_with_3() {
    let site = Site::new().await;
    let calls: [&[&str]; 7] = [
        &["show", "missing"],
        &["steps", "missing"],
        &["signal", "missing", "approved"],
        &["cancel", "missing"],
        &["resume", "missing"],
        &["fork", "missing", "--from", "charge"],
        &["watch", "missing"],
    ];
    for call in calls {
        site.fails(call, 3, "error[TL1001]: there is no run \"missing\"");
    }
}
