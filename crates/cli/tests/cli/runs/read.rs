//! `list`, `show`, `steps` and `history`.

use serde_json::{Value, json};
use tidelock::workflow::{Ctx, Replayed, RunActivity, RunHistory, RunStatus, replay};

use super::{APPROVED, NAP, ORDER, Site, order};
use crate::support::{stderr, stdout};

fn ids(listing: &Value) -> Vec<&str> {
    listing["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_what_runs_do_and_is_narrowed_down() {
    let site = Site::new().await;
    assert!(stderr(&site.run(&["list"], 0)).contains("no runs"));
    site.waiting("o-1", json!({})).await;
    site.failed("o-2").await;
    site.client.start(NAP, &()).id("n-1").await.unwrap();
    site.until("n-1", |view| matches!(view.doing, RunActivity::Waits { until: Some(_) })).await;

    let all = site.json(&["list"]);
    assert_eq!(ids(&all), ["n-1", "o-2", "o-1"], "newest first");
    assert_eq!((&all["counts"], &all["next"]), (&json!({"failed": 1, "running": 2}), &Value::Null));
    assert_eq!(all["runs"][0]["doing"], "waits");
    assert_eq!((&all["runs"][1]["status"], &all["runs"][1]["doing"]), (&json!("failed"), &json!("over")));
    for (args, expected) in [
        (&["--workflow", "nap"][..], &["n-1"][..]),
        (&["--status", "failed"], &["o-2"]),
        (&["--prefix", "o-"], &["o-2", "o-1"]),
        (&["--attribute", "customer=c-7", "--status", "running"], &["o-1"]),
        (&["--attribute", "customer=c-7", "--attribute", "city=Ulm"], &[]),
        (&["--since", "1h"], &["n-1", "o-2", "o-1"]),
        (&["--before", "1h"], &[]),
    ] {
        assert_eq!(ids(&site.json(&[&["list"], args].concat())), expected, "{args:?}");
    }

    let table = site.run(&["list"], 0);
    let lines: Vec<String> = stdout(&table).lines().map(str::to_owned).collect();
    assert!(lines[2].contains("n-1") && lines[2].contains("waits until 20"), "{lines:?}");
    assert!(lines[3].contains("failed") && lines[3].contains(" -  "), "{lines:?}");
    assert!(lines[4].contains("waits   ") && lines[4].contains("running"), "{lines:?}");
    assert!(stderr(&table).contains("1 failed, 2 running"), "{}", stderr(&table));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_names_the_next_one_and_the_last_one_does_not() {
    let site = Site::new().await;
    for run in ["a", "b", "c"] {
        site.waiting(run, json!({})).await;
    }
    let page = site.run(&["list", "--limit", "2"], 0);
    let first = site.json(&["list", "--limit", "2"]);
    let cursor = first["next"].as_str().unwrap();
    assert_eq!(ids(&first), ["c", "b"]);
    assert!(cursor.ends_with(":b"), "{cursor}");
    assert!(stderr(&page).contains(&format!("--cursor {cursor}")), "{}", stderr(&page));
    let last = site.json(&["list", "--limit", "1", "--cursor", cursor]);
    assert_eq!((ids(&last), &last["next"]), (vec!["a"], &Value::Null));
    site.run(&["list", "--cursor", "b"], 2);
    site.run(&["list", "--limit", "0"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_shown_with_what_it_published_and_its_steps() {
    let site = Site::new().await;
    site.waiting("o-1", json!({"amount": 20})).await;
    let shown = stdout(&site.run(&["show", "o-1"], 0));
    for text in [
        "o-1",
        "order",
        "running",
        "waits for signals or children",
        "customer=c-7",
        "approved",
        r#"{"amount":20}"#,
        "published",
        r#"stage       "reserved""#,
        "reserve",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    site.client.signal("o-1", APPROVED, &true).await.unwrap();
    site.ended("o-1", RunStatus::Completed).await;
    let whole = site.json(&["show", "o-1"]);
    assert_eq!(whole["output"], json!({"reserved": 7, "approved": true, "charged": "paid"}));
    assert_eq!((&whole["status"], &whole["values"]), (&json!("completed"), &json!({"stage": "reserved"})));
    assert_eq!(whole["steps"].as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_can_be_kept_and_replayed() {
    let site = Site::new().await;
    site.waiting("o-1", json!({"amount": 20})).await;
    let kept = stdout(&site.run(&["history", "o-1"], 0));
    let history: RunHistory = serde_json::from_str(&kept).unwrap();
    assert_eq!(replay(ORDER, order, &history), Ok(Replayed::AsFarAsRecorded));
    let other = async |_: &Ctx, input: Value| Ok(input);
    assert!(replay(ORDER, other, &history).unwrap_err().to_string().contains("step reserve"));
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_listed_with_what_they_brought() {
    let site = Site::new().await;
    site.failed("o-1").await;
    let steps = &site.json(&["steps", "o-1"])["steps"];
    let brief: Vec<_> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            (step["name"].as_str().unwrap(), step["kind"].as_str().unwrap(), step["state"].as_str().unwrap())
        })
        .collect();
    let expected =
        [("reserve", "step", "done"), ("approved", "signal", "heard"), ("charge", "step", "failed")];
    assert_eq!(brief, expected);
    assert_eq!((&steps[0]["value"], &steps[1]["value"]), (&json!(7), &json!(true)));
    let table = stdout(&site.run(&["steps", "o-1"], 0));
    assert!(table.contains("the bank is closed") && table.contains("attempts"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shown_values_keep_all_digits_and_escape_control_characters() {
    let site = Site::new().await;
    let given = r#"{"n":123456789012345678901,"t":"\u001b[31m\u202e"}"#;
    site.run(&["start", "order", "--id", "o\u{202e}1", "--input", given], 0);
    let calls: [&[&str]; 3] = [&["list"], &["show", "o\u{202e}1"], &["show", "o\u{202e}1", "-o", "json"]];
    for call in calls {
        let shown = stdout(&site.run(call, 0));
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        assert!(call[0] == "list" || shown.contains("123456789012345678901"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_a_worker_is_due() {
    let site = Site::new().await;
    site.client.start(ORDER, &json!({})).id("o-1").queue("elsewhere").await.unwrap();
    assert_eq!(site.json(&["show", "o-1"])["doing"], "due");
    assert!(stdout(&site.run(&["list"], 0)).contains(" due"));
    assert!(stderr(&site.run(&["steps", "o-1"], 0)).contains("no steps yet"));
}
