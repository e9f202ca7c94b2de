//! Features shared by all listings: layouts, pages, and `--watch`.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tidelock::prelude::*;

use crate::support::{self, stderr, stdout};

/// A store with five records.
struct Site {
    directory: TempDir,
    store: SqliteStore,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("a.db"), SqliteOptions::default()).await.unwrap();
        let site = Self { directory, store };
        for number in 0..5 {
            site.put(&format!("k{number}"), number).await;
        }
        site
    }

    async fn put(&self, key: &str, value: i32) {
        let key = Key::single(key).unwrap();
        self.store.apply(Batch::new().put(&key, Expect::Any, Payload::of(&value).unwrap())).await.unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = support::command(args);
        command.env("TIDELOCK_STORE", self.directory.path().join("a.db"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = self.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        output
    }
}

/// A running watch.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    /// Stops the watch with Ctrl-C.
    fn end(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

fn keys(text: &str) -> Vec<String> {
    let key = |line: &str| serde_json::from_str::<Value>(line).unwrap()["key"].as_str().unwrap().to_owned();
    text.lines().map(key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_json_are_all_rows_and_nothing_else() {
    let site = Site::new().await;
    let all = site.run(&["state", "list", "-o", "jsonl"]);
    assert_eq!(keys(&stdout(&all)), ["k0", "k1", "k2", "k3", "k4"]);
    assert_eq!(stderr(&all), "");
    let some = site.run(&["state", "list", "-o", "jsonl", "--limit", "2"]);
    assert_eq!(keys(&stdout(&some)), ["k0", "k1"]);
    assert_eq!(stderr(&some), "hint: there may be more; continue with --cursor k1\n");
    let rest = site.run(&["state", "list", "-o", "jsonl", "--cursor", "k1"]);
    assert_eq!(keys(&stdout(&rest)), ["k2", "k3", "k4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_listing_has_pages_layouts_and_a_watch() {
    let site = Site::new().await;
    let listings: [&[&str]; 11] = [
        &["state", "list"],
        &["streams", "list"],
        &["work", "blocked"],
        &["reactions", "list"],
        &["runs", "list"],
        &["runs", "queues"],
        &["schedules", "list"],
        &["idempotency", "list"],
        &["work", "list"],
        &["leases", "list"],
        &["outbox", "list", "mails"],
    ];
    for listing in listings {
        let json = site.run(&[listing, &["-o", "json", "--limit", "1"]].concat());
        let object: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert!(object.as_object().unwrap().contains_key("next"), "{listing:?}: {object}");
        assert_eq!(stderr(&json), "", "{listing:?}");
        let lines = stdout(&site.run(&[listing, &["-o", "jsonl"]].concat()));
        assert!(
            lines.lines().all(|line| serde_json::from_str::<Value>(line).unwrap().is_object()),
            "{lines}"
        );
        let help = stdout(&support::tidelock(&[listing, &["--help"]].concat()));
        for flag in ["--limit", "--cursor", "--watch", "--output", "jsonl", "--no-color"] {
            assert!(help.contains(flag), "{listing:?} lacks {flag}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_with_lines_prints_changed_rows() {
    let site = Site::new().await;
    let mut watching = Watching::start(site.command(&["state", "list", "-o", "jsonl", "--watch=100ms"]));
    let first: Vec<String> = (0..5).flat_map(|_| keys(&watching.line())).collect();
    assert_eq!(first, ["k0", "k1", "k2", "k3", "k4"]);
    site.put("k3", 7).await;
    assert_eq!(keys(&watching.line()), ["k3"]);
    site.put("k9", 7).await;
    assert_eq!(keys(&watching.line()), ["k9"]);
    watching.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_with_lines_prints_rows_beyond_the_first_page() {
    let site = Site::new().await;
    for number in 100..700 {
        site.put(&format!("k{number}"), number).await;
    }
    let mut watching = Watching::start(site.command(&["state", "list", "-o", "jsonl", "--watch=100ms"]));
    let first: Vec<String> = (0..605).flat_map(|_| keys(&watching.line())).collect();
    assert_eq!(first, keys(&stdout(&site.run(&["state", "list", "-o", "jsonl"]))));
    site.put("z", 1).await;
    assert_eq!(keys(&watching.line()), ["z"]);
    watching.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_without_a_terminal_prints_a_block_for_each_change() {
    let site = Site::new().await;
    let mut watching = Watching::start(site.command(&["state", "get", "k0", "--watch=100ms"]));
    assert_eq!(watching.line(), "0");
    site.put("k1", 8).await;
    site.put("k0", 9).await;
    assert_eq!((watching.line(), watching.line()), (String::new(), "9".to_owned()));
    watching.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_nothing_ends_at_once() {
    let site = Site::new().await;
    let output = site.command(&["runs", "show", "absent", "--watch"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[tokio::test]
async fn messages_are_printed_once_and_not_as_data() {
    let site = Site::new().await;
    for layout in ["table", "json", "jsonl"] {
        let missing = site.command(&["state", "get", "absent", "--watch", "-o", layout]).output().unwrap();
        assert_eq!(missing.status.code(), Some(3), "{layout}");
        assert!(stderr(&missing).contains("absent"), "{layout}: {}", stderr(&missing));
        assert!(stdout(&missing).is_empty(), "{layout}: {}", stdout(&missing));
    }
    let mut watching = site.command(&["state", "list", "--prefix", "none", "--watch=100ms"]);
    let mut watching = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(watching.stderr.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    site.put("none", 7).await;
    let mut data = BufReader::new(watching.stdout.take().unwrap()).lines();
    let shown = data.by_ref().map_while(Result::ok).find(|line| !line.trim().is_empty()).unwrap();
    assert!(!shown.contains(&first), "{shown}");
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert_eq!(
        said.map_while(Result::ok).filter(|line| *line == first).count(),
        0,
        "the message was printed once"
    );
}
