//! Confirmation prompts and views in a terminal.

use std::path::PathBuf;

use tempfile::TempDir;
use tidelock::prelude::*;

use crate::support::tidelock;
use crate::terminal::Terminal;

async fn store() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let put = Batch::new().put(&Key::single("greeting").unwrap(), Expect::Absent, Payload::of("hi").unwrap());
    store.apply(put).await.unwrap();
    store.close().await;
    (directory, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_with_y_or_nothing_is_done() {
    let (directory, path) = store().await;
    let is_there = || {
        tidelock(&["state", "get", "greeting", "--store", path.to_str().unwrap()]).status.code() == Some(0)
    };
    let verb = format!("state delete greeting --store {}", path.display());
    for (answer, code, said) in [
        ("n\n", 1, "nothing was changed"),
        ("\n", 1, "nothing was changed"),
        ("yellow\n", 1, "nothing was changed"),
        ("y\n", 0, "is deleted"),
    ] {
        assert!(is_there(), "before {answer:?}");
        let Some(mut terminal) = Terminal::run(&verb, directory.path()) else { return };
        terminal.sees("Delete it? [y/N]");
        terminal.types(answer);
        terminal.sees(said);
        assert_eq!(terminal.ended().0, Some(code), "{answer:?}");
    }
    assert!(!is_there());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_emphasis_unless_it_is_disabled() {
    let (directory, path) = store().await;
    for (settings, flags, plain) in [
        ("", "", false),
        ("NO_COLOR=1", "", true),
        ("NO_COLOR=", "", false),
        ("TIDELOCK_COLOR=never", "", true),
        ("", "--no-color", true),
    ] {
        let verb = format!("doctor {flags} --store {}", path.display());
        let Some(terminal) = Terminal::run_with(settings, &verb, directory.path()) else { return };
        let (code, drawn) = terminal.ended();
        assert_eq!(code, Some(0), "{drawn}");
        assert!(drawn.contains("durability"), "{drawn}");
        assert_eq!(!drawn.contains('\u{1b}'), plain, "{settings:?} {flags:?}: {drawn:?}");
    }
}
