//! Crash recovery of the README's workflow, with a real process: it is started, killed in the middle, and restarted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how a test fails")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAME: &str = "07_workflow_crash";

/// Builds the example, because Cargo does not build examples for every selection of tests, and returns its path.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "-p", env!("CARGO_PKG_NAME"), "--example", NAME]);
    build.arg("--target-dir").arg(profile.parent().unwrap());
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "the example does not build");
    profile.join("examples").join(format!("{NAME}{}", std::env::consts::EXE_SUFFIX))
}

/// Runs the program and returns the lines that it prints. Kills it when a line starts with `kill_at`.
fn run(program: &Path, file: &Path, kill_at: Option<&str>) -> Vec<String> {
    let mut child = Command::new(program).arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    for line in output.lines() {
        lines.push(line.unwrap());
        if kill_at.is_some_and(|begin| lines.last().unwrap().starts_with(begin)) {
            child.kill().unwrap();
            child.wait().unwrap();
            return lines;
        }
    }
    assert!(kill_at.is_none(), "it ended before it was killed: {lines:?}");
    assert!(child.wait().unwrap().success(), "{lines:?}");
    lines
}

fn steps(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.split_once(':')).map(|(begin, _)| begin).collect()
}

#[test]
fn killed_in_the_third_step_it_resumes_with_the_third_step() {
    let program = example();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("order.db");
    // The third step starts only after the result of the second is committed.
    let killed = run(&program, &file, Some("step 3"));
    assert_eq!(steps(&killed), ["step 1", "step 2", "step 3"]);

    let resumed = run(&program, &file, None);
    assert_eq!(resumed[0], "resumed run order-17: steps 1–2 replayed, continuing at step 3");
    assert_eq!(steps(&resumed), ["resumed run order-17", "step 3", "run order-17"]);

    let again = run(&program, &file, None);
    assert_eq!(again, ["run order-17: 3 apples are on their way"], "a run that is over is not run again");
}
