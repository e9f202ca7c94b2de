//! The measurements of a round, their ratios and their table.

use serde::Serialize;
use tidelock_console::bench::report::{Aim, Measured, Ratio, rate};
use tidelock_console::bench::statistics::{Commits, median, ratio};

use super::Plan;

/// The rate of runs and of their steps.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Runs {
    /// Runs per second.
    pub(super) per_s: f64,
    /// The steps.
    pub(super) steps: Commits,
    /// The median latency from the start call to the first step.
    pub(super) first_p50_us: f64,
    /// Its 99th percentile.
    pub(super) first_p99_us: f64,
}

impl Runs {
    fn median(of: &[Self]) -> Self {
        Self {
            per_s: median(of, |r| r.per_s),
            steps: Commits::median(&of.iter().map(|r| r.steps).collect::<Vec<_>>()),
            first_p50_us: median(of, |r| r.first_p50_us),
            first_p99_us: median(of, |r| r.first_p99_us),
        }
    }
}

/// Sleeping runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Sleepers {
    /// The number of runs.
    pub(super) count: u32,
    /// Bytes of memory of each.
    pub(super) bytes_each: u64,
    /// Milliseconds from the due time until all had ended.
    pub(super) wake_ms: f64,
}

/// The measurements of one round, or the medians of all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Round {
    /// Bare batches, one producer.
    pub(super) apply1: Commits,
    /// One run at a time.
    pub(super) one: Runs,
    /// Bare batches, as many producers as runs.
    pub(super) apply64: Commits,
    /// Many runs at a time.
    pub(super) many: Runs,
    /// Replayed steps per second. Measured once.
    pub(super) replayed_per_s: f64,
    /// Measured once.
    pub(super) sleepers: Sleepers,
}

impl Measured for Round {
    type Plan = Plan;

    fn median(rounds: &[Self]) -> Self {
        let commits =
            |pick: fn(&Self) -> Commits| Commits::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        let runs = |pick: fn(&Self) -> Runs| Runs::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        let last = rounds.last().copied().unwrap_or_default();
        Self {
            apply1: commits(|r| r.apply1),
            one: runs(|r| r.one),
            apply64: commits(|r| r.apply64),
            many: runs(|r| r.many),
            replayed_per_s: last.replayed_per_s,
            sleepers: last.sleepers,
        }
    }

    fn ratios(rounds: &[Self], plan: &Plan) -> Vec<Ratio> {
        let aim = |aim| if plan.flushes { aim } else { Aim::None };
        vec![
            Ratio::of("steps_to_apply", aim(Aim::AtLeast(0.6)), rounds, |r| {
                ratio(r.many.steps.per_s, r.apply64.per_s)
            }),
            Ratio::of("step1_to_apply1", aim(Aim::AtLeast(0.8)), rounds, |r| {
                ratio(r.one.steps.per_s, r.apply1.per_s)
            }),
        ]
    }

    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let line = |what: String, Commits { per_s, p50_us, p99_us }: Commits| {
            [what, rate(per_s), rate(p50_us), rate(p99_us)]
        };
        let (many, steps) = (plan.runs, plan.steps);
        let runs = |what: String, runs: Runs| {
            [what, rate(runs.per_s), rate(runs.first_p50_us), rate(runs.first_p99_us)]
        };
        vec![
            line("bare batches, 1 producer".to_owned(), self.apply1),
            line("steps, 1 run at a time".to_owned(), self.one.steps),
            runs(format!("runs of {steps} steps, 1 at a time (to the first step)"), self.one),
            line(format!("bare batches, {many} producers"), self.apply64),
            line(format!("steps, {many} runs at a time"), self.many.steps),
            runs(format!("runs of {steps} steps, {many} at a time (to the first step)"), self.many),
            ["replayed steps".to_owned(), rate(self.replayed_per_s), "–".to_owned(), "–".to_owned()],
        ]
    }

    fn notes(&self) -> Vec<String> {
        let Sleepers { count, bytes_each, wake_ms } = self.sleepers;
        vec![
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
            "every step was flushed before the next started".to_owned(),
            format!(
                "{count} sleeping runs held {bytes_each} bytes of memory each, and all had ended {wake_ms:.0} ms \
                 after they were due"
            ),
        ]
    }
}
