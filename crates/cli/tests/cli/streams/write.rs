//! `append` and `close`.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;
use tidelock::prelude::*;

use super::{ORDER, Site};
use crate::support::{stderr, stdout};

#[tokio::test]
async fn an_event_is_appended_from_an_argument_and_from_standard_input() {
    let site = Site::new().await;
    let first = site.run(&["append", ORDER, "Placed", r#"{ "n": 123456789012345678901 }"#], 0);
    assert!(stdout(&first).contains("version 0 now; it is new; position 1"), "{}", stdout(&first));
    let second = site.json(&["append", ORDER, "Paid", "-5", "--correlation", "c-1"]);
    assert_eq!((&second["version"], &second["position"]), (&json!(1), &json!(2)));

    let mut command = site.command(&["append", ORDER, "Sent", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"[1,\n2]\n").unwrap();
    assert!(stdout(&child.wait_with_output().unwrap()).contains("version 2"));

    let log = site.log().await;
    let told: Vec<_> = log.iter().map(|event| (event.event_type.as_str(), event.payload.as_str())).collect();
    assert_eq!(told, [("Placed", r#"{"n":123456789012345678901}"#), ("Paid", "-5"), ("Sent", "[1,2]")]);
    assert_eq!(log[1].correlation.as_deref(), Some("c-1"));
    assert_eq!(json!(log[1].id), second["id"]);
}

#[tokio::test]
async fn conditions_that_do_not_hold_end_with_4_and_append_nothing() {
    let site = Site::new().await;
    site.append(ORDER, "Placed", json!(1)).await;
    site.append(ORDER, "Paid", json!(2)).await;
    for condition in [&["--if-version", "0"][..], &["--if-absent"], &["--if-version", "2"]] {
        let refused = site.run(&[&["append", ORDER, "T", "1"], condition].concat(), 4);
        assert!(stdout(&refused).is_empty());
        assert!(stderr(&refused).contains("error[TL0201]"), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("is at version 1"), "{}", stderr(&refused));
    }
    let missing = site.run(&["append", "new", "T", "1", "--if-version", "0"], 4);
    assert!(stderr(&missing).contains("new does not exist, and version 0 was expected"));
    for wrong in [
        &["append", ORDER, "T", "hello"][..],
        &["append", ORDER, "", "1"],
        &["append", ORDER, "tidelock.state", "1"],
        &["append", ORDER, "T", "1", "--if-absent", "--if-version", "1"],
    ] {
        site.run(wrong, 2);
    }
    assert_eq!(site.log().await.len(), 2, "nothing of these was appended");
    assert_eq!(site.json(&["append", ORDER, "T", "1", "--if-version", "1"])["version"], 2);
    assert_eq!(site.json(&["append", "new", "T", "1", "--if-absent"])["version"], 0);
}

#[tokio::test]
async fn a_stream_is_closed_once_and_only_if_it_is_meant() {
    let site = Site::new().await;
    site.append(ORDER, "Placed", json!(1)).await;
    let key: Key = ORDER.parse().unwrap();
    let unasked = site.run(&["close", ORDER], 2);
    assert!(stderr(&unasked).contains("--yes"), "{}", stderr(&unasked));
    let other = site.run(&["close", ORDER, "--if-version", "7", "--yes"], 4);
    assert!(stderr(&other).contains("is at version 0, and version 7 was expected"), "{}", stderr(&other));
    site.run(&["close", "nothing", "--yes"], 3);
    assert_eq!(site.store.stream(&key).await.unwrap().unwrap().closed_at, None);

    let closed = site.json(&["close", ORDER, "--if-version", "0", "--yes"]);
    assert_eq!((&closed["changed"], &closed["head"]), (&json!(true), &json!(0)));
    let info = site.store.stream(&key).await.unwrap().unwrap();
    assert_eq!(json!(info.closed_at), closed["closed_at"]);
    let again = site.json(&["close", ORDER]);
    assert_eq!((&again["changed"], &again["closed_at"]), (&json!(false), &closed["closed_at"]));

    let refused = site.run(&["append", ORDER, "T", "1"], 4);
    assert!(stderr(&refused).contains("error[TL0205]"), "{}", stderr(&refused));
    assert!(stderr(&site.run(&["show", ORDER], 0)).contains("closed 2"), "its events can be read");
}
