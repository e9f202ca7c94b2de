//! `tidelock bench`: documented fields, and a store that stays untouched.

use serde_json::Value;

use crate::support::{stderr, stdout, tidelock};

fn json(args: &[&str]) -> Value {
    let output = tidelock(args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn positive(report: &Value, pointer: &str) {
    let number = report.pointer(pointer).and_then(Value::as_f64);
    assert!(number.is_some_and(|n| n > 0.0), "{pointer} is {number:?} in {report:#}");
}

#[test]
fn memory_is_compared_with_a_map() {
    let report = json(&["bench", "--store", "mem:", "--seconds", "0.2", "-o", "json"]);
    assert_eq!(report["store"], "memory");
    assert_eq!(report["params"]["producers"], 64);
    assert!(report["command"].as_str().unwrap().starts_with("tidelock bench"));
    positive(&report, "/machine/cores");
    for name in ["commit1_to_map", "commit64_to_map"] {
        positive(&report, &format!("/ratios/{name}"));
    }
    assert_eq!(report["rounds"].as_array().unwrap().len(), 5);
}

#[test]
fn the_disk_of_a_file_is_measured_and_the_file_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("app.db");
    std::fs::write(&file, "not a database").unwrap();
    let report = json(&["bench", "--store", file.to_str().unwrap(), "--seconds", "0.2", "-o", "json"]);
    assert_eq!(report["store"], "sqlite");
    for pointer in [
        "baseline_per_s/fdatasync",
        "baseline_per_s/floor",
        "baseline_per_s/claim_ack",
        "commit_1/p50_us",
        "commit_n/p99_us",
        "commit_n_mean_group",
        "claim_1/claim_p50_us",
        "claim_1/ack_p99_us",
        "claim_n/turns_per_s",
    ] {
        positive(&report, &format!("/results/{pointer}"));
    }
    for name in ["commit64_to_floor", "commit64_to_fdatasync", "commit1_to_fdatasync"] {
        positive(&report, &format!("/ratios/{name}"));
        assert!(report["aims"][name]["met"].is_boolean(), "{name}");
    }
    positive(&report, "/ratios/claim_ack_to_driver");
    assert!(report["machine"]["sqlite_version"].is_string());
    assert_eq!(std::fs::read(&file).unwrap(), b"not a database");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn the_table_names_the_bottleneck() {
    let directory = tempfile::tempdir().unwrap();
    let output = tidelock(&["bench", "--store", directory.path().to_str().unwrap(), "--seconds", "0.1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = stdout(&output);
    for line in ["commit, 64 callers", "baseline: fdatasync", "commit64_to_floor", "is the bottleneck"] {
        assert!(table.contains(line), "{line}: {table}");
    }
}
