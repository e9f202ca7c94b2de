//! What one round measured, and how the rounds are compared and shown.

use serde::Serialize;

use super::super::measure::{Commits, median, ratio};
use super::super::report::{Aim, Measured, Ratio, rate};
use super::Plan;
use super::way::{Load, Way};

/// How fast counters were incremented in one way.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Increments {
    /// Those that were acknowledged per second; how long they took, and those that did not come to an end.
    #[serde(flatten)]
    pub(super) commits: Commits,
    /// How many were given up when the time was over.
    pub(super) unfinished: f64,
    /// By hand: all attempts, also those of increments that were given up, for each one that was acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mean_attempts: Option<f64>,
    /// How many of them shared a write.
    pub(super) per_write: f64,
}

/// Every way under one load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Ways {
    pub(super) naive: Increments,
    pub(super) jitter: Increments,
    pub(super) closures: Increments,
    pub(super) deltas: Increments,
}

/// What one round measured, or the median of all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Round {
    /// All writers on one record.
    hot: Ways,
    /// The writers on many records.
    spread: Ways,
}

impl Round {
    /// One of its measurements.
    pub(super) fn at_mut(&mut self, load: Load, way: Way) -> &mut Increments {
        let ways = match load {
            Load::Hot => &mut self.hot,
            Load::Spread => &mut self.spread,
        };
        match way {
            Way::Naive => &mut ways.naive,
            Way::Jitter => &mut ways.jitter,
            Way::Closures => &mut ways.closures,
            Way::Deltas => &mut ways.deltas,
        }
    }
}

impl Ways {
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
        let ways = |pick: fn(&Self) -> Ways| Ways::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        Self { hot: ways(|r| r.hot), spread: ways(|r| r.spread) }
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
        for (records, ways) in [("1 record", self.hot), (&records, self.spread)] {
            lines.push(line(records, "by hand, again at once", ways.naive));
            lines.push(line(records, "by hand, again after a random pause", ways.jitter));
            lines.push(line(records, "mutators of a container", ways.closures));
            lines.push(line(records, "deltas of a container", ways.deltas));
        }
        lines
    }

    fn notes(&self) -> Vec<String> {
        let attempts = |ways: Ways| {
            let [naive, jitter] = [ways.naive, ways.jitter].map(|i| i.mean_attempts.unwrap_or_default());
            format!("{naive:.1} at once, {jitter:.1} after pauses")
        };
        let shared = |ways: Ways| {
            let Ways { closures, deltas, .. } = ways;
            format!("{:.1} by mutators, {:.1} by deltas", closures.per_write, deltas.per_write)
        };
        let Self { hot, spread } = *self;
        vec![
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
            "the sum of all counters was what was acknowledged, after every slice of every way".to_owned(),
            format!("attempts by hand for each increment, 1 record: {}", attempts(hot)),
            format!("attempts by hand for each increment, many records: {}", attempts(spread)),
            format!("increments to each write, 1 record: {}", shared(hot)),
            format!("increments to each write, many records: {}", shared(spread)),
            format!(
                "given up when a slice ended, and counted in the p99 with the time until then: {} at once, \
                 {} after pauses",
                hot.naive.unfinished, hot.jitter.unfinished
            ),
        ]
    }
}
