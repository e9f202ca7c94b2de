//! What a run prints: one JSON document, or tables with the aims beside the ratios.

use std::collections::BTreeMap;

use anyhow::Result;
use comfy_table::Cell;
use serde::Serialize;

use super::machine::{Machine, command_line};
use super::measure::median;
use crate::args::Format;
use crate::output::{self, Tone};

/// Rounds that differ by more than this factor were not measured on a quiet machine.
const NOISY: f64 = 3.0;

/// What one round measured.
pub(crate) trait Measured: Serialize + Sized {
    /// The parameters of a run.
    type Plan: Clone + Serialize;

    /// The median of each number over all rounds.
    fn median(rounds: &[Self]) -> Self;
    /// The ratios of one kind: name, aim and value.
    fn ratios(rounds: &[Self], plan: &Self::Plan) -> Vec<Ratio>;
    /// The lines of the table: phase, rate, median latency, 99th percentile.
    fn lines(&self, plan: &Self::Plan) -> Vec<[String; 4]>;
    /// What a reader of the numbers must know.
    fn notes(&self) -> Vec<String>;
}

/// What a ratio should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    /// At least that much.
    AtLeast(f64),
    /// At most that much.
    AtMost(f64),
    /// There is no aim.
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

/// One comparison.
#[derive(Clone, Debug)]
pub(crate) struct Ratio {
    /// Its name, stable for scripts.
    pub(crate) name: String,
    /// The median of the rounds' ratios.
    pub(crate) value: f64,
    /// The lowest and the highest of the rounds' ratios.
    pub(crate) spread: [f64; 2],
    /// What it should be.
    pub(crate) aim: Aim,
}

impl Ratio {
    /// Compares round by round.
    pub(crate) fn of<M>(name: impl Into<String>, aim: Aim, rounds: &[M], pick: impl Fn(&M) -> f64) -> Self {
        let low = rounds.iter().map(&pick).fold(f64::INFINITY, f64::min);
        let high = rounds.iter().map(&pick).fold(0.0, f64::max);
        Self { name: name.into(), value: median(rounds, pick), spread: [low, high], aim }
    }

    /// The line of the table.
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

    /// Whether the rounds differ so much that the machine was busy with something else.
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

/// All comparisons of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Ratios {
    ratios: BTreeMap<String, f64>,
    /// For each ratio, the lowest and the highest of the rounds.
    spread: BTreeMap<String, [f64; 2]>,
    aims: BTreeMap<String, AimReport>,
    #[serde(skip)]
    compared: Vec<Ratio>,
}

impl Ratios {
    /// Puts them together.
    pub(crate) fn of(compared: Vec<Ratio>) -> Self {
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

    /// What a reader of any ratios must know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if cfg!(debug_assertions) {
            notes.push("this program was built without optimisation: use --release".to_owned());
        }
        if self.compared.iter().any(Ratio::is_noisy) {
            notes.push(
                "the rounds differ a lot: other programs were busy; repeat on a quiet machine".to_owned(),
            );
        }
        notes
    }

    /// The table of them, with the aims.
    pub(crate) fn print(&self) -> Result<()> {
        let mut ratios = output::table(&["ratio", "value", "rounds", "aim", ""], &[1, 2, 3]);
        for ratio in &self.compared {
            ratios.add_row(ratio.cells());
        }
        output::say(ratios)
    }
}

/// The whole result of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report<M: Measured> {
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
    /// Puts the rounds together.
    pub(crate) fn of(store: &'static str, plan: &M::Plan, machine: Machine, rounds: Vec<M>) -> Self {
        let results = M::median(&rounds);
        let ratios = Ratios::of(M::ratios(&rounds, plan));
        let mut notes = results.notes();
        notes.extend(ratios.notes());
        let (command, params) = (command_line(), plan.clone());
        Self { command, store, params, machine, results, rounds, ratios, notes }
    }

    /// Prints it.
    pub(crate) fn print(&self, format: Format) -> Result<()> {
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

/// A rate as the table shows it.
pub(crate) fn rate(value: f64) -> String {
    output::number(value.max(0.0).round() as u64)
}
