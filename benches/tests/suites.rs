//! The suites of the benchmark program: documented JSON fields, no lost commit, and nothing left behind.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

#[cfg(unix)]
#[path = "suites/postgres.rs"]
mod postgres;

use std::process::{Command, Output};

use serde_json::Value;

/// Runs the program without the caller's `DATABASE_URL`.
fn run(args: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock-bench"));
    command.env_remove("DATABASE_URL").args(args).envs(settings.iter().copied());
    command.output().expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(args: &[&str]) -> Value {
    let output = run(args, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn positive(report: &Value, pointer: &str) {
    let number = report.pointer(pointer).and_then(Value::as_f64);
    assert!(number.is_some_and(|n| n > 0.0), "{pointer} is {number:?} in {report:#}");
}

#[test]
fn memory_reports_the_documented_keys() {
    let report = json(&["store", "--store", "memory", "--quick", "--seconds", "0.2", "-o", "json"]);
    assert_eq!(report["store"], "memory");
    assert_eq!(report["params"]["producers"], 64);
    assert!(report["command"].as_str().unwrap().starts_with("tidelock-bench store"));
    positive(&report, "/machine/cores");
    for pointer in ["commit_1/per_s", "commit_n/per_s", "map_1_per_s", "map_n_per_s"] {
        positive(&report, &format!("/results/{pointer}"));
    }
    for name in ["commit1_to_map", "commit64_to_map"] {
        positive(&report, &format!("/ratios/{name}"));
    }
    assert_eq!(report["rounds"].as_array().unwrap().len(), 3);
}

#[test]
fn sqlite_reports_baselines_ratios_and_aims() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let report =
        json(&["store", "--store", "sqlite", "--quick", "--seconds", "0.2", "--path", path, "-o", "json"]);
    for pointer in [
        "fdatasync_append_per_s",
        "fdatasync_overwrite_per_s",
        "floor_per_s",
        "floor_batch_size",
        "commit_1/p50_us",
        "commit_n/p99_us",
        "commit_n_mean_group",
        "claim_small/claim_p50_us",
        "claim_large/ack_p99_us",
    ] {
        positive(&report, &format!("/results/{pointer}"));
    }
    for name in ["commit64_to_floor", "commit64_to_fdatasync", "commit1_to_fdatasync", "claim_100k_to_1k"] {
        positive(&report, &format!("/ratios/{name}"));
        assert!(report["aims"][name]["met"].is_boolean(), "{name}");
    }
    assert!(report["machine"]["sqlite_version"].is_string());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn two_processes_on_one_file_lose_nothing_and_meet_no_error() {
    let report = json(&["store", "--processes", "2", "--seconds", "0.5", "-o", "json"]);
    assert_eq!(report["well"], true, "{report:#}");
    assert_eq!(report["lost"], 0);
    assert_eq!(report["errors"], 0);
    assert_eq!(report["acknowledged"], report["log"]["events"]);
    assert_eq!(report["processes"].as_array().unwrap().len(), 2);
}

#[test]
fn lock_reports_every_library_and_serves_every_waiter() {
    let report = json(&["lock", "--quick", "--seconds", "0.1", "-o", "json"]);
    assert_eq!(report["detection"], cfg!(feature = "lock-detection"));
    assert_eq!(report["well"], true, "{report:#}");
    assert_eq!(report["params"]["tasks"], 64);
    assert_eq!(report["params"]["zipf_keys"], 10_000);
    assert_eq!(report["rounds"].as_array().unwrap().len(), 3);
    for library in ["tidelock", "tokio", "lockable_pool", "lockable_map"] {
        positive(&report, &format!("/results/uncontended/{library}/cpu_ns"));
    }
    for library in ["tidelock", "tokio", "lockable"] {
        for pointer in ["one_key/{}/cpu_ns", "one_key/{}/per_s", "zipf/{}/cpu_ns", "waiters/{}/drain_ms"] {
            positive(&report, &format!("/results/{}", pointer.replace("{}", library)));
        }
        assert_eq!(report["results"]["waiters"][library]["hand_offs"], 4_000, "{library}");
    }
    for library in ["tidelock", "tokio"] {
        positive(&report, &format!("/results/hand_off/{library}/p50_ns"));
        positive(&report, &format!("/results/hand_off/{library}/p99_ns"));
    }
    for name in ["contended_to_tokio", "hand_off_to_tokio", "waiters_to_tokio", "waiters_to_lockable"] {
        positive(&report, &format!("/ratios/{name}"));
    }
    for name in ["uncontended_to_tokio", "uncontended_to_lockable", "zipf_to_lockable"] {
        positive(&report, &format!("/ratios/{name}"));
        assert!(report["aims"][name]["met"].is_boolean(), "{name}");
    }
}

#[test]
fn lock_reports_memory_where_the_system_does() {
    let report = json(&["lock", "--quick", "--seconds", "0.05", "-o", "json"]);
    for library in ["tidelock", "lockable"] {
        let weight = &report["results"]["memory"][library];
        if cfg!(target_os = "linux") {
            assert!(weight["held_bytes"].as_f64().is_some_and(|bytes| bytes > 16.0), "{weight}");
            assert!(weight["idle_bytes"].is_number(), "{weight}");
        } else {
            assert_eq!(weight["held_bytes"], "unknown");
        }
    }
}

/// Runs the `state` suite and checks its fields.
fn state(store: &str, more: &[&str]) -> Value {
    let args = ["state", "--store", store, "--quick", "--seconds", "0.2", "-o", "json"];
    let report = json(&[&args, more].concat());
    let is = |pointer: &str, wanted: Value| assert_eq!(report.pointer(pointer), Some(&wanted), "{pointer}");
    is("/store", store.into());
    is("/params/writers", 64.into());
    is("/params/records", 10_000.into());
    is("/params/rounds", 3.into());
    for (load, strategy) in ["hot", "spread"]
        .iter()
        .flat_map(|load| STATE_STRATEGIES.iter().map(move |strategy| (load, strategy)))
    {
        for name in ["per_s", "p99_us", "per_write"] {
            positive(&report, &format!("/results/{load}/{strategy}/{name}"));
        }
    }
    for pointer in ["hot/naive", "hot/jitter", "spread/naive", "spread/jitter"] {
        let mean = report.pointer(&format!("/results/{pointer}/mean_attempts")).and_then(Value::as_f64);
        assert!(mean.is_some_and(|mean| mean >= 1.0), "{pointer}: {mean:?}");
    }
    for name in STATE_RATIOS {
        positive(&report, &format!("/ratios/{name}"));
    }
    report
}

const STATE_STRATEGIES: [&str; 4] = ["naive", "jitter", "closures", "deltas"];
const STATE_RATIOS: [&str; 6] = [
    "hot_to_naive",
    "hot_p99_to_naive_p99",
    "spread_to_naive",
    "hot_to_jitter",
    "hot_deltas_to_naive",
    "spread_deltas_to_naive",
];

#[test]
fn state_in_memory_reports_every_strategy_and_has_no_aims() {
    let report = state("memory", &[]);
    assert_eq!(report["aims"], serde_json::json!({}), "sharing writes gains nothing in memory");
}

#[test]
fn state_on_sqlite_reports_every_strategy_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let report = state("sqlite", &["--path", directory.path().to_str().unwrap()]);
    for name in ["hot_to_naive", "hot_p99_to_naive_p99", "spread_to_naive"] {
        assert!(report["aims"][name]["met"].is_boolean(), "{name}");
    }
    let per_write = |strategy: &str| report["results"]["hot"][strategy]["per_write"].as_f64().unwrap();
    assert!((per_write("naive") - 1.0).abs() < 1e-9, "a retry loop writes once for each increment");
    assert!(per_write("closures") > 1.0, "waiting increments share a write: {report:#}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn events_report_ratios_and_handle_every_event() {
    let report = json(&["events", "--store", "memory", "--quick", "--seconds", "0.2", "-o", "json"]);
    for name in ["execute_to_apply", "execute1_to_apply1", "drain_to_commit", "load_to_load_with_snapshot"] {
        positive(&report, &format!("/ratios/{name}"));
    }
    positive(&report, "/results/drained_per_s");
}

#[test]
fn workflows_report_ratios_replay_and_sleepers() {
    let report = json(&["workflow", "--store", "memory", "--quick", "--seconds", "0.3", "-o", "json"]);
    for name in ["steps_to_apply", "step1_to_apply1"] {
        positive(&report, &format!("/ratios/{name}"));
    }
    positive(&report, "/results/replayed_per_s");
    assert_eq!(report["results"]["sleepers"]["count"], 500);
}

#[test]
fn wrong_usage_ends_with_2() {
    let calls: [&[&str]; 9] = [
        &[],
        &["nonsense"],
        &["store", "--seconds", "never"],
        &["store", "--store", "memory", "--processes", "2"],
        &["store", "--store", "postgres", "--url", "mysql://localhost/db"],
        &["store", "--store", "postgres", "--path", "no/such/directory"],
        &["store", "--store", "postgres", "--url", "postgres://localhost/db", "--path", "."],
        &["state", "--store", "files"],
        &["state", "--store", "memory", "--path", "."],
    ];
    for call in calls {
        let output = run(call, &[]);
        assert_eq!(output.status.code(), Some(2), "{call:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{call:?} printed a report");
        assert!(!stderr(&output).is_empty(), "{call:?} printed no error");
    }
}

#[test]
fn help_lists_the_suites_and_hides_the_child_processes() {
    let output = run(&["--help"], &[]);
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for suite in ["store", "lock", "state", "events", "workflow"] {
        assert!(help.contains(suite), "{suite}: {help}");
    }
    assert!(!help.contains("holder"), "{help}");
}
