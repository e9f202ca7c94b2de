//! The measurements of a round, their ratios and their table.

use serde::Serialize;
use tidelock_console::bench::report::{Aim, Measured, Ratio, rate};
use tidelock_console::bench::statistics::{Commits, median, ratio};

use super::Plan;
use super::strategy::{Load, Strategy};

/// The increments of one strategy.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Increments {
    /// The rate of acknowledged increments, and the latencies of all.
    #[serde(flatten)]
    pub(super) commits: Commits,
    /// Increments abandoned at the end of the slice.
    pub(super) unfinished: f64,
    /// Attempts of a retry loop for each acknowledged increment, including abandoned ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mean_attempts: Option<f64>,
    /// Increments in each write.
    pub(super) per_write: f64,
}

/// Every strategy under one load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Strategies {
    pub(super) naive: Increments,
    pub(super) jitter: Increments,
    pub(super) closures: Increments,
    pub(super) deltas: Increments,
}

/// The measurements of one round, or the medians of all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Round {
    /// All writers on one record.
    hot: Strategies,
    /// The writers on many records.
    spread: Strategies,
}

impl Round {
    /// Returns the slot of a measurement.
    pub(super) fn at_mut(&mut self, load: Load, strategy: Strategy) -> &mut Increments {
        let strategies = match load {
            Load::Hot => &mut self.hot,
            Load::Spread => &mut self.spread,
        };
        match strategy {
            Strategy::Naive => &mut strategies.naive,
            Strategy::Jitter => &mut strategies.jitter,
            Strategy::Closures => &mut strategies.closures,
            Strategy::Deltas => &mut strategies.deltas,
        }
    }
}

impl Strategies {
    fn median(of: &[Self]) -> Self {
        let each =
            |pick: fn(&Self) -> Increments| Increments::median(&of.iter().map(pick).collect::<Vec<_>>());
        Self {
            naive: each(|w| w.naive),
            jitter: each(|w| w.jitter),
            closures: each(|w| w.closures),
            deltas: each(|w| w.deltas),
        }
    }
}

impl Increments {
    fn median(of: &[Self]) -> Self {
        let attempts: Vec<f64> = of.iter().filter_map(|i| i.mean_attempts).collect();
        Self {
            commits: Commits::median(&of.iter().map(|i| i.commits).collect::<Vec<_>>()),
            unfinished: median(of, |i| i.unfinished),
            mean_attempts: (!attempts.is_empty()).then(|| median(&attempts, |mean| *mean)),
            per_write: median(of, |i| i.per_write),
        }
    }
}

impl Measured for Round {
    type Plan = Plan;

    fn median(rounds: &[Self]) -> Self {
        let strategies =
            |pick: fn(&Self) -> Strategies| Strategies::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        Self { hot: strategies(|r| r.hot), spread: strategies(|r| r.spread) }
    }

    fn ratios(rounds: &[Self], plan: &Plan) -> Vec<Ratio> {
        let rates = |name: &str, aim, pick: fn(&Self) -> (Increments, Increments)| {
            Ratio::of(name, plan.aim(aim), rounds, |round| {
                let (ours, theirs) = pick(round);
                ratio(ours.commits.per_s, theirs.commits.per_s)
            })
        };
        let p99 = |round: &Self| ratio(round.hot.closures.commits.p99_us, round.hot.naive.commits.p99_us);
        vec![
            rates("hot_to_naive", Aim::AtLeast(25.0), |r| (r.hot.closures, r.hot.naive)),
            Ratio::of("hot_p99_to_naive_p99", plan.aim(Aim::AtMost(0.1)), rounds, p99),
            rates("spread_to_naive", Aim::AtLeast(1.0), |r| (r.spread.closures, r.spread.naive)),
            rates("hot_to_jitter", Aim::None, |r| (r.hot.closures, r.hot.jitter)),
            rates("hot_deltas_to_naive", Aim::None, |r| (r.hot.deltas, r.hot.naive)),
            rates("spread_deltas_to_naive", Aim::None, |r| (r.spread.deltas, r.spread.naive)),
        ]
    }

    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let line = |records: &str, what: &str, Increments { commits, .. }: Increments| {
            let name = format!("{records}, {what}");
            [name, rate(commits.per_s), rate(commits.p50_us), rate(commits.p99_us)]
        };
        let records = format!("{} records", rate(f64::from(plan.records)));
        let mut lines = Vec::new();
        for (records, strategies) in [("1 record", self.hot), (&records, self.spread)] {
            lines.push(line(records, "retry loop, at once", strategies.naive));
            lines.push(line(records, "retry loop, with jitter", strategies.jitter));
            lines.push(line(records, "mutators of a container", strategies.closures));
            lines.push(line(records, "deltas of a container", strategies.deltas));
        }
        lines
    }

    fn notes(&self) -> Vec<String> {
        let attempts = |strategies: Strategies| {
            let [naive, jitter] =
                [strategies.naive, strategies.jitter].map(|i| i.mean_attempts.unwrap_or_default());
            format!("{naive:.1} at once, {jitter:.1} with jitter")
        };
        let shared = |strategies: Strategies| {
            let Strategies { closures, deltas, .. } = strategies;
            format!("{:.1} by mutators, {:.1} by deltas", closures.per_write, deltas.per_write)
        };
        let Self { hot, spread } = *self;
        vec![
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
            "the counters added up to the acknowledged increments after every slice".to_owned(),
            format!("attempts of the retry loop for each increment, 1 record: {}", attempts(hot)),
            format!("attempts of the retry loop for each increment, many records: {}", attempts(spread)),
            format!("increments to each write, 1 record: {}", shared(hot)),
            format!("increments to each write, many records: {}", shared(spread)),
            format!(
                "abandoned at the end of a slice, and counted in the p99 with the time until then: {} at once, \
                 {} with jitter",
                hot.naive.unfinished, hot.jitter.unfinished
            ),
        ]
    }
}
