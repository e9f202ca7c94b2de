//! Schedules at the command line: listing, triggering, pausing and resuming.

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidelock::prelude::*;
use tidelock::schedule::{Schedule, ScheduleEngine, Scheduler, Schedules};
use tidelock::worker::WorkerHandle;

use crate::support::{self, stderr, stdout};

/// A store in a temporary directory, with a scheduler. Its tasks are due once in a thousand years, or when triggered.
struct Site {
    directory: TempDir,
    tasks: Schedules,
    running: Option<WorkerHandle<ScheduleEngine>>,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let store: SharedStore = Arc::new(SqliteStore::open(path, SqliteOptions::default()).await.unwrap());
        let scheduler = Scheduler::new(Arc::clone(&store)).poll_interval(Duration::from_millis(10));
        let report = Schedule::new("report").cron("0 0 29 2 *").zone("Europe/Berlin").run(async |_| Ok(()));
        let fails = Schedule::new("fails").cron("@yearly").retry(Duration::from_hours(1));
        let fails = fails.run(async |_| Err::<(), _>(Failure::retry("the printer\nis broken")));
        let running = scheduler.with(report).with(fails).start().await.unwrap();
        Self { directory, tasks: Schedules::new(store), running: Some(running) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("a.db")
    }

    /// Runs a verb that must exit with this code.
    fn run(&self, args: &[&str], code: i32) -> Output {
        let mut command = support::command(&[&["schedules"], args].concat());
        let output = command.env("TIDELOCK_STORE", self.path()).output().unwrap();
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

    /// Waits until a task has run the given number of times.
    async fn ran(&self, task: &str, runs: u64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.tasks.show(task).await.unwrap().runs < runs {
            assert!(Instant::now() < deadline, "{task} did not run {runs} times");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_and_shown() {
    let mut site = Site::new().await;
    let table = stdout(&site.run(&["list"], 0));
    for text in ["fails", "@yearly", "report", "0 0 29 2 *", "Europe/Berlin", "waits", "02-28 23:00:00Z"] {
        assert!(table.contains(text), "{text} is missing: {table}");
    }
    let listed = &site.json(&["list"])["tasks"];
    assert_eq!((&listed[0]["name"], &listed[1]["cron_expression"]), (&json!("fails"), &json!("0 0 29 2 *")));
    let shown = site.json(&["show", "report"]);
    assert_eq!(shown["upcoming"].as_array().unwrap().len(), 5);
    assert_eq!(shown["doing"]["state"], "waits");
    let text = stdout(&site.run(&["show", "report"], 0));
    assert!(text.contains("scheduler     default") && text.contains("upcoming"), "{text}");
    site.fails(&["show", "reprot"], 3, "error[TL1105]");
    site.fails(&["history", "reprot"], 3, "there are: fails, report");

    // A scheduler that declares none of the tasks archives them.
    site.running.take().unwrap().shutdown().await;
    let store: SharedStore =
        Arc::new(SqliteStore::open(site.path(), SqliteOptions::default()).await.unwrap());
    Scheduler::new(store).start().await.unwrap().shutdown().await;
    let gone = site.run(&["list"], 0);
    assert!(stdout(&gone).is_empty() && stderr(&gone).contains("2 archived"), "{}", stderr(&gone));
    assert!(stdout(&site.run(&["list", "--archived"], 0)).contains("archived"));
    site.fails(&["run", "report"], 4, "error[TL1106]");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_asked_for_and_their_ends_are_listed() {
    let site = Site::new().await;
    let asked = site.json(&["run", "report"]);
    assert!(asked["key"].as_str().unwrap().starts_with("report:20"), "{asked}");
    site.ran("report", 1).await;
    let history = &site.json(&["history", "report"])["runs"];
    assert_eq!((&history[0]["outcome"], &history[0]["kind"]), (&json!("succeeded"), &json!("manual")));

    assert!(stdout(&site.run(&["run", "fails"], 0)).starts_with("fails:20"));
    site.ran("fails", 1).await;
    let table = stdout(&site.run(&["history", "fails"], 0));
    assert!(table.contains("failed") && table.contains("the printer is broken"), "{table}");
    let shown = stdout(&site.run(&["show", "fails"], 0));
    assert!(shown.contains("doing         retries at"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn past_firings_are_run_after_confirmation() {
    let site = Site::new().await;
    let time = ["--after", "2015-01-01T00:00:00Z", "--to", "2025-01-01T00:00:00Z"];
    let with = |more: &[&'static str]| [&["run", "report"], &time[..], more].concat();
    assert_eq!(stdout(&site.run(&with(&["--dry-run"]), 0)), "3 ticks of report would be run\n");
    site.fails(&with(&[]), 2, "There is no terminal to confirm it: add --yes");
    assert_eq!(site.tasks.show("report").await.unwrap().runs, 0);
    assert_eq!(site.json(&with(&["--yes"])), json!({"schedule": "report", "ticks": 3, "dry_run": false}));
    site.ran("report", 3).await;
    let history = &site.json(&["history", "report", "--limit", "1"])["runs"];
    assert_eq!((history.as_array().unwrap().len(), &history[0]["kind"]), (1, &json!("backfill")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_paused_and_resumed() {
    let site = Site::new().await;
    let pause = ["pause", "report", "--reason", "the printer is broken"];
    assert_eq!(stdout(&site.run(&pause, 0)), "report is paused\n");
    let text = stdout(&site.run(&["show", "report"], 0));
    assert!(text.contains("paused since") && text.contains("the printer is broken"), "{text}");
    assert_eq!(site.json(&["resume", "report"]), json!({"schedule": "report", "paused": false}));
    assert_eq!(site.json(&["show", "report"])["doing"]["state"], "waits");
    site.fails(&["pause", "reprot"], 3, "error[TL1105]");
}
