//! Reports of benchmarks: one JSON document, or tables of rates and ratios with their aims.

use std::collections::BTreeMap;

use anyhow::Result;
use comfy_table::Cell;
use serde::Serialize;

use super::machine::{Machine, command_line};
use super::statistics::median;
use crate::output::{self, Format, Tone};

/// Rounds that differ by more than this factor point to a busy machine.
const NOISY: f64 = 3.0;

/// The measurements of one round.
pub trait Measured: Serialize + Sized {
    /// The parameters of the run.
    type Plan: Clone + Serialize;

    /// Returns the median of each number.
    fn median(rounds: &[Self]) -> Self;
    /// Returns all ratios.
    fn ratios(rounds: &[Self], plan: &Self::Plan) -> Vec<Ratio>;
    /// Returns the rows of the table: phase, rate, median latency, 99th percentile.
    fn lines(&self, plan: &Self::Plan) -> Vec<[String; 4]>;
    /// Returns remarks on how to read the numbers.
    fn notes(&self) -> Vec<String>;
}

/// The aim of a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Aim {
    /// A lower bound.
    AtLeast(f64),
    /// An upper bound.
    AtMost(f64),
    /// No aim.
    None,
}

impl Aim {
    fn met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
            Self::None => None,
        }
    }
}

impl std::fmt::Display for Aim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::None => f.write_str("–"),
        }
    }
}

/// A ratio of two measurements.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// The field's name in JSON.
    pub name: String,
    /// The median of the ratios of all rounds.
    pub value: f64,
    /// The lowest and the highest ratio of a round.
    pub spread: [f64; 2],
    /// The aim.
    pub aim: Aim,
}

impl Ratio {
    /// Computes a ratio for each round.
    pub fn of<M>(name: impl Into<String>, aim: Aim, rounds: &[M], pick: impl Fn(&M) -> f64) -> Self {
        let low = rounds.iter().map(&pick).fold(f64::INFINITY, f64::min);
        let high = rounds.iter().map(&pick).fold(0.0, f64::max);
        Self { name: name.into(), value: median(rounds, pick), spread: [low, high], aim }
    }

    /// The row of the table.
    fn cells(&self) -> [Cell; 5] {
        let mark = match self.aim.met(self.value) {
            Some(true) => output::cell("✓ met", Tone::Good),
            Some(false) => output::cell("✗ missed", Tone::Bad),
            None => Cell::new(""),
        };
        let [low, high] = self.spread;
        [
            Cell::new(&self.name),
            Cell::new(format!("{:.2}", self.value)),
            Cell::new(format!("{low:.2} to {high:.2}")),
            Cell::new(self.aim),
            mark,
        ]
    }

    /// Whether the rounds differ so much that other programs must have been busy.
    fn is_noisy(&self) -> bool {
        let [low, high] = self.spread;
        high > low * NOISY
    }
}

#[derive(Debug, Serialize)]
struct AimReport {
    aim: String,
    met: bool,
}

/// All ratios of a run.
#[derive(Debug, Serialize)]
pub struct Ratios {
    ratios: BTreeMap<String, f64>,
    /// The lowest and the highest round of each ratio.
    spread: BTreeMap<String, [f64; 2]>,
    aims: BTreeMap<String, AimReport>,
    #[serde(skip)]
    compared: Vec<Ratio>,
}

impl Ratios {
    /// Collects the ratios of a run.
    #[must_use]
    pub fn of(compared: Vec<Ratio>) -> Self {
        let aims = compared.iter().filter_map(|ratio| {
            let met = ratio.aim.met(ratio.value)?;
            Some((ratio.name.clone(), AimReport { aim: ratio.aim.to_string(), met }))
        });
        Self {
            ratios: compared.iter().map(|ratio| (ratio.name.clone(), ratio.value)).collect(),
            spread: compared.iter().map(|ratio| (ratio.name.clone(), ratio.spread)).collect(),
            aims: aims.collect(),
            compared,
        }
    }

    /// Returns warnings about debug builds and noisy rounds.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if cfg!(debug_assertions) {
            notes.push("this is a debug build; build with --release to get meaningful numbers".to_owned());
        }
        if self.compared.iter().any(Ratio::is_noisy) {
            notes.push("the rounds differ by more than a factor of 3; repeat on a quiet machine".to_owned());
        }
        notes
    }

    /// Prints a table of ratios and aims.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn print(&self) -> Result<()> {
        let mut ratios = output::table(&["ratio", "value", "rounds", "aim", ""], &[1, 2, 3]);
        for ratio in &self.compared {
            ratios.add_row(ratio.cells());
        }
        output::say(ratios)
    }
}

/// The report of a run.
#[derive(Debug, Serialize)]
pub struct Report<M: Measured> {
    command: String,
    store: &'static str,
    params: M::Plan,
    machine: Machine,
    results: M,
    rounds: Vec<M>,
    #[serde(flatten)]
    ratios: Ratios,
    notes: Vec<String>,
}

impl<M: Measured> Report<M> {
    /// Summarises the rounds.
    #[must_use]
    pub fn of(store: &'static str, plan: &M::Plan, machine: Machine, rounds: Vec<M>) -> Self {
        let results = M::median(&rounds);
        let ratios = Ratios::of(M::ratios(&rounds, plan));
        let mut notes = results.notes();
        notes.extend(ratios.notes());
        let (command, params) = (command_line(), plan.clone());
        Self { command, store, params, machine, results, rounds, ratios, notes }
    }

    /// Prints the report.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn print(&self, format: Format) -> Result<()> {
        match format {
            Format::Json => output::json(self),
            Format::Table => self.print_tables(),
        }
    }

    fn print_tables(&self) -> Result<()> {
        output::say(format_args!("{} · {}", output::escaped(&self.command), self.machine))?;
        let mut phases = output::table(&["phase", "per second", "p50 µs", "p99 µs"], &[1, 2, 3]);
        for line in self.results.lines(&self.params) {
            phases.add_row(line);
        }
        output::say(phases)?;
        self.ratios.print()?;
        for note in &self.notes {
            output::say(format_args!("· {note}"))?;
        }
        Ok(())
    }
}

/// Returns a rate or a latency as a whole number with thousands separators.
#[must_use]
pub fn rate(value: f64) -> String {
    output::number(value.max(0.0).round() as u64)
}
