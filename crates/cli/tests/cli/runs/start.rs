//! `start`.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use tidelock::workflow::{RunActivity, RunStatus};

use super::{APPROVED, Site};
use crate::support::{stderr, stdout};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_started_and_its_id_is_printed() {
    let site = Site::new().await;
    let args = [
        "start",
        "order",
        "--id",
        "o-1",
        "--input",
        r#"{"a": 1}"#,
        "--attribute",
        "city=Ulm",
        "--priority",
        "9",
    ];
    assert_eq!(stdout(&site.run(&args, 0)), "o-1\n");
    let view = site.client.show("o-1").await.unwrap();
    assert_eq!((view.workflow.as_str(), view.priority, view.queue.as_str()), ("order", 9, "default"));
    assert_eq!((view.input.as_str(), view.attributes["city"].as_str()), (r#"{"a":1}"#, "Ulm"));
    // The same call returns the same run; another input is a conflict.
    site.run(&args, 0);
    site.fails(&["start", "order", "--id", "o-1", "--input", "2"], 4, "error[TL1002]");

    let started = site.json(&["start", "nap", "--queue", "nights"]);
    let view = site.client.show(started["run"].as_str().unwrap()).await.unwrap();
    assert_eq!((view.queue.as_str(), view.input.as_str()), ("nights", "null"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_comes_from_a_file_or_from_standard_input() {
    let site = Site::new().await;
    std::fs::write(site.path("in.json"), "{ \"from\": \"file\" }\n").unwrap();
    let file = site.path("in.json");
    site.run(&["start", "order", "--id", "o-1", "--input-file", file.to_str().unwrap()], 0);
    assert_eq!(site.client.show("o-1").await.unwrap().input.as_str(), r#"{"from":"file"}"#);

    let mut command = site.command(&["start", "order", "--id", "o-2", "--input", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"[1, 2]").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(site.client.show("o-2").await.unwrap().input.as_str(), "[1,2]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_begin_later() {
    let site = Site::new().await;
    site.run(&["start", "order", "--id", "o-1", "--after", "2h"], 0);
    let view = site.client.show("o-1").await.unwrap();
    let RunActivity::Waits { until: Some(until) } = view.doing else { panic!("{view:?}") };
    assert_eq!(until.since(view.changed_at).as_secs(), 7_200);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_calls_start_nothing() {
    let site = Site::new().await;
    site.fails(&["start", "order", "--input", "{oops"], 2, "the value is no JSON");
    site.fails(&["start", "order", "--input", "1", "--input-file", "a"], 2, "cannot be used with");
    site.fails(&["start", "order", "--input-file", "no/such/file"], 2, "cannot be read");
    site.fails(&["start", "order", "--priority", "10"], 2, "0..=9");
    site.fails(&["start", "order", "--after", "2 moons"], 2, "expected numbers with units");
    site.fails(&["start", "order", "--id", ""], 2, "error[TL01");
    site.fails(&["start", "ordr"], 3, "error[TL1005]: there is no workflow \"ordr\"");
    assert_eq!(site.json(&["list"])["runs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_gets_the_result_of_the_run() {
    let site = Site::new().await;
    let done = site.run(&["start", "countdown", "--input", "2", "--id", "c-1", "--wait"], 0);
    assert_eq!((stdout(&done).trim(), stderr(&done).trim()), (r#""lift off""#, "started c-1"));
    let done = site.json(&["start", "countdown", "--input", "0", "--id", "c-2", "--wait"]);
    let expected =
        json!({"run": "c-2", "workflow": "countdown", "status": "completed", "output": "lift off"});
    assert_eq!(done, expected);

    // A run that fails makes the command exit with 6.
    let gate = site.path("never");
    let input = json!({ "gate": gate }).to_string();
    let mut command = site.command(&["start", "order", "--id", "o-1", "--input", &input, "--wait"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while site.client.show("o-1").await.is_err() {
        tokio::task::yield_now().await;
    }
    site.client.signal("o-1", APPROVED, &true).await.unwrap();
    site.ended("o-1", RunStatus::Failed).await;
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("error[TL1007]: run \"o-1\" failed: step \"charge\""),
        "{}",
        stderr(&output)
    );
    assert_eq!(site.json(&["show", "o-1"])["output"], Value::Null);
}
