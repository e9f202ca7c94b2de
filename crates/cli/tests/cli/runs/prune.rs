//! `prune`.

use std::time::{Duration, Instant};

use serde_json::json;
use tidelock::workflow::RunStatus;

use super::{APPROVED, PARENT, Site};
use crate::support::stdout;

#[tokio::test(flavor = "multi_thread")]
async fn only_runs_that_ended_long_ago_are_removed() {
    let site = Site::new().await;
    site.failed("o-1").await;
    site.waiting("o-2", json!({})).await;
    for run in ["c-1", "c-2"] {
        site.run(&["start", "countdown", "--input", "0", "--id", run], 0);
        site.ended(run, RunStatus::Completed).await;
    }
    let dry = site.json(&["prune", "--older", "0s", "--dry-run"]);
    assert_eq!((&dry["selected"], &dry["removed"], &dry["dry_run"]), (&json!(3), &json!(0), &json!(true)));
    assert!(dry["before"].is_string(), "{dry}");
    assert!(
        stdout(&site.run(&["prune", "--older", "0s", "--limit", "2", "--dry-run"], 0)).starts_with("2 runs ")
    );
    assert_eq!(site.json(&["list"])["runs"].as_array().unwrap().len(), 4);
    site.fails(&["prune", "--older", "0s"], 2, "There is no terminal to confirm it: add --yes");
    site.fails(&["prune", "--yes"], 2, "--older");

    assert_eq!(stdout(&site.run(&["prune", "--older", "30d"], 0)), "0 runs removed\n");
    assert_eq!(site.json(&["prune", "--older", "0s", "--limit", "2", "--yes"])["removed"], 2);
    assert_eq!(stdout(&site.run(&["prune", "--older", "0s", "--yes"], 0)), "1 run removed\n");
    let left = site.json(&["list"]);
    assert_eq!((left["runs"].as_array().unwrap().len(), &left["runs"][0]["run"]), (1, &json!("o-2")));
    site.fails(&["show", "o-1"], 3, "error[TL1001]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_parent_lives_is_neither_counted_nor_removed() {
    let site = Site::new().await;
    site.client.start(PARENT, &()).id("p-1").await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !site
        .client
        .steps("p-1")
        .await
        .unwrap()
        .iter()
        .any(|step| step.kind == "child" && step.state == "done")
    {
        assert!(Instant::now() < deadline, "the child does not finish its step");
        tokio::task::yield_now().await;
    }
    assert_eq!(site.json(&["prune", "--older", "0s", "--dry-run"])["selected"], 0);
    assert_eq!(site.json(&["prune", "--older", "0s", "--yes"])["removed"], 0);
    site.client.signal("p-1", APPROVED, &true).await.unwrap();
    site.ended("p-1", RunStatus::Completed).await;
    assert_eq!(site.json(&["prune", "--older", "0s", "--dry-run"])["selected"], 2);
    assert_eq!(site.json(&["prune", "--older", "0s", "--yes"])["removed"], 2);
}
