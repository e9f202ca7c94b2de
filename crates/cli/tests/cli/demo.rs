//! The demo, with real processes that are really killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tidelock::prelude::*;

use crate::support::{stderr, stdout, tidelock};

/// What must not be.
pub(crate) const WRONG: [&str; 10] = [
    "lost",
    "doubled",
    "unasked",
    "under_way",
    "astray",
    "miscounted",
    "collided",
    "takes_doubled",
    "takes_left_out",
    "fallen",
];

#[test]
fn the_proof_holds() {
    let output = tidelock(&["demo", "--seconds", "3", "-o", "json"]);
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{proof:#} {}", stderr(&output));
    assert_eq!(proof["holds"], true);
    for name in WRONG {
        assert_eq!(proof[name], 0, "{name}: {proof:#}");
    }
    for name in ["asked", "kills", "retries", "recognised", "takeovers", "conflicts", "stock_takes"] {
        assert!(proof[name].as_u64().unwrap() > 0, "{name}: {proof:#}");
    }
    assert_eq!(proof["asked"], proof["done"]);
}

#[test]
fn two_demos_share_a_file_and_it_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.db");
    for _ in 0..2 {
        let output =
            tidelock(&["demo", "--seconds", "1", "--workers", "2", "--path", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{} {}", stdout(&output), stderr(&output));
        assert!(stdout(&output).contains("the proof holds"));
    }
    assert!(path.exists());
}

/// Starts a demo that goes on for long, and waits until the first order is shipped.
async fn busy_demo(path: &Path) -> Child {
    let store = SqliteStore::open(path, SqliteOptions::default()).await.unwrap();
    let mut hints = store.watch();
    let demo = Command::new(env!("CARGO_BIN_EXE_tidelock"))
        .args(["demo", "--seconds", "600", "--path", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut query = LogQuery::all(1);
    query.filter.types = vec!["OrderShipped".parse().unwrap()];
    while store.read_log(query.clone()).await.unwrap().events.is_empty() {
        assert!(hints.changed().await);
    }
    store.close().await;
    demo
}

/// The workers share the parent's standard error: it ends when the last of them is gone.
#[tokio::test]
async fn workers_end_when_their_parent_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = busy_demo(&directory.path().join("demo.db")).await;
    demo.kill().unwrap();
    let output = demo.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(said.starts_with("look at it") && said.lines().count() == 1, "{said}");
}

#[cfg(unix)]
#[tokio::test]
async fn interrupted_it_prints_the_numbers_so_far() {
    let directory = tempfile::tempdir().unwrap();
    let demo = busy_demo(&directory.path().join("demo.db")).await;
    let sent = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = demo.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("so far"), "{}", stdout(&output));
}
