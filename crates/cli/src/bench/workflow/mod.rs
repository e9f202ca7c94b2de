//! `tidelock bench workflow`: runs of ten steps that do nothing, beside bare batches; sleepers; and replay.
//!
//! Every step is flushed before the next begins, so a run of ten steps is at least twelve commits: its start, its claim, and one
//! for each step, the last of them together with its end.

mod bare;
mod round;
mod runs;
mod sleepers;

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use self::round::Round;
use super::report::Report;
use super::stand::{self, Stand, Taken};
use crate::args::{Backend, BenchEngine};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::target;

/// The phases take turns this often, so that a noisy moment hits all of them or is outvoted.
const ROUNDS: u32 = 5;
/// The same for a shortened run.
const QUICK_ROUNDS: u32 = 3;
/// Runs at the same time in the crowded phase.
const RUNS: u32 = 64;
/// Steps of a run.
pub(super) const STEPS: u32 = 10;
/// Between two phases, for work in the background to end.
const PAUSE: Duration = Duration::from_millis(50);

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// How long each phase takes over all rounds.
    seconds: f64,
    /// How often the phases take turns.
    rounds: u32,
    /// Runs at the same time.
    runs: u32,
    /// Steps of each.
    steps: u32,
    /// Runs that sleep at the same time.
    sleepers: u32,
    /// Steps of the run that is replayed.
    replayed: u32,
    /// Whether this is a shortened run.
    quick: bool,
    /// Whether a write waits for a disk.
    flushes: bool,
}

impl Plan {
    fn of(options: &BenchEngine) -> Self {
        let usual = Duration::from_millis(if options.quick { 900 } else { 5_000 });
        Self {
            seconds: options.seconds.unwrap_or(usual).as_secs_f64(),
            rounds: if options.quick { QUICK_ROUNDS } else { ROUNDS },
            runs: RUNS,
            steps: STEPS,
            sleepers: if options.quick { 500 } else { 10_000 },
            replayed: if options.quick { 500 } else { 5_000 },
            quick: options.quick,
            flushes: options.store != Backend::Memory,
        }
    }

    /// How long one phase takes in one round.
    fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds.max(1)))
    }
}

/// Measures, prints, and leaves nothing behind, not even when it is interrupted.
pub(super) async fn run(options: &BenchEngine) -> Result<Exit> {
    let plan = Plan::of(options);
    let Taken { store, machine, rounds } =
        stand::measure(options, async |stand| rounds(&plan, stand).await).await?;
    Report::of(store, &plan, machine, rounds).print(options.output)?;
    Ok(Exit::Well)
}

async fn rounds(plan: &Plan, stand: &Stand<'_>) -> Result<Vec<Round>> {
    let progress = Progress::new(u64::from(plan.rounds) * 4 + 2);
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        let mut round = Round::default();
        begin(plan, &progress, "bare batches, 1 producer").await;
        round.apply1 = bare::run(&stand.store, 1, plan.slice()).await?;
        begin(plan, &progress, "one run at a time").await;
        round.one = runs::run(&stand.store, 1, plan.slice()).await?;
        begin(plan, &progress, "bare batches, 64 producers").await;
        round.apply64 = bare::run(&stand.store, plan.runs, plan.slice()).await?;
        begin(plan, &progress, "64 runs at a time").await;
        round.many = runs::run(&stand.store, plan.runs, plan.slice()).await?;
        rounds.push(round);
    }
    begin(plan, &progress, "replay").await;
    let replay = runs::replay(&stand.store, plan.replayed).await?;
    begin(plan, &progress, "sleepers").await;
    let sleepers = sleepers::run(&stand.store, plan.sleepers).await?;
    for round in &mut rounds {
        (round.replayed_per_s, round.sleepers) = (replay, sleepers);
    }
    Ok(rounds)
}

async fn begin(plan: &Plan, progress: &Progress, what: &str) {
    progress.say(what.to_owned());
    if plan.flushes {
        tokio::time::sleep(PAUSE).await;
        tokio::task::block_in_place(target::settle);
    }
    progress.done(1);
}
