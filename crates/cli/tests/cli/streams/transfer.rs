//! `export` and `import`.

use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidelock::events::EventMetadata;
use tidelock::prelude::*;
use tidelock::store::Event;

use super::{ORDER, Site};
use crate::support::{stderr, stdout};

impl Site {
    pub(super) fn export(&self, args: &[&str]) -> Vec<String> {
        let output = self.run(&[&["export"], args].concat(), 0);
        stdout(&output).lines().map(str::to_owned).collect()
    }

    pub(super) fn import(&self, lines: &[String], args: &[&str], code: i32) -> Output {
        let mut command = self.command(&[&["import", "--yes"], args].concat());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A child that rejects the first lines does not read the rest.
        drop(child.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{} {}", stdout(&output), stderr(&output));
        output
    }

    pub(super) fn counts(&self, lines: &[String], args: &[&str]) -> (Value, Value) {
        let output = self.import(lines, &[&["-o", "json"], args].concat(), 0);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (report["imported"].clone(), report["there"].clone())
    }
}

/// Creates a store with interleaved events of several streams.
async fn source(events: usize) -> Site {
    let site = Site::new().await;
    for chunk in (0..events).collect::<Vec<_>>().chunks(400) {
        let batch = chunk.iter().fold(Batch::new(), |batch, n| {
            let stream = Key::new("order", [format!("o-{}", n % 7)]).unwrap();
            let event = NewEvent::new("Placed".parse().unwrap(), Payload::of(&json!({ "n": n })).unwrap());
            let event = NewEvent { correlation: Some(format!("c-{n}")), ..event };
            batch.append(&stream, Expect::Any, [event])
        });
        site.store.apply(batch).await.unwrap();
    }
    site
}

/// Returns the properties of an event that an import preserves.
fn kept(event: &Event) -> (Key, StreamVersion, EventId, String, Payload, Option<String>) {
    let name = event.event_type.to_string();
    let Event { stream, version, id, payload, correlation, .. } = event.clone();
    (stream, version, id, name, payload, correlation)
}

fn contents(events: &[Event]) -> Vec<(Key, StreamVersion, EventId, String, Payload, Option<String>)> {
    events.iter().map(kept).collect()
}

#[tokio::test]
async fn a_copy_has_the_same_events_in_the_same_order() {
    let (from, to) = (source(1_203).await, Site::new().await);
    let meta = r#"{"n":123456789012345678901,"notes":{"by":"ann"}}"#;
    let event = NewEvent::new(
        "Noted".parse().unwrap(),
        Payload::from_json("{ \"a\": \"\u{202e}\n\" }".replace('\n', "\\n")).unwrap(),
    );
    let event = NewEvent { meta: Payload::from_json(meta).unwrap(), ..event };
    from.store
        .apply(Batch::new().append(&Key::single("noted").unwrap(), Expect::Absent, [event]))
        .await
        .unwrap();
    from.close(r#"order("o-3")"#).await;
    from.close("empty").await;

    let file = from.path("all.jsonl");
    let exported = from.json(&["export", "--file", file.to_str().unwrap()]);
    assert_eq!(exported, json!({"events": 1_204, "streams": 8, "closed": 2, "truncated": 0}));
    let dry = to.json(&["import", "--dry-run", "--file", file.to_str().unwrap()]);
    assert!(dry["events"].as_u64().unwrap() > 0 && dry["streams"].as_u64().unwrap() > 0, "{dry}");
    assert!(to.log().await.is_empty(), "nothing was imported");
    let asked = to.run(&["import", "--file", file.to_str().unwrap()], 2);
    assert!(stderr(&asked).contains("events of") && stderr(&asked).contains("--yes"), "{}", stderr(&asked));
    let report = to.json(&["import", "--yes", "--file", file.to_str().unwrap()]);
    assert_eq!((&report["imported"], &report["closed"]), (&json!(1_204), &json!(2)), "{report}");
    let (before, after) = (from.log().await, to.log().await);
    assert_eq!(contents(&after), contents(&before));
    for stream in [r#"order("o-3")"#, "empty"] {
        assert!(to.store.stream(&stream.parse().unwrap()).await.unwrap().unwrap().closed_at.is_some());
    }
    let context = EventMetadata::of(after.last().unwrap());
    assert_eq!(context.notes()["original_at"], json!(before.last().unwrap().at));
    assert_eq!(context.notes()["by"], "ann");
    assert!(after.last().unwrap().meta.as_str().contains("123456789012345678901"), "no digit is lost");

    let again = to.json(&["import", "--yes", "--file", file.to_str().unwrap()]);
    assert_eq!(
        (&again["imported"], &again["there"], &again["closed"]),
        (&json!(0), &json!(1_204), &json!(0))
    );
    let home = from.json(&["import", "--yes", "--file", file.to_str().unwrap()]);
    assert_eq!((&home["imported"], &home["there"]), (&json!(0), &json!(1_204)), "where it came from: {home}");
    assert_eq!((to.log().await, from.log().await), (after, before), "nothing has changed");
}

#[tokio::test]
async fn a_copy_of_a_copy_remembers_the_first_time() {
    let (first, second, third) = (source(3).await, Site::new().await, Site::new().await);
    second.import(&first.export(&[]), &[], 0);
    third.import(&second.export(&[]), &[], 0);
    let at = json!(first.log().await[0].at);
    assert_eq!(EventMetadata::of(&third.log().await[0]).notes()["original_at"], at);
}

#[tokio::test]
async fn an_export_is_of_a_range_and_says_what_it_is() {
    let site = source(5).await;
    site.append("other", "Seen", json!(1)).await;
    let lines = site.export(&["--prefix", "other"]);
    let head: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&head["format"], &head["version"]), (&json!("tidelock-streams"), &json!(1)));
    let event: Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!((lines.len(), &event["stream"], &event["type"]), (2, &json!("other"), &json!("Seen")));
    assert_eq!(site.export(&["--prefix", "nothing"]).len(), 1);
    assert_eq!(Site::new().await.export(&[]).len(), 1, "an empty store");
    let nowhere = site.path("no/such/directory/f");
    site.run(&["export", "--file", nowhere.to_str().unwrap()], 1);
}

#[tokio::test]
async fn a_file_that_has_grown_adds_what_is_new() {
    let (from, to) = (source(700).await, Site::new().await);
    to.import(&from.export(&[]), &[], 0);
    from.append(r#"order("o-0")"#, "Paid", json!(1)).await;
    assert_eq!(to.counts(&from.export(&[]), &[]), (json!(1), json!(700)));
    assert_eq!(contents(&to.log().await), contents(&from.log().await));
    let few = from.export(&["--prefix", r#"order("o-1")"#]);
    assert_eq!(to.counts(&few, &[]), (json!(0), json!(100)), "other batches than at first");
}

#[tokio::test]
async fn a_stream_with_other_events_stops_the_import_before_its_batch() {
    let (from, to) = (source(1_100).await, Site::new().await);
    // The conflicting events are in the third batch, so two batches are imported first.
    let lines: Vec<String> = from.export(&[]);
    from.append("last", "Seen", json!(1)).await;
    to.append("last", "Other", json!(2)).await;
    let all = from.export(&[]);
    assert_eq!(all.len(), lines.len() + 1);
    let refused = to.import(&all, &[], 4);
    let said = stderr(&refused);
    assert!(
        said.contains("error[TL0201]: line 1102: last has another event at version 0 here: Other"),
        "{said}"
    );
    assert!(said.contains("--from-line 1002"), "{said}");
    assert!(stdout(&refused).is_empty());
    assert_eq!(to.log().await.len(), 1 + 1_000, "nothing of the third batch");

    assert_eq!(to.counts(&all, &["--from-line", "1002", "--skip-conflicts"]), (json!(100), json!(0)));
    let report = to.import(&all, &["--skip-conflicts"], 0);
    assert!(stdout(&report).contains("1,100 were there, 1 of 1 streams left out"), "{}", stdout(&report));
    assert_eq!(to.log().await.len(), 1 + 1_100);
}

#[tokio::test]
async fn closed_streams_and_ids_in_use_are_conflicts() {
    let (from, to) = (source(14).await, Site::new().await);
    let all = from.export(&[]);
    to.import(&all[..8], &[], 0);
    to.close(r#"order("o-2")"#).await;
    let closed = to.import(&all, &[], 4);
    assert!(stderr(&closed).contains(r#"line 11: order("o-2")"#), "{}", stderr(&closed));
    assert_eq!(to.log().await.len(), 7);
    assert_eq!(to.counts(&all, &["--skip-conflicts"]).0, json!(6));

    let other = Site::new().await;
    other.import(&all, &[], 0);
    let renamed: Vec<String> = all.iter().map(|line| line.replace("o-1", "o-9")).collect();
    let used = other.import(&renamed, &[], 4);
    assert!(stderr(&used).contains("is in use"), "{}", stderr(&used));

    from.close(r#"order("o-0")"#).await;
    to.append(r#"order("o-0")"#, "More", json!(1)).await;
    let longer = to.import(&from.export(&[]), &["--from-line", "16"], 4);
    assert!(stderr(&longer).contains("line 16"), "{}", stderr(&longer));
}

#[tokio::test]
async fn the_same_events_at_other_versions_are_a_conflict() {
    let (from, to) = (Site::new().await, Site::new().await);
    for n in 0..3 {
        from.append("a", "T", json!(n)).await;
    }
    let all = from.export(&[]);
    // The same ids, one version later: the store recognises the events at other versions.
    to.import(&all, &[], 0);
    let later: Vec<String> = (0..3).rev().fold(all.clone(), |lines, n| {
        let (was, is) = (format!(r#""version":{n},"id""#), format!(r#""version":{},"id""#, n + 1));
        lines.iter().map(|line| line.replace(&was, &is)).collect()
    });
    assert_ne!(later, all);
    let said = stderr(&to.import(&later, &[], 4));
    assert!(said.contains("line 2: a has another event at version 1 here"), "{said}");
    assert_eq!(to.log().await.len(), 3);
}

#[tokio::test]
async fn an_invalid_export_exits_with_2_and_names_the_line() {
    let (from, to) = (source(14).await, Site::new().await);
    let all = from.export(&[]);
    let with = |line: usize, text: &str| {
        let mut lines = all.clone();
        text.clone_into(&mut lines[line - 1]);
        lines
    };
    let newer = all[0].replace(r#""version":1"#, r#""version":2"#);
    for (lines, message) in [
        (with(1, "{}"), "line 1"),
        (with(1, &newer), "reads version 1"),
        (with(4, "nonsense"), "line 4"),
        (with(4, r#"{"stream":"a"}"#), "lacks a version"),
        (with(4, &all[3].replace(r#""payload""#, r#""payloads""#)), "line 4"),
        (with(4, &all[3].replace("order(", "tidelock.inbox(")), "error[TL0106]: line 4; remove the line"),
        (with(4, &all[3].replace("order(", "history(")), "error[TL0106]: line 4; remove the line"),
        (with(4, &all[3].replace("order(", "tagged(")), "error[TL0106]: line 4; remove the line"),
    ] {
        let site = Site::new().await;
        let refused = site.import(&lines, &[], 2);
        assert!(stderr(&refused).contains(message), "{message}: {}", stderr(&refused));
        assert!(stdout(&refused).is_empty());
    }
    let without_beginning = to.import(&[&all[..1], &all[8..]].concat(), &[], 4);
    let said = stderr(&without_beginning);
    assert!(said.contains("line 2: order(\"o-0\") begins with version 1 in the file"), "{said}");
    let twice = with(9, &all[1]);
    let twice = to.import(&twice, &[], 2);
    assert!(stderr(&twice).contains("line 9: version 0"), "{}", stderr(&twice));
    assert!(to.log().await.is_empty(), "nothing of the batch");
    let broken = to.import(&with(4, "nonsense"), &[], 2);
    assert!(stderr(&broken).contains("--from-line 4"), "{}", stderr(&broken));
    assert_eq!(to.log().await.len(), 2, "the lines before the broken one are imported");
    assert_eq!(to.counts(&all, &["--from-line", "4"]), (json!(12), json!(0)));
    to.run(&["import", "--yes", "--file", "no/such/file"], 2);
}

#[tokio::test]
async fn an_import_that_is_killed_has_done_whole_batches_and_can_be_repeated() {
    let (from, to) = (source(1_300).await, Site::new().await);
    let all = from.export(&[]);
    let mut child = to
        .command(&["import", "--yes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Two batches and a part of the third; the input never ends.
    stdin.write_all((all[..1_200].join("\n") + "\n").as_bytes()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while to.log().await.len() < 1_000 {
        assert!(Instant::now() < deadline, "the import does not continue");
        tokio::task::yield_now().await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(contents(&to.log().await), contents(&from.log().await[..1_000]), "a beginning of the file");
    assert_eq!(to.counts(&all, &[]), (json!(300), json!(1_000)));
    assert_eq!(contents(&to.log().await), contents(&from.log().await));
}

#[tokio::test]
async fn two_imports_of_one_file_at_once_make_one_copy() {
    let (from, to) = (source(2_000).await, Site::new().await);
    let file = from.path("all.jsonl");
    from.run(&["export", "--file", file.to_str().unwrap()], 0);
    let start = || {
        let mut command = to.command(&["import", "--yes", "--file", file.to_str().unwrap(), "-o", "json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut imported = 0;
    for child in [start(), start()] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        imported += report["imported"].as_u64().unwrap();
    }
    assert_eq!(imported, 2_000);
    assert_eq!(contents(&to.log().await), contents(&from.log().await));
}

#[tokio::test]
async fn streams_to_be_closed_are_listed_and_confirmed() {
    let (from, to) = (Site::new().await, Site::new().await);
    from.append(ORDER, "Placed", json!(1)).await;
    from.close(ORDER).await;
    let file = from.path("all.jsonl");
    let file = file.to_str().unwrap();
    from.run(&["export", "--file", file], 0);
    let dry = stdout(&to.run(&["import", "--dry-run", "--file", file], 0));
    assert!(dry.contains("1 events of 1 streams") && dry.contains("1 streams closed for good"), "{dry}");
    let text = std::fs::read_to_string(file).unwrap();
    let closes = text.lines().position(|line| line.contains("closed")).unwrap() + 1;
    for first in [2, closes] {
        let asked = stderr(&to.run(&["import", "--from-line", &first.to_string(), "--file", file], 2));
        assert!(asked.contains("1 streams closed for good?"), "line {first}: {asked}");
    }
    assert!(to.log().await.is_empty(), "no import was confirmed");
}
