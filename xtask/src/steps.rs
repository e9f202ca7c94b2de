//! Named steps that all run. A failing step never hides the steps after it: failures are collected and reported at the end.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::run::seconds;

/// The names of the failures in a step: tests, browser cases, examples. Empty when everything passed.
pub(crate) type Failures = Vec<String>;

/// The steps of a command, in the order in which they ran.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

#[derive(Debug)]
struct Step {
    name: String,
    took: Duration,
    failures: Failures,
    /// A line for the summary.
    note: String,
}

impl Steps {
    /// Runs a step that passes or fails as a whole.
    pub(crate) fn run(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        self.run_many(name, || work().map(|()| Failures::new()));
    }

    /// Runs a step that returns the names of its failures. An error of the step itself counts as a failure as well.
    pub(crate) fn run_many(&mut self, name: &str, work: impl FnOnce() -> Result<Failures>) {
        self.run_noted(name, || Ok((work()?, String::new())));
    }

    /// Runs a step that also returns a line for the summary, such as the number of tests.
    pub(crate) fn run_noted(&mut self, name: &str, work: impl FnOnce() -> Result<(Failures, String)>) {
        println!("==> {name}");
        let start = Instant::now();
        let (failures, note) = work().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            (vec![first_line(&format!("{error:#}"))], String::new())
        });
        let step = Step { name: name.to_owned(), took: start.elapsed(), failures, note };
        println!("==> {step}");
        self.0.push(step);
    }

    /// Returns every failure as `step: name`.
    pub(crate) fn failures(&self) -> Vec<String> {
        let of = |step: &Step| {
            let name = step.name.clone();
            step.failures.clone().into_iter().map(move |failure| format!("{name}: {failure}"))
        };
        self.0.iter().flat_map(of).collect()
    }

    /// Prints the time of each step, and every failure by name.
    pub(crate) fn report(&self, command: &str) {
        println!("\n==> {command}");
        for step in &self.0 {
            println!("{step}");
        }
        let failures = self.failures();
        let whole = seconds(self.0.iter().map(|step| step.took).sum());
        if failures.is_empty() {
            println!("==> {command}: everything passed in {whole}");
            return;
        }
        println!("==> {command}: {} failed in {whole}", counted(failures.len()));
        for failure in &failures {
            println!("    {failure}");
        }
    }

    /// Prints the report, and fails when a step did.
    pub(crate) fn finish(&self, command: &str) -> Result<()> {
        self.report(command);
        if self.0.iter().any(|step| !step.failures.is_empty()) {
            bail!("some checks failed; they are listed above");
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.failures.is_empty() { "ok" } else { "FAILED" };
        write!(f, "{:<12} {outcome:<6} {:>9}", self.name, seconds(self.took))?;
        if !self.note.is_empty() {
            write!(f, "   {}", self.note)?;
        }
        Ok(())
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn counted(failures: usize) -> String {
    if failures == 1 { "1 check".to_owned() } else { format!("{failures} checks") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use anyhow::bail;

    use super::Steps;

    #[test]
    fn a_failing_step_does_not_hide_the_steps_after_it() {
        let (mut steps, mut ran) = (Steps::default(), Vec::new());
        steps.run("first", || bail!("no disk\nand more"));
        steps.run_many("second", || Ok(vec!["a".to_owned(), "b".to_owned()]));
        steps.run("third", || {
            ran.push("third");
            Ok(())
        });
        assert_eq!(ran, ["third"]);
        assert_eq!(steps.failures(), ["first: no disk", "second: a", "second: b"]);
        assert!(steps.finish("ci").is_err());
    }

    #[test]
    fn steps_that_pass_make_the_command_pass() {
        let mut steps = Steps::default();
        steps.run_noted("only", || Ok((Vec::new(), "3 passed".to_owned())));
        steps.finish("test").unwrap();
    }
}
