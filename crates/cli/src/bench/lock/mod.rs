//! `tidelock bench lock`: our keyed locks beside a bare mutex of tokio and the crate `lockable`, in the same run.
//!
//! What is counted is the time of the processors, which other programs disturb less than the time that goes by. The
//! loads and the other libraries are in the crate of the benchmarks, which no library depends on.

mod held;
mod report;
mod round;

use std::path::Path;
use std::time::Duration;

use anyhow::{Error, Result};
use serde::Serialize;
use tidelock_benches::lock::Failed;

use self::report::Report;
use super::machine::Machine;
use crate::args::BenchLock;
use crate::exit::Exit;
use crate::progress::Progress;

pub(crate) use self::held::hold;

/// Measurements take turns this often, so that a noisy moment hits all of them or is outvoted.
const ROUNDS: u32 = 15;
/// The same for a shortened run.
const QUICK_ROUNDS: u32 = 3;
/// Tasks that lock and unlock side by side.
const TASKS: u32 = 64;
/// Keys of the crowd that does not want the same one.
const KEYS: u32 = 10_000;
/// Tasks in the long queue.
const WAITERS: u32 = 4_000;
/// Keys that are held at once.
const HELD_KEYS: u32 = 200_000;

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
struct Plan {
    /// How long each measurement takes over all rounds.
    seconds: f64,
    /// How often the measurements take turns.
    rounds: u32,
    /// Tasks of a crowd.
    tasks: u32,
    /// Keys of the crowd on many keys.
    zipf_keys: u32,
    /// Tasks in the long queue.
    waiters: u32,
    /// Keys that are held at once.
    held_keys: u32,
    /// Processes in which locks are weighed, for each library.
    weighings: u32,
    /// Whether this is a shortened run.
    quick: bool,
}

impl Plan {
    fn of(options: &BenchLock) -> Self {
        let usual = Duration::from_millis(if options.quick { 200 } else { 2_000 });
        Self {
            seconds: options.seconds.unwrap_or(usual).as_secs_f64(),
            rounds: if options.quick { QUICK_ROUNDS } else { ROUNDS },
            tasks: TASKS,
            zipf_keys: KEYS,
            waiters: WAITERS,
            held_keys: HELD_KEYS,
            weighings: if options.quick { 1 } else { 3 },
            quick: options.quick,
        }
    }

    /// How long one measurement takes in one round.
    fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds.max(1)))
    }
}

/// Measures and prints. It fails when a waiter was forgotten.
pub(crate) async fn run(options: &BenchLock) -> Result<Exit> {
    let plan = Plan::of(options);
    let steps = u64::from(plan.rounds) * round::STEPS + u64::from(plan.weighings) * held::STEPS;
    let progress = Progress::new(steps);
    let weights = held::weigh(&plan, &progress).await?;
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        rounds.push(round::measure(&plan, &progress).await.map_err(failed)?);
    }
    drop(progress);
    let report = Report::of(&plan, Machine::here(Path::new(".")), weights, rounds);
    report.print(options.output)?;
    Ok(if report.is_well() { Exit::Well } else { Exit::Failed })
}

fn failed(error: Failed) -> Error {
    Error::from_boxed(error)
}
