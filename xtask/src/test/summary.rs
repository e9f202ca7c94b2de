//! Adds up what test programs print.

use std::collections::BTreeMap;
use std::fmt;

/// The sum over all `test result:` lines, and the cases of the conformance kit by backend.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) passed: u64,
    pub(super) failed: u64,
    skipped: u64,
    cases: BTreeMap<String, u64>,
}

impl Summary {
    /// Takes one line of output into account.
    pub(super) fn read(&mut self, line: &str) {
        if let Some((_, counts)) = line.split_once("test result: ") {
            self.passed += number_before(counts, " passed");
            self.failed += number_before(counts, " failed");
            self.skipped += number_before(counts, " ignored");
        }
    }

    /// Takes one line of the conformance kit into account.
    pub(super) fn read_cases(&mut self, line: &str) {
        if let Some((count, backend)) = cases(line) {
            self.cases.insert(backend.to_owned(), count);
        }
    }

    /// How many cases of the kit ran on which backend; `None` when the kit did not run.
    pub(super) fn conformance(&self) -> Option<String> {
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

/// The number that stands right before `unit`; 0 when there is none.
fn number_before(text: &str, unit: &str) -> u64 {
    let Some((before, _)) = text.split_once(unit) else {
        return 0;
    };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Reads `tck: 120 cases on sqlite`, wherever it stands in the line.
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
    fn the_kit_is_counted_by_backend() {
        let mut kit = Summary::default();
        kit.read_cases("tck: soon");
        assert_eq!(kit.conformance(), None);
        kit.read_cases("tck: 120 cases on memory");
        kit.read_cases("test kit ... tck: 118 cases on sqlite");
        assert_eq!(kit.conformance().as_deref(), Some("tck: 120 cases on memory, 118 on sqlite"));
    }
}
