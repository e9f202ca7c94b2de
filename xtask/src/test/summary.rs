//! Summary of test output: the counts of all programs, and the names of failed tests.

use std::collections::BTreeMap;
use std::fmt;

/// The sum over all `test result:` lines, the cases of the conformance kit by backend, and the tests that failed.
#[derive(Debug, Default)]
pub(super) struct Summary {
    passed: u64,
    failed: u64,
    skipped: u64,
    cases: BTreeMap<String, u64>,
    /// The failed tests of the running program. Cargo names the program when it has ended.
    pending: Vec<String>,
    failures: Vec<String>,
}

impl Summary {
    /// Reads one line of output.
    pub(super) fn read(&mut self, line: &str) {
        if let Some((_, counts)) = line.split_once("test result: ") {
            self.passed += number_before(counts, " passed");
            self.failed += number_before(counts, " failed");
            self.skipped += number_before(counts, " ignored");
        } else if let Some(test) = failed_test(line) {
            self.pending.push(test.to_owned());
        } else if let Some(target) = failed_target(line) {
            self.end_target(target);
        } else if line.starts_with("error: could not compile ") {
            self.failures.push(line.trim_start_matches("error: ").to_owned());
        } else if let Some((count, backend)) = cases(line) {
            self.cases.insert(backend.to_owned(), count);
        }
    }

    /// Names the failed tests of a program, or the program itself when it ended without naming one.
    fn end_target(&mut self, target: &str) {
        if self.pending.is_empty() {
            self.failures.push(format!("{target}: ended without a result"));
        }
        let named = self.pending.drain(..).map(|test| format!("{target} {test}"));
        self.failures.extend(named);
    }

    /// Returns the failures by name, and one line with the counts.
    pub(super) fn outcome(self, passed: bool) -> (Vec<String>, String) {
        let counts = match self.conformance() {
            Some(cases) => format!("{self}; {cases}"),
            None => self.to_string(),
        };
        (self.failures(passed), counts)
    }

    /// Returns the failures by name: the arguments of `cargo test` for the program, and the test. `passed` is cargo's overall result.
    fn failures(mut self, passed: bool) -> Vec<String> {
        self.failures.append(&mut self.pending);
        if !passed && self.failures.is_empty() {
            self.failures.push("cargo failed; its output says why".to_owned());
        }
        self.failures
    }

    /// Returns the number of conformance cases that ran on each backend; `None` when the kit did not run.
    fn conformance(&self) -> Option<String> {
        let mut backends = self.cases.iter();
        let (backend, count) = backends.next()?;
        let mut line = format!("tck: {count} cases on {backend}");
        for (backend, count) in backends {
            line.push_str(&format!(", {count} on {backend}"));
        }
        Some(line)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// Returns the number immediately before `unit`, or 0 if there is none.
fn number_before(text: &str, unit: &str) -> u64 {
    let Some((before, _)) = text.split_once(unit) else {
        return 0;
    };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the test that `test NAME ... FAILED` names.
fn failed_test(line: &str) -> Option<&str> {
    let (_, test) = line.strip_suffix(" ... FAILED")?.split_once("test ")?;
    Some(test)
}

/// Returns the arguments in ``error: test failed, to rerun pass `-p NAME --lib` ``.
fn failed_target(line: &str) -> Option<&str> {
    let (_, target) = line.strip_prefix("error: ")?.split_once("test failed, to rerun pass `")?;
    target.strip_suffix('`')
}

/// Parses `tck: 120 cases on sqlite` at any place in the line.
fn cases(line: &str) -> Option<(u64, &str)> {
    let (_, said) = line.split_once("tck: ")?;
    let (count, backend) = said.split_once(" cases on ")?;
    let backend = backend.split_whitespace().next()?;
    Some((count.parse().ok()?, backend))
}

#[cfg(test)]
mod tests {
    use super::Summary;

    fn summary(lines: &[&str]) -> Summary {
        let mut summary = Summary::default();
        lines.iter().for_each(|line| summary.read(line));
        summary
    }

    #[test]
    fn results_of_all_programs_add_up() {
        let both = summary(&[
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s",
            "test key::order ... ok",
            "test result: FAILED. 7 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s",
        ]);
        assert_eq!(both.to_string(), "19 passed, 1 failed");
    }

    #[test]
    fn skipped_tests_are_named_only_when_there_are_any() {
        let one = summary(&[
            "test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0s",
        ]);
        assert_eq!(one.to_string(), "1 passed, 0 failed, 2 skipped");
        assert_eq!(summary(&[]).to_string(), "0 passed, 0 failed");
    }

    #[test]
    fn failed_tests_are_named_with_their_program() {
        let lines = [
            "test t1_one ... ok",
            "test t2_two ... FAILED",
            "test t3_three - should panic ... FAILED",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s",
            "error: test failed, to rerun pass `-p tidelock-sqlite --test kit`",
            "test crates/core/src/lib.rs - Key (line 7) ... FAILED",
            "error: doctest failed, to rerun pass `-p tidelock-core --doc`",
            "error: test failed, to rerun pass `-p tidelock-cli --lib`",
        ];
        let expected = [
            "-p tidelock-sqlite --test kit t2_two",
            "-p tidelock-sqlite --test kit t3_three - should panic",
            "-p tidelock-core --doc crates/core/src/lib.rs - Key (line 7)",
            "-p tidelock-cli --lib: ended without a result",
        ];
        assert_eq!(summary(&lines).failures(false), expected);
    }

    #[test]
    fn a_failure_without_a_name_is_reported() {
        assert_eq!(summary(&["test a ... ok"]).failures(true), [""; 0]);
        assert_eq!(summary(&[]).failures(false), ["cargo failed; its output says why"]);
        let broken = "error: could not compile `tidelock-core` (lib) due to 1 previous error";
        let said = ["could not compile `tidelock-core` (lib) due to 1 previous error"];
        assert_eq!(summary(&[broken]).failures(false), said);
    }

    #[test]
    fn the_kit_is_counted_by_backend() {
        let mut kit = Summary::default();
        kit.read("tck: soon");
        assert_eq!(kit.conformance(), None);
        kit.read("tck: 120 cases on memory");
        kit.read("test kit ... tck: 118 cases on sqlite");
        assert_eq!(kit.conformance().as_deref(), Some("tck: 120 cases on memory, 118 on sqlite"));
    }
}
