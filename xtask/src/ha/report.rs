//! Report of the rounds: a line for each, a table, and a JSON file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::fault::Fault;
use super::load::Numbers;
use super::patroni::Mode;

/// A fault and its result.
pub(crate) struct Round {
    pub(crate) mode: Mode,
    pub(crate) fault: Fault,
    pub(crate) seed: u64,
    pub(crate) took: Duration,
    /// The connection paths that did not recover after the fault was healed.
    pub(crate) stuck: Vec<String>,
    pub(crate) numbers: Numbers,
}

/// The numbers that must be 0 in every mode.
const NEVER: [&str; 8] = [
    "doubled",
    "false_not_applied",
    "wrong_verdicts",
    "counters_off",
    "repeated_fences",
    "stale_fences",
    "repeated_positions",
    "skipped",
];

impl Round {
    fn number(&self, name: &str) -> i64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    /// Returns the names of the violated guarantees.
    pub(crate) fn broken(&self) -> Vec<String> {
        let mut broken: Vec<String> =
            NEVER.iter().filter(|name| self.number(name) != 0).map(|name| (*name).to_owned()).collect();
        if self.mode == Mode::Sync && self.number("lost") != 0 {
            broken.push("lost".to_owned());
        }
        broken.extend(self.stuck.iter().map(|way| format!("stuck:{way}")));
        broken
    }

    /// Returns the line for human readers.
    pub(crate) fn line(&self) -> String {
        let Self { mode, fault, .. } = self;
        let mut line = format!("{:5} {:14}", mode.name(), fault.name());
        for name in ["acked", "unknown", "not_applied", "lost"] {
            let _ = write!(line, " {name} {}", self.number(name));
        }
        if let Some(first) = self.numbers.get("first_write_ms") {
            let _ = write!(line, ", first write {first} ms after promotion");
        }
        let _ = write!(line, ", longest gap {} ms", self.number("gap_hosts_ms"));
        match self.broken().as_slice() {
            [] => line.push_str(": ok"),
            broken => {
                let found = |name: &String| format!("{name} {}", self.number(name));
                let _ = write!(line, ": BROKEN {}", broken.iter().map(found).collect::<Vec<_>>().join(", "));
            }
        }
        line
    }

    fn json(&self) -> String {
        let mut json = format!(
            "{{\"mode\": \"{}\", \"fault\": \"{}\", \"seed\": {}, \"seconds\": {:.1}, \"broken\": [",
            self.mode.name(),
            self.fault.name(),
            self.seed,
            self.took.as_secs_f64()
        );
        json.push_str(&self.broken().iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", "));
        json.push(']');
        for (name, number) in &self.numbers {
            let _ = write!(json, ", \"{name}\": {number}");
        }
        json.push('}');
        json
    }
}

/// Returns a table with the sums over the rounds of each mode.
pub(crate) fn table(rounds: &[Round]) -> String {
    let mut text = String::new();
    for mode in [Mode::Sync, Mode::Async] {
        let of_mode: Vec<&Round> = rounds.iter().filter(|round| round.mode == mode).collect();
        if of_mode.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}", mode.name());
        let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
        of_mode.iter().for_each(|round| *faults.entry(round.fault.name()).or_default() += 1);
        let faults =
            faults.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "  {:34} {} ({faults})", "faults injected", of_mode.len());
        let sum = |name: &str| of_mode.iter().map(|round| round.number(name)).sum::<i64>();
        let rows = ["acked", "unknown", "not_applied", "resolved", "lost", "grants"];
        for name in rows.iter().chain(NEVER.iter()) {
            let _ = writeln!(text, "  {:34} {}", name.replace('_', " "), sum(name));
        }
        let stuck = of_mode.iter().filter(|round| !round.stuck.is_empty()).count();
        let _ = writeln!(text, "  {:34} {stuck}", "rounds with a way in that stayed closed");
        let first =
            median(of_mode.iter().filter_map(|round| round.numbers.get("first_write_ms").copied()).collect());
        let first = first.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let _ = writeln!(text, "  {:34} {first}", "median first write after promotion");
    }
    text
}

/// Returns all rounds as JSON.
pub(crate) fn json(rounds: &[Round], timing: &str) -> String {
    let rounds = rounds.iter().map(Round::json).collect::<Vec<_>>().join(",\n  ");
    format!("{{\"patroni\": \"{timing}\", \"rounds\": [\n  {rounds}\n]}}\n")
}

fn median(mut numbers: Vec<i64>) -> Option<i64> {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Fault, Mode, Round, json, median, table};

    fn round(mode: Mode, numbers: &[(&str, i64)]) -> Round {
        let numbers = numbers.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        let took = Duration::from_secs(1);
        Round { mode, fault: Fault::KillBoth, seed: 7, took, stuck: Vec::new(), numbers }
    }

    #[test]
    fn a_lost_write_breaks_the_promise_of_the_synchronous_mode_alone() {
        assert_eq!(round(Mode::Sync, &[("lost", 1)]).broken(), ["lost"]);
        assert!(round(Mode::Async, &[("lost", 1), ("acked", 3)]).broken().is_empty());
        assert_eq!(round(Mode::Async, &[("doubled", 1)]).broken(), ["doubled"]);
    }

    #[test]
    fn sums_and_the_median_are_shown() {
        let rounds =
            [round(Mode::Sync, &[("acked", 3), ("first_write_ms", 9)]), round(Mode::Sync, &[("acked", 4)])];
        let shown = table(&rounds);
        assert!(
            shown.contains("2 kill-both") && shown.contains("acked                              7"),
            "{shown}"
        );
        assert!(shown.contains("9 ms") && !shown.contains("async"), "{shown}");
        assert_eq!(median(vec![3, 1, 2]), Some(2));
        assert!(json(&rounds, "short").contains("\"fault\": \"kill-both\", \"seed\": 7"));
    }
}
