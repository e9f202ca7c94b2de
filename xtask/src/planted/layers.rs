//! The layers of tests that look for a planted fault.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::run;

/// A layer of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// Unit tests of the core.
    Unit,
    /// The conformance kit on the memory store.
    Kit,
    /// The simulation of services under random faults.
    Sim,
}

/// The verdict of a layer on a fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This test failed first.
    By {
        test: String,
        after: Duration,
    },
    /// The tests did not end.
    Hang,
    Nothing,
    /// The sources do not compile with the fault.
    Invalid(String),
}

/// The longest run of a layer.
const LIMIT: Duration = Duration::from_secs(300);
/// Cases wait more than they compute.
const THREADS: &str = "--test-threads=8";

impl Layer {
    pub(super) const ALL: [Self; 3] = [Self::Unit, Self::Kit, Self::Sim];

    fn target(self) -> &'static [&'static str] {
        match self {
            Self::Unit => &["--package=tidelock-core", "--lib"],
            Self::Kit => &["--package=tidelock-tck", "--test=memory"],
            Self::Sim => &["--package=tidelock-sim", "--test=ladder"],
        }
    }

    /// Builds the tests of the tree and runs them up to the first failure.
    pub(super) fn run(self, tree: &Path, target: &Path) -> Result<Found> {
        let program = match self.build(tree, target)? {
            Ok(program) => program,
            Err(error) => return Ok(Found::Invalid(error)),
        };
        let begun = Instant::now();
        let mut tests = Command::new(program);
        tests.arg(THREADS).current_dir(tree).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = KillOnDrop(tests.spawn().context("cannot start the tests")?);
        let output = child.0.stdout.take().context("the tests have no output")?;
        let (failed, failure) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            drop(lines.filter_map(|line| failed_test(&line)).next().map(|test| failed.send(test)));
        });
        Ok(match failure.recv_timeout(LIMIT) {
            Ok(test) => Found::By { test, after: begun.elapsed() },
            Err(mpsc::RecvTimeoutError::Timeout) => Found::Hang,
            Err(mpsc::RecvTimeoutError::Disconnected) if child.0.wait()?.success() => Found::Nothing,
            // A crash without the name of a test.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Found::By { test: "the test program".to_owned(), after: begun.elapsed() }
            }
        })
    }

    fn build(self, tree: &Path, target: &Path) -> Result<Result<PathBuf, String>> {
        let mut build = run::cargo(&["test", "--no-run", "--message-format=json-render-diagnostics"]);
        build.args(self.target()).current_dir(tree).env("CARGO_TARGET_DIR", target);
        let output = build.output().context("cannot start cargo")?;
        if !output.status.success() {
            return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let program = said.lines().filter_map(run::executable).next_back();
        Ok(Ok(program.context("cargo has built no tests")?))
    }
}

/// Returns the name of the test that a line reports as failed.
fn failed_test(line: &str) -> Option<String> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned)
}

/// A program that is killed when dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unit => "unit",
            Self::Kit => "kit",
            Self::Sim => "sim",
        })
    }
}

impl FromStr for Layer {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|layer| layer.to_string() == text) {
            Some(layer) => Ok(layer),
            None => bail!("there is no layer {text:?}; the layers are unit, kit and sim"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::failed_test;

    #[test]
    fn a_failed_test_is_named() {
        assert_eq!(failed_test("test t1_one_winner ... FAILED").as_deref(), Some("t1_one_winner"));
        assert_eq!(failed_test("test t1_one_winner ... ok"), None);
        assert_eq!(failed_test("failures:"), None);
    }
}
