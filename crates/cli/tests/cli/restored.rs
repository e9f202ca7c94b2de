//! The declaration that a store was restored.

use serde_json::Value;
use tidelock::prelude::*;

use crate::support::{self, stderr, stdout};

#[tokio::test]
async fn d3_restored_begins_a_new_epoch_and_reports_what_moved() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let (stream, happened) = (Key::single("order").unwrap(), EventType::new("Happened").unwrap());
    let append =
        || Batch::new().append(&stream, Expect::Any, [NewEvent::new(happened.clone(), Payload::null())]);
    let last = store.apply(append()).await.unwrap().appended[0].last_position;
    let before = store.epoch();
    let run = |args: &[&str], code: i32| {
        let mut command = support::command(&[&["restored", "-o", "json"], args].concat());
        let output = command.env("TIDELOCK_STORE", &path).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    };
    let asked = run(&[], 2);
    assert!(stderr(&asked).contains("--yes"), "{}", stderr(&asked));
    let tried: Value = serde_json::from_slice(&run(&["--dry-run"], 0).stdout).unwrap();
    assert_eq!((&tried["cut"], tried["epoch"].as_u64()), (&Value::Null, Some(before.0)));
    let done: Value = serde_json::from_slice(&run(&["--yes", "--reason", "drill"], 0).stdout).unwrap();
    let cut = &done["cut"];
    assert_eq!((cut["previous"].as_u64(), cut["reason"].as_str()), (Some(before.0), Some("drill")));
    assert_eq!(cut["cut_after"].as_u64(), Some(last.0));
    let next = store.apply(append()).await.unwrap().appended[0].last_position;
    assert_eq!(Some(next.0), cut["resumes_at"].as_u64(), "the open store continues in the new epoch");
    assert_eq!(cut["epoch"].as_u64(), Some(store.epoch().0));
    let doctor = support::command(&["doctor"]).env("TIDELOCK_STORE", &path).output().unwrap();
    assert!(stdout(&doctor).contains(&store.epoch().to_string()), "{}", stdout(&doctor));
}
