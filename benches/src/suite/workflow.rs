//! The `workflow` suite: runs of ten empty steps beside bare batches, sleeping runs, and replay.
//!
//! Every step is flushed before the next starts, so a run of ten steps is at least twelve commits: its start, its claim, and
//! one for each step. The last step commits together with the run's end.

mod baseline;
mod round;
mod runs;
mod sleepers;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock_console::bench::report::Report;
use tidelock_console::filesystem;
use tidelock_console::progress::Progress;

use self::round::Round;
use super::duration::Pace;
use super::fixture::{self, Fixture, Measurement};
use crate::args::{Backend, EngineArgs};

/// The number of rounds, so that a noisy moment affects all phases or is outvoted by the median.
const ROUNDS: u32 = 5;
/// The number of concurrent runs.
const RUNS: u32 = 64;
/// Steps of a run.
pub(super) const STEPS: u32 = 10;
/// The pause between phases, in which background work ends.
const PAUSE: Duration = Duration::from_millis(50);

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    #[serde(flatten)]
    pace: Pace,
    /// The number of concurrent runs.
    runs: u32,
    /// Steps of each run.
    steps: u32,
    /// The number of sleeping runs.
    sleepers: u32,
    /// Steps of the replayed run.
    replayed: u32,
    /// Whether a write waits for a disk.
    flushes: bool,
}

impl Plan {
    fn of(options: &EngineArgs) -> Self {
        let pace = if options.quick { Pace::quick(900) } else { Pace::full(ROUNDS, 5_000) };
        Self {
            pace: pace.within(options.seconds),
            runs: RUNS,
            steps: STEPS,
            sleepers: if options.quick { 500 } else { 10_000 },
            replayed: if options.quick { 500 } else { 5_000 },
            flushes: options.store != Backend::Memory,
        }
    }
}

/// Measures, prints, and removes everything, also after an interruption.
pub(crate) async fn run(options: &EngineArgs) -> Result<ExitCode> {
    let plan = Plan::of(options);
    let Measurement { store, machine, rounds } =
        fixture::measure(options, async |fixture| rounds(&plan, fixture).await).await?;
    Report::of(store, &plan, machine, rounds).print(options.output)?;
    Ok(ExitCode::SUCCESS)
}

async fn rounds(plan: &Plan, fixture: &Fixture<'_>) -> Result<Vec<Round>> {
    let progress = Progress::new(u64::from(plan.pace.rounds) * 4 + 2);
    let mut rounds = Vec::new();
    for _ in 0..plan.pace.rounds {
        let mut round = Round::default();
        begin(plan, &progress, "bare batches, 1 producer").await;
        round.apply1 = baseline::run(&fixture.store, 1, plan.pace.slice()).await?;
        begin(plan, &progress, "one run at a time").await;
        round.one = runs::run(&fixture.store, 1, plan.pace.slice()).await?;
        begin(plan, &progress, "bare batches, 64 producers").await;
        round.apply64 = baseline::run(&fixture.store, plan.runs, plan.pace.slice()).await?;
        begin(plan, &progress, "64 runs at a time").await;
        round.many = runs::run(&fixture.store, plan.runs, plan.pace.slice()).await?;
        rounds.push(round);
    }
    begin(plan, &progress, "replay").await;
    let replay = runs::replay(&fixture.store, plan.replayed).await?;
    begin(plan, &progress, "sleepers").await;
    let sleepers = sleepers::run(&fixture.store, plan.sleepers).await?;
    for round in &mut rounds {
        (round.replayed_per_s, round.sleepers) = (replay, sleepers);
    }
    Ok(rounds)
}

async fn begin(plan: &Plan, progress: &Progress, what: &str) {
    progress.say(what.to_owned());
    if plan.flushes {
        tokio::time::sleep(PAUSE).await;
        tokio::task::block_in_place(filesystem::flush_page_cache);
    }
    progress.done(1);
}
