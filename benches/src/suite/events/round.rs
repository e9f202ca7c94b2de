//! The measurements of a round, their ratios and their table.

use serde::Serialize;
use tidelock_console::bench::report::{Aim, Measured, Ratio, rate};
use tidelock_console::bench::statistics::{Commits, median, ratio};

use super::Plan;

/// The measurements of one round, or the medians of all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Round {
    /// Bare batches, one producer.
    pub(super) apply1: Commits,
    /// Commands, one producer.
    pub(super) execute1: Commits,
    /// Bare batches, many producers.
    pub(super) apply64: Commits,
    /// Commands, many producers.
    pub(super) execute64: Commits,
    /// Events per second handled by reactions.
    pub(super) drained_per_s: f64,
    /// From the commit of an event to its handler.
    pub(super) tail: Commits,
    /// Milliseconds of a load of the long stream.
    pub(super) load_ms: f64,
    /// The same with a snapshot.
    pub(super) load_snapshot_ms: f64,
}

impl Measured for Round {
    type Plan = Plan;

    fn median(rounds: &[Self]) -> Self {
        let commits =
            |pick: fn(&Self) -> Commits| Commits::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        Self {
            apply1: commits(|r| r.apply1),
            execute1: commits(|r| r.execute1),
            apply64: commits(|r| r.apply64),
            execute64: commits(|r| r.execute64),
            drained_per_s: median(rounds, |r| r.drained_per_s),
            tail: commits(|r| r.tail),
            load_ms: median(rounds, |r| r.load_ms),
            load_snapshot_ms: median(rounds, |r| r.load_snapshot_ms),
        }
    }

    fn ratios(rounds: &[Self], plan: &Plan) -> Vec<Ratio> {
        let aim = |aim| if plan.flushes { aim } else { Aim::None };
        vec![
            Ratio::of("execute_to_apply", aim(Aim::AtLeast(0.8)), rounds, |r| {
                ratio(r.execute64.per_s, r.apply64.per_s)
            }),
            Ratio::of("execute1_to_apply1", Aim::None, rounds, |r| ratio(r.execute1.per_s, r.apply1.per_s)),
            Ratio::of("drain_to_commit", aim(Aim::AtLeast(1.0)), rounds, |r| {
                ratio(r.drained_per_s, r.execute64.per_s)
            }),
            Ratio::of("load_to_load_with_snapshot", Aim::None, rounds, |r| {
                ratio(r.load_ms, r.load_snapshot_ms)
            }),
        ]
    }

    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let line = |what: String, Commits { per_s, p50_us, p99_us }: Commits| {
            [what, rate(per_s), rate(p50_us), rate(p99_us)]
        };
        let many = plan.producers;
        vec![
            line("bare batches, 1 producer".to_owned(), self.apply1),
            line("commands, 1 producer".to_owned(), self.execute1),
            line(format!("bare batches, {many} producers"), self.apply64),
            line(format!("commands, {many} producers"), self.execute64),
            [
                "events handled by reactions".to_owned(),
                rate(self.drained_per_s),
                "–".to_owned(),
                "–".to_owned(),
            ],
            line("one event at a time, from commit to handler".to_owned(), self.tail),
        ]
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
            "reactions handled every committed event exactly once, in every round".to_owned(),
            format!(
                "an uncached load of the long stream: {:.2} ms, with a snapshot {:.2} ms",
                self.load_ms, self.load_snapshot_ms
            ),
        ]
    }
}
