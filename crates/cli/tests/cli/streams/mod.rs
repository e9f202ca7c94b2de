//! Streams at the command line: listing, following, appending, copying, and restarting stuck work.

mod reactions;
mod read;
mod transfer;
mod truncated;
mod work;
mod write;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tidelock::prelude::*;
use tidelock::store::Event;

use crate::support::{self, stderr, stdout};

const ORDER: &str = r#"order("o-1")"#;

/// A store in a temporary directory.
struct Site {
    directory: TempDir,
    store: SqliteStore,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("a.db"), SqliteOptions::default()).await.unwrap();
        Self { directory, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = support::command(&[&["streams"], args].concat());
        command.env("TIDELOCK_STORE", self.path("a.db"));
        command
    }

    /// Runs a verb that must exit with this code.
    fn run(&self, args: &[&str], code: i32) -> Output {
        let output = self.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["-o", "json"]].concat(), 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn lines(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[args, &["-o", "jsonl"]].concat(), 0);
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Appends an event unconditionally.
    async fn append(&self, stream: &str, event_type: &str, payload: Value) -> Receipt {
        let event = NewEvent::new(event_type.parse().unwrap(), Payload::of(&payload).unwrap());
        let batch = Batch::new().append(&stream.parse().unwrap(), Expect::Any, [event]);
        self.store.apply(batch).await.unwrap()
    }

    async fn close(&self, stream: &str) {
        self.store.apply(Batch::new().close(&stream.parse().unwrap(), Expect::Any)).await.unwrap();
    }

    async fn truncate(&self, stream: &str, before: u64) {
        let batch = Batch::new().truncate(&stream.parse().unwrap(), StreamVersion(before));
        self.store.apply(batch).await.unwrap();
    }

    /// Returns the whole log.
    async fn log(&self) -> Vec<Event> {
        self.store.read_log(LogQuery::all(10_000)).await.unwrap().events
    }
}

#[test]
fn no_verb_makes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing.db");
    let empty = directory.path().join("empty.jsonl");
    std::fs::write(&empty, "").unwrap();
    let calls: [&[&str]; 17] = [
        &["list"],
        &["show", "a"],
        &["tail"],
        &["append", "a", "T", "1"],
        &["close", "a", "--yes"],
        &["export"],
        &["import", "--yes", "--file", empty.to_str().unwrap()],
        &["blocked"],
        &["unblock", "--yes"],
        &["reset", "--yes"],
        &["retry", "--yes"],
        &["status"],
        &["prioritize", "9", "--lane", "a"],
        &["parked", "r"],
        &["park", "--reaction", "r"],
        &["replay", "--reaction", "r"],
        &["drop", "--reaction", "r", "--yes"],
    ];
    for call in calls {
        let args = [&["streams"], call, &["--store", path.to_str().unwrap()]].concat();
        let output = support::tidelock(&args);
        assert_eq!(output.status.code(), Some(3), "{call:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("error[TL0401]"), "{}", stderr(&output));
        assert!(!path.exists());
    }
}

#[test]
fn each_verb_has_examples() {
    let verbs = [
        "list",
        "show",
        "tail",
        "append",
        "close",
        "export",
        "import",
        "blocked",
        "unblock",
        "reset",
        "retry",
        "status",
        "prioritize",
        "parked",
        "park",
        "replay",
        "drop",
    ];
    for verb in verbs {
        let help = support::tidelock(&["streams", verb, "--help"]);
        assert_eq!(help.status.code(), Some(0));
        assert!(stdout(&help).contains(&format!("tidelock streams {verb}")), "{verb}: {}", stdout(&help));
        assert!(stdout(&help).contains("Examples:"), "{verb}");
    }
}
