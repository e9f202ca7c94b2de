//! Copies of truncated streams: the later start is noted, rejected, or preserved in the copy.

use serde_json::{Value, json};
use tidelock::prelude::*;
use tidelock::store::StreamInfo;

use super::{ORDER, Site};
use crate::support::{stderr, stdout};

const GONE: &str = r#"order("o-2")"#;

impl Site {
    async fn info(&self, stream: &str) -> Option<StreamInfo> {
        self.store.stream(&stream.parse().unwrap()).await.unwrap()
    }

    /// Appends events whose payload is their version.
    async fn with(&self, stream: &str, events: u64) {
        for n in 0..events {
            self.append(stream, "Placed", json!(n)).await;
        }
    }
}

/// Creates a stream that begins with version 3, and a closed one without remaining events.
async fn source() -> Site {
    let site = Site::new().await;
    site.append("whole", "Seen", json!(1)).await;
    site.with(ORDER, 5).await;
    site.with(GONE, 4).await;
    site.truncate(ORDER, 3).await;
    site.truncate(GONE, 4).await;
    site.close(GONE).await;
    site
}

fn last_line(lines: &[String], from_end: usize) -> Value {
    serde_json::from_str(&lines[lines.len() - from_end]).unwrap()
}

#[tokio::test]
async fn an_export_notes_where_streams_begin() {
    let site = source().await;
    let lines = site.export(&[]);
    let told: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 1 + 1 + 3 + 2, "{lines:#?}");
    assert_eq!(told[2], json!({"stream": ORDER, "begins_at": 3}));
    assert_eq!((&told[3]["version"], &told[4]["version"]), (&json!(3), &json!(4)));
    assert_eq!(last_line(&lines, 2), json!({"stream": GONE, "begins_at": 4}));
    assert_eq!((&last_line(&lines, 1)["head"], &last_line(&lines, 1)["stream"]), (&json!(3), &json!(GONE)));
    let file = site.path("all.jsonl");
    let report = site.run(&["export", "--file", file.to_str().unwrap()], 0);
    assert!(stdout(&report).contains("3 events of 2 streams; 1 closed, 2 truncated"), "{}", stdout(&report));
    assert!(stderr(&report).contains("warning: 2 of the streams were truncated"), "{}", stderr(&report));
}

#[tokio::test]
async fn a_stream_that_begins_later_is_refused_unless_it_is_asked_for() {
    let (from, to) = (source().await, Site::new().await);
    let all = from.export(&[]);
    let refused = to.import(&all, &[], 4);
    let said = stderr(&refused);
    assert!(said.contains(r#"line 3: order("o-1") was truncated where it comes from"#), "{said}");
    assert!(said.contains("--begin-later") && said.contains("--from-line 3"), "{said}");
    assert_eq!(to.log().await.len(), 1, "the lines before the refused one are imported");
    assert_eq!(to.info(ORDER).await, None);

    let skipped = to.import(&all, &["--skip-conflicts"], 0);
    assert!(stdout(&skipped).contains("2 of 2 streams left out"), "{}", stdout(&skipped));
    assert!(stderr(&skipped).contains("left out: line 3"), "{}", stderr(&skipped));
    assert_eq!((to.info(ORDER).await, to.info(GONE).await), (None, None));

    let report = to.import(&all, &["--begin-later", "--from-line", "3", "-o", "json"], 0);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(
        (&report["imported"], &report["begun_later"], &report["closed"]),
        (&json!(2), &json!(2), &json!(1))
    );
    for stream in [ORDER, GONE] {
        let (here, there) = (to.info(stream).await.unwrap(), from.info(stream).await.unwrap());
        assert_eq!((here.head, here.first), (there.head, there.first), "{stream}");
        assert_eq!(here.closed_at.is_some(), there.closed_at.is_some(), "{stream}");
    }
    let told = |log: Vec<tidelock::store::Event>| -> Vec<_> {
        log.into_iter().map(|event| (event.stream, event.version, event.id, event.event_type)).collect()
    };
    assert_eq!(told(to.log().await), told(from.log().await), "nothing else is in the log");
    assert_eq!(to.append(ORDER, "Placed", json!(5)).await.appended[0].last_version, StreamVersion(5));

    for ways in [&[][..], &["--begin-later"]] {
        assert_eq!(to.counts(&all, ways), (json!(0), json!(3)), "again changes nothing: {ways:?}");
    }
    assert_eq!(from.counts(&all, &[]), (json!(0), json!(3)), "nor does it where it came from");
}

#[tokio::test]
async fn an_interrupted_import_with_a_late_beginning_resumes() {
    let from = Site::new().await;
    from.with(ORDER, 5).await;
    from.truncate(ORDER, 3).await;
    let all = from.export(&[]);
    // The state after an import that was killed before it reached version 3.
    let to = Site::new().await;
    to.with(ORDER, 2).await;
    to.truncate(ORDER, 2).await;
    let said = stderr(&to.import(&all, &[], 4));
    assert!(said.contains("here it has no events up to version 1; --begin-later"), "{said}");
    assert_eq!(to.counts(&all, &["--begin-later"]), (json!(2), json!(0)));
    assert_eq!(to.info(ORDER).await, from.info(ORDER).await);
}

#[tokio::test]
async fn existing_events_must_prove_that_the_stream_is_the_same() {
    let (from, to) = (Site::new().await, Site::new().await);
    from.with(ORDER, 5).await;
    let before = from.export(&[]);
    from.truncate(ORDER, 3).await;
    let after = from.export(&[]);
    // The store seems to have exactly the events that were removed.
    to.with(ORDER, 3).await;
    for ways in [&[][..], &["--begin-later"]] {
        let said = stderr(&to.import(&after, ways, 4));
        assert!(
            said.contains("here it ends with version 2: nothing shows that they are the same stream"),
            "{said}"
        );
    }
    assert_eq!(to.log().await.len(), 3);

    let copy = Site::new().await;
    copy.import(&before, &[], 0);
    from.append(ORDER, "Placed", json!(5)).await;
    assert_eq!(
        copy.counts(&from.export(&[]), &[]),
        (json!(1), json!(2)),
        "here it is, and it keeps its beginning"
    );
    assert_eq!(copy.info(ORDER).await.unwrap().first, Some(StreamVersion(0)));
}

#[tokio::test]
async fn removed_events_are_not_imported_again() {
    let (from, to) = (Site::new().await, Site::new().await);
    from.with(ORDER, 5).await;
    let all = from.export(&[]);
    to.import(&all, &[], 0);
    to.truncate(ORDER, 2).await;
    let said = stderr(&to.import(&all, &[], 4));
    assert!(
        said.contains("version 0 of order(\"o-1\") was removed here: the oldest event that is left is 2"),
        "{said}"
    );
    to.truncate(ORDER, 5).await;
    let said = stderr(&to.import(&all, &["--begin-later"], 4));
    assert!(said.contains("no event is left"), "{said}");
    assert!(to.log().await.is_empty());
    assert_eq!(to.info(ORDER).await.unwrap().head, Some(StreamVersion(4)));
}

#[tokio::test]
async fn d15_reserved_streams_are_neither_exported_nor_written() {
    let site = Site::new().await;
    site.append(r#"tidelock.inbox("r", 0, "order", "o-1")"#, "tidelock.routed", json!(1)).await;
    site.append(r#"history("user", "u-1")"#, "tidelock.state", json!(1)).await;
    site.append(r#"tagged("username:alice")"#, "tidelock.tagged", json!(1)).await;
    site.append(ORDER, "Placed", json!(1)).await;
    assert_eq!(site.export(&[]).len(), 2);
    let before = site.log().await;
    for stream in ["tidelock.inbox", r#"history("user", "u-1")"#, r#"tagged("username:alice")"#] {
        for call in [&["append", stream, "T", "1"][..], &["close", stream, "--yes"]] {
            let said = stderr(&site.run(call, 2));
            assert!(said.contains("error[TL0106]") && said.contains(stream), "{said}");
        }
    }
    let said = stderr(&site.run(&["append", ORDER, "tidelock.snapshot", "1"], 2));
    assert!(said.contains("error[TL0106]") && said.contains("tidelock.snapshot"), "{said}");
    assert_eq!(site.log().await, before);
}

#[tokio::test]
async fn lists_and_streams_say_what_was_removed() {
    let site = source().await;
    let list = site.json(&["list", "--prefix", "order"]);
    assert_eq!((&list["streams"][0]["first"], &list["streams"][0]["head"]), (&json!(3), &json!(4)));
    assert_eq!((&list["streams"][1]["first"], &list["streams"][1]["head"]), (&Value::Null, &json!(3)));
    assert!(stderr(&site.run(&["show", ORDER], 0)).contains("the events before version 3 were removed"));
    assert!(stderr(&site.run(&["show", GONE], 0)).contains("all events up to version 3 were removed"));
    assert_eq!(site.lines(&["show", ORDER, "--backward"]).len(), 2);
    assert_eq!(site.lines(&["show", ORDER, "--from", "1"]).len(), 2, "the oldest that are left");
}
