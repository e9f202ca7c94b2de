//! Streams at the command line: listing, following, appending, and copying.

mod read;
mod transfer;
mod truncated;
mod write;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tidelock::prelude::*;
use tidelock::store::Event;

use crate::support::{self, stderr, stdout};

pub(crate) const ORDER: &str = r#"order("o-1")"#;

/// A store in a temporary directory.
pub(crate) struct Site {
    directory: TempDir,
    pub(crate) store: SqliteStore,
    /// The noun of the verbs that it runs.
    noun: &'static str,
}

impl Site {
    async fn new() -> Self {
        Self::of("streams").await
    }

    pub(crate) async fn of(noun: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("a.db"), SqliteOptions::default()).await.unwrap();
        Self { directory, store, noun }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = support::command(&[&[self.noun], args].concat());
        command.env("TIDELOCK_STORE", self.path("a.db"));
        command
    }

    /// Runs a verb that must exit with this code.
    pub(crate) fn run(&self, args: &[&str], code: i32) -> Output {
        let output = self.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    }

    /// Runs a verb of `work` that must exit with this code.
    pub(crate) fn work(&self, args: &[&str], code: i32) -> Output {
        let mut command = support::command(&[&["work"], args].concat());
        let output = command.env("TIDELOCK_STORE", self.path("a.db")).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["-o", "json"]].concat(), 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn lines(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[args, &["-o", "jsonl"]].concat(), 0);
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Appends an event unconditionally.
    pub(crate) async fn append(&self, stream: &str, event_type: &str, payload: Value) -> Receipt {
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
        &["streams", "list"],
        &["streams", "show", "a"],
        &["streams", "tail"],
        &["streams", "append", "a", "T", "1"],
        &["streams", "close", "a", "--yes"],
        &["streams", "export"],
        &["streams", "import", "--yes", "--file", empty.to_str().unwrap()],
        &["work", "blocked"],
        &["work", "unblock", "--yes"],
        &["work", "reset", "--yes"],
        &["work", "retry", "--yes"],
        &["reactions", "list"],
        &["work", "prioritize", "9", "--queue", "a"],
        &["reactions", "dead-letters", "r"],
        &["reactions", "park", "r"],
        &["reactions", "replay", "r"],
        &["reactions", "drop", "r", "--yes"],
    ];
    for call in calls {
        let args = [call, &["--store", path.to_str().unwrap()]].concat();
        let output = support::tidelock(&args);
        assert_eq!(output.status.code(), Some(3), "{call:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("error[TL0401]"), "{}", stderr(&output));
        assert!(!path.exists());
    }
}

#[test]
fn each_verb_has_examples() {
    let verbs = [
        ("streams", &["list", "show", "tail", "append", "close", "export", "import"][..]),
        ("work", &["list", "show", "blocked", "unblock", "retry", "reset", "prioritize"]),
        ("reactions", &["list", "status", "blocked", "unblock", "retry", "reset", "prioritize"]),
        ("reactions", &["park", "dead-letters", "replay", "drop"]),
    ];
    let verbs = verbs.iter().flat_map(|(noun, verbs)| verbs.iter().map(move |verb| (noun, verb)));
    for (noun, verb) in verbs {
        let help = support::tidelock(&[noun, verb, "--help"]);
        assert_eq!(help.status.code(), Some(0));
        assert!(stdout(&help).contains(&format!("tidelock {noun} {verb}")), "{verb}: {}", stdout(&help));
        assert!(stdout(&help).contains("Examples:"), "{verb}");
    }
}
