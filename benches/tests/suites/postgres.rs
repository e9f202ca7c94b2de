//! The suites on PostgreSQL. `DATABASE_URL` names the server; without it, a private one is started.

use std::process::Output;
use std::sync::OnceLock;

use serde_json::Value;
use tidelock_pgserver::Server;
use tokio_postgres::Client;

use super::{run, stderr};

fn url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if let Some(url) = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()) {
        return url;
    }
    SERVER.get_or_init(|| Server::start(&tidelock_pgserver::PgServerOptions::default()).unwrap()).url()
}

async fn client() -> Client {
    tidelock::postgres::connect(&url()).await.unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks that the output shows no password of the URL.
fn assert_no_password(output: &Output) {
    let url = url();
    let user = url.split_once("://").and_then(|(_, rest)| rest.split_once('@')).map(|(user, _)| user);
    if let Some((_, password)) = user.and_then(|user| user.split_once(':')) {
        let shown = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(output);
        assert!(!shown.contains(password), "{shown}");
    }
}

#[test]
fn the_store_suite_reports_baselines_and_ratios_and_leaves_nothing_behind() {
    let args = ["store", "--store", "postgres", "--quick", "--seconds", "0.2", "-o", "json"];
    let joint = if url().contains('?') { '&' } else { '?' };
    let output = run(&args, &[("DATABASE_URL", &format!("{}{joint}schema=not_mine", url()))]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_no_password(&output);
    let report = json(&output);
    let positive = |pointer: &str| {
        let number = report.pointer(pointer).and_then(Value::as_f64);
        assert!(number.is_some_and(|n| n > 0.0), "{pointer} is {number:?} in {report:#}");
    };
    for name in
        ["plain16", "plain16_table_lock", "single_statement16", "single_statement1", "commit_1", "commit_n"]
    {
        positive(&format!("/results/{name}/per_s"));
    }
    for name in
        ["claim_small", "claim_small_4", "claim_small_16", "claim_large", "claim_large_4", "claim_large_16"]
    {
        positive(&format!("/results/{name}/claim_p50_us"));
        positive(&format!("/results/{name}/turns_per_s"));
    }
    positive("/results/wake/after_start_p99_us");
    assert!(report["results"]["wake"]["count"].as_f64().unwrap() >= 200.0, "{report:#}");
    for name in [
        "commit64_to_plain",
        "commit64_to_table_lock",
        "commit64_to_single_statement",
        "commit1_to_single_statement1",
        "claim_100k_to_1k",
        "claim_beside_snapshot",
        "sweep_idle_200k_ms",
    ] {
        positive(&format!("/ratios/{name}"));
    }
    let server = &report["machine"]["server"];
    assert_eq!(server["private"], false);
    assert!(server["version"].is_string() && server["fsync"].is_string(), "{server:#}");
    let listed = stderr(&output);
    let listed = listed.split("dropped afterwards: ").nth(1).unwrap().trim();
    assert_eq!(listed.split(", ").count(), 5, "{listed}");
    assert_eq!(remaining(listed), 0, "{listed}");
}

#[test]
fn the_state_suite_loses_no_update_and_leaves_nothing_behind() {
    let args = ["state", "--store", "postgres", "--quick", "--seconds", "0.2", "-o", "json"];
    let output = run(&args, &[("DATABASE_URL", &url())]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_no_password(&output);
    let report = json(&output);
    assert_eq!(report["store"], "postgres");
    for name in [
        "hot_to_naive",
        "hot_p99_to_naive_p99",
        "spread_to_naive",
        "hot_to_jitter",
        "hot_deltas_to_naive",
        "spread_deltas_to_naive",
    ] {
        assert!(report["ratios"][name].as_f64().is_some_and(|ratio| ratio > 0.0), "{name}: {report:#}");
    }
    let listed = stderr(&output);
    let listed = listed.split("dropped afterwards: ").nth(1).unwrap().trim();
    assert_eq!(listed.split(", ").count(), 1, "{listed}");
    assert_eq!(remaining(listed), 0, "{listed}");
}

/// Returns how many of the listed schemas exist, with the one in the URL.
fn remaining(listed: &str) -> i64 {
    let names: Vec<String> = listed.split(", ").chain(["not_mine"]).map(str::to_owned).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = ANY ($1)";
        client().await.query_one(sql, &[&names]).await.unwrap().get(0)
    })
}

#[test]
fn two_processes_on_a_private_server_lose_nothing() {
    // The tests may install PostgreSQL, and the program may not.
    drop(url());
    if tidelock_pgserver::find().is_none() {
        return;
    }
    let args = ["store", "--store", "postgres", "--processes", "2", "--seconds", "0.5", "-o", "json"];
    let output = run(&args, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("starting a private server"), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["store"], "postgres");
    assert_eq!(report["well"], true, "{report:#}");
    assert_eq!(report["acknowledged"], report["log"]["events"]);
    let server = &report["machine"]["server"];
    assert_eq!((&server["private"], &server["fsync"]), (&Value::Bool(true), &Value::from("on")));
}
