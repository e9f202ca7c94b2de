//! `list`, `show` and `tail`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ORDER, Site};
use crate::support::{stderr, stdout};

fn keys(listing: &Value) -> Vec<&str> {
    listing["streams"].as_array().unwrap().iter().map(|stream| stream["key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_list_shows_the_ends_of_streams_and_the_next_page() {
    let site = Site::new().await;
    site.append(ORDER, "Placed", json!(1)).await;
    let at = site.append(ORDER, "Paid", json!(2)).await.at;
    site.append(r#"order("o-2")"#, "Placed", json!(1)).await;
    site.close(r#"order("o-2")"#).await;
    site.append("orders", "Counted", json!(1)).await;

    let all = site.json(&["list"]);
    assert_eq!(keys(&all), [ORDER, r#"order("o-2")"#, "orders"]);
    let first = &all["streams"][0];
    assert_eq!((&first["head"], &first["last_type"]), (&json!(1), &json!("Paid")));
    assert_eq!((&first["last_at"], &first["closed_at"]), (&json!(at), &Value::Null));
    assert!(all["streams"][1]["closed_at"].is_string(), "{all}");
    assert_eq!(keys(&site.json(&["list", "--prefix", "order"])).len(), 2);
    assert_eq!(keys(&site.json(&["list", "--prefix", r#"order("o-2"#])), [r#"order("o-2")"#]);

    let page = site.run(&["list", "--limit", "1"], 0);
    assert!(stdout(&page).contains(ORDER) && !stdout(&page).contains("o-2"), "{}", stdout(&page));
    assert!(stderr(&page).contains(r#"--cursor 'order("o-1")'"#), "{}", stderr(&page));
    assert_eq!(keys(&site.json(&["list", "--cursor", ORDER, "--limit", "1"])), [r#"order("o-2")"#]);
    assert!(stderr(&site.run(&["list", "--prefix", "nothing"], 0)).contains("no streams"));
}

#[tokio::test]
async fn a_stream_is_shown_from_either_end_and_by_type() {
    let site = Site::new().await;
    for n in 0..6 {
        site.append(ORDER, if n % 2 == 0 { "Even" } else { "Odd" }, json!({ "n": n })).await;
    }
    let versions = |args: &[&str]| -> Vec<u64> {
        let lines = site.lines(&[&["show", ORDER], args].concat());
        lines.iter().map(|line| line["version"].as_u64().unwrap()).collect()
    };
    assert_eq!(versions(&[]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(versions(&["--from", "4"]), [4, 5]);
    assert_eq!(versions(&["--backward", "--limit", "2"]), [5, 4]);
    assert_eq!(versions(&["--backward", "--from", "1"]), [1, 0]);
    assert_eq!(versions(&["--type", "Odd"]), [1, 3, 5]);
    assert_eq!(versions(&["--type", "Odd", "--type", "Even", "--from", "3"]), [3, 4, 5]);
    assert_eq!(versions(&["--from", "99"]), [0; 0]);

    let line = &site.lines(&["show", ORDER, "--limit", "1"])[0];
    assert_eq!((&line["stream"], &line["type"]), (&json!(ORDER), &json!("Even")));
    assert_eq!((&line["position"], &line["payload"]), (&json!(1), &json!({"n": 0})));
    let cut = site.run(&["show", ORDER, "--limit", "2", "--type", "Odd"], 0);
    assert!(stdout(&cut).contains(r#"{"n":3}"#), "{}", stdout(&cut));
    assert!(stderr(&cut).contains("--cursor 5"), "{}", stderr(&cut));
    assert!(!stderr(&site.run(&["show", ORDER, "--limit", "6"], 0)).contains("--cursor"), "these are all");
}

#[tokio::test]
async fn control_characters_are_escaped() {
    let site = Site::new().await;
    site.append(ORDER, "T\u{202e}", json!("\u{1b}[31m\u{202e}\nx")).await;
    for args in [&["show", ORDER][..], &["show", ORDER, "-o", "json"], &["list"]] {
        let shown = stdout(&site.run(args, 0));
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    }
}

#[tokio::test]
async fn a_missing_item_exits_with_3_and_an_invalid_key_with_2() {
    let site = Site::new().await;
    let missing = site.run(&["show", ORDER], 3);
    assert!(stdout(&missing).is_empty());
    assert!(stderr(&missing).contains("tidelock streams list --prefix order"), "{}", stderr(&missing));
    for call in [&["show", "order(o-1)"][..], &["list", "--prefix", "order(o-1)"], &["tail", "order(o-1)"]] {
        assert!(stderr(&site.run(call, 2)).contains("error[TL0101]"));
    }
    site.run(&["tail", "--from", "yesterday"], 2);
    site.run(&["tail", ORDER, "--prefix", "order"], 2);
    site.run(&["list", "--limit", "0"], 2);
}

/// A child process that follows the log.
struct Tail {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Tail {
    fn start(site: &Site, args: &[&str]) -> Self {
        let mut command = site.command(&[&["tail", "-o", "json"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Interrupts it like Ctrl-C, and returns its standard error.
    fn interrupt(self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        ends(self.child)
    }
}

/// Waits until the child exits with success, and returns its standard error.
fn ends(mut child: Child) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(status.code(), Some(0), "{said}");
            return said;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    panic!("the tail does not exit");
}

#[tokio::test]
async fn a_tail_prints_past_then_new_events_and_where_to_resume() {
    let site = Site::new().await;
    site.append(ORDER, "Placed", json!(1)).await;
    site.append("other", "Seen", json!(2)).await;
    let mut tail = Tail::start(&site, &[]);
    assert_eq!((tail.next()["payload"].clone(), tail.next()["payload"].clone()), (json!(1), json!(2)));
    let position = site.append(ORDER, "Paid", json!(3)).await.last_position().unwrap();
    let line = tail.next();
    assert_eq!((&line["type"], &line["position"]), (&json!("Paid"), &json!(position)));
    let said = tail.interrupt();
    assert!(said.contains(&format!("--from {position}")), "{said}");

    site.append(ORDER, "Sent", json!(4)).await;
    let mut rest = Tail::start(&site, &["--from", &position.to_string()]);
    assert_eq!(rest.next()["type"], "Sent");
    rest.interrupt();
}

#[tokio::test]
async fn a_tail_from_now_passes_over_what_happened() {
    let site = Site::new().await;
    site.append(ORDER, "Old", json!(0)).await;
    let mut tail = Tail::start(&site, &["--from", "now"]);
    // It prints nothing before the first event, so events are appended until it prints one.
    let (said, heard) = std::sync::mpsc::channel();
    let first = std::thread::spawn(move || {
        let line = tail.next();
        said.send(()).unwrap();
        (tail, line)
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while heard.try_recv().is_err() && Instant::now() < deadline {
        site.append(ORDER, "New", json!(1)).await;
    }
    let (tail, line) = first.join().unwrap();
    assert_eq!(line["type"], "New");
    tail.interrupt();
}

#[tokio::test]
async fn a_tail_is_about_a_stream_a_range_or_types() {
    let site = Site::new().await;
    site.append("other", "Placed", json!(1)).await;
    site.append(ORDER, "Placed", json!(2)).await;
    site.append(r#"order("o-2")"#, "Paid", json!(3)).await;
    site.append(ORDER, "tidelock.note", json!(4)).await;
    site.append("other", "Last", json!(5)).await;
    site.append(ORDER, "Last", json!(6)).await;
    for (args, expected) in [
        (&[ORDER][..], &[2, 6][..]),
        (&[ORDER, "--internal"], &[2, 4, 6]),
        (&["--prefix", "order"], &[2, 3, 6]),
        (&["--type", "Paid", "--type", "Last"], &[3, 5, 6]),
        (&["--from", "2"], &[3, 5, 6]),
        (&["--type", "tidelock.note", "--type", "Last"], &[4, 5, 6]),
    ] {
        let mut tail = Tail::start(&site, args);
        for payload in expected {
            assert_eq!(tail.next()["payload"], json!(payload), "{args:?}");
        }
        tail.interrupt();
    }
}

#[tokio::test]
async fn a_tail_ends_when_its_reader_closes_the_pipe() {
    let site = Site::new().await;
    site.append(ORDER, "Placed", json!(1)).await;
    let mut tail = Tail::start(&site, &[]);
    assert_eq!(tail.next()["payload"], 1);
    drop(tail.lines);
    ends(tail.child);
}
