//! `tidelock top`, in a real pseudo-terminal created by `script`, and without one.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tidelock::prelude::*;

use crate::support::{self, stdout};
use crate::terminal::Terminal;

async fn store() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let job = NewWork::once(Key::new("job", ["a"]).unwrap(), "some-lane".parse().unwrap());
    let event = NewEvent::new("Placed".parse().unwrap(), Payload::null());
    let order = Key::single("order").unwrap();
    store.apply(Batch::new().append(&order, Expect::Absent, [event]).enqueue(job)).await.unwrap();
    store.close().await;
    (directory, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_change_the_view_and_end_it() {
    let (directory, path) = store().await;
    let verb = format!("top --every 100ms --store {}", path.display());
    let Some(mut terminal) = Terminal::run(&verb, directory.path()) else { return };
    terminal.sees("tidelock top  sqlite");
    terminal.sees("[queues]");
    terminal.sees("some-lane");
    terminal.types("\t");
    terminal.sees("[blocked]");
    terminal.types("?");
    terminal.sees("pauses and resumes");
    terminal.types("p");
    terminal.sees("PAUSED");
    terminal.types("q");
    terminal.ends();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_gives_the_terminal_back() {
    let (directory, path) = store().await;
    for verb in ["top", "work list --watch"] {
        let Some(mut terminal) =
            Terminal::run(&format!("{verb} --store {}", path.display()), directory.path())
        else {
            return;
        };
        terminal.sees("some-lane");
        let pid = std::fs::read_to_string(directory.path().join("pid")).unwrap();
        assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
        terminal.ends();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_it_looks_once() {
    let (_directory, path) = store().await;
    let path = path.to_str().unwrap();
    let text = support::tidelock(&["top", "--store", path]);
    assert_eq!(text.status.code(), Some(0));
    assert!(stdout(&text).contains("1 ready") && stdout(&text).contains("some-lane"), "{}", stdout(&text));
    assert!(!stdout(&text).contains('\u{1b}'));
    let json = support::tidelock(&["top", "--once", "-o", "json", "--store", path]);
    let seen: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&seen["position"], &seen["work"]["ready"]), (&1.into(), &1.into()));
}
