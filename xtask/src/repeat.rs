//! Repeated test runs: `--repeat N` finds flaky tests, and `--load` makes scheduling delays more likely.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail};

use crate::run;

/// The number of runs of a command, and the load during them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RepeatOptions {
    /// The number of runs.
    times: u32,
    /// Whether threads keep every core busy during the runs.
    load: bool,
}

impl Default for RepeatOptions {
    fn default() -> Self {
        Self { times: 1, load: false }
    }
}

impl RepeatOptions {
    /// Reads `--repeat N` or `--load`. Returns whether the argument was one of them.
    pub(crate) fn parse<'a>(
        &mut self,
        arg: &str,
        args: &mut impl Iterator<Item = &'a String>,
    ) -> Result<bool> {
        match arg {
            "--load" => self.load = true,
            "--repeat" => {
                let value = args.next().context("--repeat needs a number")?;
                let times =
                    value.parse().with_context(|| format!("--repeat needs a number, found {value:?}"))?;
                if times == 0 {
                    bail!("--repeat needs a number above 0");
                }
                self.times = times;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs `work` for the requested number of times, under the requested load. `work` returns the names of its failures. Several runs end
    /// with a table of the checks that failed in some of them.
    pub(crate) fn run(self, mut work: impl FnMut() -> Result<Vec<String>>) -> Result<()> {
        let _load = self.load.then(Load::start);
        let mut tally = Tally::default();
        for run in 1..=self.times {
            if self.times > 1 {
                println!("==> run {run} of {}", self.times);
            }
            tally.add(&work()?);
        }
        if self.times > 1 {
            println!("\n{}", tally.table());
        }
        if tally.counts.is_empty() {
            return Ok(());
        }
        bail!("some checks failed; they are listed above")
    }
}

/// The number of failures of each check.
#[derive(Debug, Default)]
struct Tally {
    runs: u32,
    counts: BTreeMap<String, u32>,
}

impl Tally {
    /// Adds the failures of one run.
    fn add(&mut self, failures: &[String]) {
        self.runs += 1;
        for failure in failures {
            *self.counts.entry(failure.clone()).or_default() += 1;
        }
    }

    /// Returns the failures, the most frequent first. A check that failed in some runs only is flaky.
    fn table(&self) -> String {
        let runs = self.runs;
        if self.counts.is_empty() {
            return format!("{runs} runs: every check passed in each of them");
        }
        let mut rows: Vec<(&String, u32)> = self.counts.iter().map(|(name, count)| (name, *count)).collect();
        rows.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), (*name).clone()));
        let mut table = format!("{runs} runs:\n{:>8}  {:<6}  check", "failed", "");
        for (name, count) in rows {
            let kind = if count < runs { "flaky" } else { "always" };
            table.push_str(&format!("\n{:>8}  {kind:<6}  {name}", format!("{count}/{runs}")));
        }
        table
    }
}

/// Threads of this process that keep every core busy. They end when this value is dropped, or when the process ends in any way.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start() -> Self {
        let cores = run::cores();
        println!("load: {cores} threads keep every core busy");
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |stop: Arc<AtomicBool>| {
            move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        };
        let threads = (0..cores).map(|_| std::thread::spawn(spin(Arc::clone(&stop)))).collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that only spins does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{RepeatOptions, Tally};

    fn parse(line: &str) -> Result<RepeatOptions, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (mut repeat, mut args) = (RepeatOptions::default(), words.iter());
        while let Some(arg) = args.next() {
            if !repeat.parse(arg, &mut args).map_err(|e| e.to_string())? {
                return Err(arg.clone());
            }
        }
        Ok(repeat)
    }

    #[test]
    fn options_are_read() {
        assert_eq!(parse(""), Ok(RepeatOptions { times: 1, load: false }));
        assert_eq!(parse("--load --repeat 10"), Ok(RepeatOptions { times: 10, load: true }));
        assert!(
            parse("--repeat").is_err() && parse("--repeat often").is_err() && parse("--repeat 0").is_err()
        );
    }

    #[test]
    fn the_table_names_flaky_checks() {
        let mut tally = Tally::default();
        assert_eq!(
            Tally { runs: 2, ..Tally::default() }.table(),
            "2 runs: every check passed in each of them"
        );
        tally.add(&["tests: a".to_owned(), "browser: b".to_owned()]);
        tally.add(&["browser: b".to_owned()]);
        let table = tally.table();
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            ["2 runs:", "failed          check", "2/2  always  browser: b", "1/2  flaky   tests: a"]
        );
    }

    #[test]
    fn every_run_happens_and_one_failure_fails_the_command() {
        let mut runs = 0;
        let outcome = RepeatOptions { times: 3, load: true }.run(|| {
            runs += 1;
            Ok(if runs == 2 { vec!["a".to_owned()] } else { Vec::new() })
        });
        assert!(outcome.is_err());
        assert_eq!(runs, 3);
        RepeatOptions::default().run(|| Ok(Vec::new())).unwrap();
    }
}
