//! Idempotency keys at the command line: listing, showing and deleting.

use std::process::Output;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidelock::idempotency::{Fingerprint, Idempotency, Reservation, ReserveOutcome, StoredResponse};
use tidelock::prelude::*;

use crate::support::{self, stderr, stdout};

/// A store in a temporary directory.
struct Site {
    directory: TempDir,
    keys: Idempotency,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let store: SharedStore = Arc::new(SqliteStore::open(path, SqliteOptions::default()).await.unwrap());
        Self { directory, keys: Idempotency::new(&store) }
    }

    async fn reserve(&self, scope: &str, key: &str) -> Reservation {
        match self.keys.reserve(scope, key, &Fingerprint::of([key])).await.unwrap() {
            ReserveOutcome::Run(reservation) => reservation,
            other => panic!("{other:?}"),
        }
    }

    async fn answered(&self, scope: &str, key: &str, answer: StoredResponse) {
        self.reserve(scope, key).await.complete(answer).await.unwrap();
    }

    /// Runs a verb that must exit with this code.
    fn run(&self, args: &[&str], code: i32) -> Output {
        let mut command = support::command(&[&["idempotency"], args].concat());
        let output = command.env("TIDELOCK_STORE", self.directory.path().join("a.db")).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    }

    fn fails(&self, args: &[&str], code: i32, text: &str) {
        let output = self.run(args, code);
        assert!(stderr(&output).contains(text), "{args:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{args:?}: {}", stdout(&output));
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.run(&[args, &["-o", "json"]].concat(), 0).stdout).unwrap()
    }

    fn listed(&self, args: &[&str]) -> Vec<String> {
        let listing = self.json(&[&["list"], args].concat());
        let keys = listing["keys"].as_array().unwrap().iter();
        keys.map(|view| format!("{}/{}", view["scope"].as_str().unwrap(), view["key"].as_str().unwrap()))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_page_by_page() {
    let site = Site::new().await;
    assert!(stderr(&site.run(&["list"], 0)).contains("no keys"));
    for (scope, key) in [("", "z"), ("shop-1", "a"), ("shop-1", "b"), ("shop-2", "a")] {
        site.answered(scope, key, StoredResponse::new(201)).await;
    }
    let flying = site.reserve("shop-1", "c").await;
    assert_eq!(site.listed(&[]), ["/z", "shop-1/a", "shop-1/b", "shop-1/c", "shop-2/a"]);
    assert_eq!(site.listed(&["--scope", "shop-1"]), ["shop-1/a", "shop-1/b", "shop-1/c"]);
    let first = site.json(&["list", "--limit", "2"]);
    let next = first["next"].as_str().unwrap();
    assert_eq!(site.listed(&["--scope", "shop-1", "--cursor", next]), ["shop-1/b", "shop-1/c"]);
    assert_eq!(site.listed(&["--cursor", next]), ["shop-1/b", "shop-1/c", "shop-2/a"]);
    let table = site.run(&["list", "--limit", "4"], 0);
    assert!(
        stdout(&table).contains("answered with 201") && stdout(&table).contains("in flight at"),
        "{}",
        stdout(&table)
    );
    assert!(stderr(&table).contains(r#""shop-1", "c")'"#), "{}", stderr(&table));
    flying.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_with_its_answer() {
    let site = Site::new().await;
    site.answered("shop", "text", StoredResponse::new(201).header("location", "/1").text("made\u{1b}[31m"))
        .await;
    site.answered("", "bytes", StoredResponse::new(200).body([0, 255])).await;
    site.reserve("", "large").await.complete_with_status(200).await.unwrap();
    let shown = site.json(&["show", "text", "--scope", "shop"]);
    assert_eq!(
        (&shown["answer"]["status"], &shown["answer"]["body"]),
        (&json!(201), &json!("made\u{1b}[31m"))
    );
    assert_eq!(shown["answer"]["headers"][0], json!(["location", "/1"]));
    assert_eq!(shown["state"]["stored"]["body_bytes"], 9);
    let text = stdout(&site.run(&["show", "text", "--scope", "shop"], 0));
    assert!(text.contains("location: /1") && text.contains("made") && !text.contains('\u{1b}'), "{text:?}");
    let bytes = site.json(&["show", "bytes"]);
    assert_eq!((&bytes["answer"]["body"], &bytes["answer"]["is_text"]), (&json!("00ff"), &json!(false)));
    assert!(stdout(&site.run(&["show", "large"], 0)).contains("answered with 200, body not kept"));
    site.fails(&["show", "text"], 3, "error[TL1206]");
    site.fails(&["show", ""], 2, "error[TL1201]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_forgotten_after_a_question() {
    let site = Site::new().await;
    site.answered("shop", "k", StoredResponse::new(201)).await;
    let flying = site.reserve("shop", "flying").await;
    site.fails(&["delete", "k", "--scope", "shop"], 2, "There is no terminal to confirm it: add --yes");
    let dry = site.json(&["delete", "k", "--scope", "shop", "--dry-run"]);
    assert_eq!((&dry["deleted"], &dry["dry_run"]), (&json!(false), &json!(true)));
    assert_eq!(site.listed(&[]).len(), 2);
    assert_eq!(stdout(&site.run(&["delete", "k", "--scope", "shop", "--yes"], 0)), "k is deleted\n");
    assert_eq!(site.listed(&[]), ["shop/flying"]);
    site.fails(&["delete", "k", "--scope", "shop", "--yes"], 3, "error[TL1206]");
    site.fails(&["delete", "flying", "--scope", "shop", "--yes"], 4, "error[TL1202]");
    flying.release().await;
    drop(site.reserve("shop", "k").await);
}

#[test]
fn no_verb_makes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing.db");
    for call in [&["list"][..], &["show", "a"], &["delete", "a", "--yes"]] {
        let args = [&["idempotency"], call, &["--store", path.to_str().unwrap()]].concat();
        let output = support::tidelock(&args);
        assert_eq!(output.status.code(), Some(3), "{call:?}: {}", stderr(&output));
        assert!(!path.exists());
    }
}

#[test]
fn each_verb_has_examples() {
    for verb in ["list", "show", "delete"] {
        let help = stdout(&support::tidelock(&["idempotency", verb, "--help"]));
        assert!(
            help.contains(&format!("tidelock idempotency {verb}")) && help.contains("Examples:"),
            "{verb}: {help}"
        );
    }
}
