//! `signal`, `cancel`, `resume` and `fork`.

use serde_json::json;
use tidelock::workflow::RunStatus;

use super::{NAP, Site};
use crate::support::stdout;

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_received_once() {
    let site = Site::new().await;
    site.waiting("o-1", json!({})).await;
    let signal = ["signal", "o-1", "approved", "--value", "false", "--id", "s-1"];
    site.fails(&["signal", "o-1", "approved", "--value", "{oops"], 2, "the value is no JSON");
    site.fails(&["signal", "o-1", "aproved"], 2, "error[TL1004]");
    assert_eq!(stdout(&site.run(&signal, 0)), "o-1 will receive approved\n");
    let view = site.ended("o-1", RunStatus::Completed).await;
    assert!(view.output.unwrap().as_str().contains(r#""approved":false"#));
    site.fails(&signal, 4, "error[TL1003]: run \"o-1\" is completed and can not be signalled");

    site.waiting("o-2", json!({})).await;
    let told = site.json(&["signal", "o-2", "approved", "--value", "true"]);
    assert_eq!(told, json!({"run": "o-2", "signal": "approved", "id": null}));
    site.ended("o-2", RunStatus::Completed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_cancelled_after_confirmation() {
    let site = Site::new().await;
    site.client.start(NAP, &()).id("n-1").await.unwrap();
    site.fails(&["cancel", "n-1"], 2, "There is no terminal to confirm it: add --yes");
    assert_eq!(site.json(&["cancel", "n-1", "--dry-run"])["dry_run"], true);
    assert_eq!(site.json(&["show", "n-1"])["status"], "running");
    assert_eq!(site.client.show("n-1").await.unwrap().status, RunStatus::Running);
    site.run(&["cancel", "n-1", "--reason", "wake up", "--yes"], 0);
    let view = site.ended("n-1", RunStatus::Cancelled).await;
    assert!(view.failure.unwrap().contains("wake up"));
    site.fails(&["cancel", "n-1", "--yes"], 4, "error[TL1003]");
    site.fails(&["cancel", "n-1"], 4, "error[TL1003]");

    site.client.start(NAP, &()).id("n-2").await.unwrap();
    let told = site.json(&["cancel", "n-2", "--yes"]);
    assert_eq!(told, json!({"run": "n-2", "reason": "cancelled at the command line", "dry_run": false}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_is_resumed() {
    let site = Site::new().await;
    let gate = site.failed("o-1").await;
    std::fs::write(gate, "").unwrap();
    let told = site.json(&["resume", "o-1", "--reason", "the bank is open"]);
    assert_eq!(told, json!({"run": "o-1", "reason": "the bank is open", "dry_run": false}));
    site.ended("o-1", RunStatus::Completed).await;
    site.fails(&["resume", "o-1"], 4, "error[TL1003]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_continues_from_a_step_and_leaves_the_original_unchanged() {
    let site = Site::new().await;
    let gate = site.failed("o-1").await;
    std::fs::write(gate, "").unwrap();
    site.fails(&["fork", "o-1"], 2, "--from");
    site.fails(&["fork", "o-1", "--from", "chrage"], 4, "error[TL1013]");
    assert_eq!(stdout(&site.run(&["fork", "o-1", "--from", "charge", "--id", "o-2"], 0)), "o-2\n");
    site.ended("o-2", RunStatus::Completed).await;
    site.ended("o-1", RunStatus::Failed).await;
    site.fails(&["fork", "o-1", "--from", "charge", "--id", "o-2"], 4, "error[TL1002]");

    let forked = site.json(&["fork", "o-1", "--from", "charge"]);
    assert_eq!((&forked["of"], &forked["from"]), (&json!("o-1"), &json!("charge")));
    site.ended(forked["run"].as_str().unwrap(), RunStatus::Completed).await;
}
