//! The `lock` suite: Tidelock's keyed locks beside tokio's mutex and the crate `lockable`.
//!
//! It measures CPU time, which other programs disturb less than wall-clock time. The loads are in the library part of this
//! crate, for the micro benchmarks.

mod held;
mod report;
mod round;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Error, Result};
use serde::Serialize;
use tidelock_benches::lock::Failed;
use tidelock_console::bench::machine::Machine;
use tidelock_console::bench::until_interrupted;
use tidelock_console::progress::Progress;

use self::report::Report;
use super::duration::Pace;
use crate::args::LockArgs;

pub(crate) use self::held::hold;

/// The number of rounds, so that a noisy moment affects all measurements or is outvoted by the median.
const ROUNDS: u32 = 15;
/// The number of concurrent tasks.
const TASKS: u32 = 64;
/// The number of keys of the spread load.
const KEYS: u32 = 10_000;
/// The number of waiters in the long queue.
const WAITERS: u32 = 4_000;
/// The number of keys held at once.
const HELD_KEYS: u32 = 200_000;

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
struct Plan {
    #[serde(flatten)]
    pace: Pace,
    /// The number of concurrent tasks.
    tasks: u32,
    /// The number of keys of the spread load.
    zipf_keys: u32,
    /// The number of waiters in the long queue.
    waiters: u32,
    /// The number of keys held at once.
    held_keys: u32,
    /// The number of processes that measure memory, for each library.
    weighings: u32,
}

impl Plan {
    fn of(options: &LockArgs) -> Self {
        let pace = if options.quick { Pace::quick(200) } else { Pace::full(ROUNDS, 2_000) };
        Self {
            pace: pace.within(options.seconds),
            tasks: TASKS,
            zipf_keys: KEYS,
            waiters: WAITERS,
            held_keys: HELD_KEYS,
            weighings: if options.quick { 1 } else { 3 },
        }
    }
}

/// Measures and prints. Fails when a waiter was not served.
pub(crate) async fn run(options: &LockArgs) -> Result<ExitCode> {
    until_interrupted(Box::pin(measure(options))).await
}

async fn measure(options: &LockArgs) -> Result<ExitCode> {
    let plan = Plan::of(options);
    let steps = u64::from(plan.pace.rounds) * round::STEPS + u64::from(plan.weighings) * held::STEPS;
    let progress = Progress::new(steps);
    let weights = held::weigh(&plan, &progress).await?;
    let mut rounds = Vec::new();
    for _ in 0..plan.pace.rounds {
        rounds.push(round::measure(&plan, &progress).await.map_err(failed)?);
    }
    drop(progress);
    let report = Report::of(&plan, Machine::here(Path::new(".")), weights, rounds);
    report.print(options.output)?;
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn failed(error: Failed) -> Error {
    Error::from_boxed(error)
}
