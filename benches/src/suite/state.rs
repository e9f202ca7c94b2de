//! The `state` suite: writers increment counters in the same records, with retry loops and with containers.
//!
//! Every strategy has its own records in the same store, and the strategies take turns in rounds. After each slice, the sum
//! of the counters must equal the number of acknowledged increments.

mod record;
mod round;
mod strategy;
mod writers;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock_benches::lock::Zipf;
use tidelock_console::bench::report::{Aim, Report};
use tidelock_console::filesystem;
use tidelock_console::progress::Progress;

use self::record::{Record, Records};
use self::round::Round;
use self::strategy::{Incrementer, Load, Strategy, phases};
use self::writers::Writers;
use super::duration::Pace;
use super::fixture::{self, Measurement};
use crate::args::{Backend, EngineArgs};

/// The number of rounds. A slice must be long beside a starving increment, so there are fewer rounds than elsewhere.
const ROUNDS: u32 = 9;
/// The number of concurrent writers.
const WRITERS: u32 = 64;
/// The number of records of the spread load.
const RECORDS: u32 = 10_000;
/// The pause between phases, in which background work ends.
const PAUSE: Duration = Duration::from_millis(50);

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    #[serde(flatten)]
    pace: Pace,
    /// The number of concurrent writers.
    writers: u32,
    /// Records of the spread load.
    records: u32,
    /// The size of a record.
    record_bytes: usize,
    /// Whether a write waits for a disk. Without a disk, sharing writes gains nothing, and ratios have no aim.
    flushes: bool,
}

impl Plan {
    fn of(options: &EngineArgs) -> Result<Self> {
        let pace = if options.quick { Pace::quick(600) } else { Pace::full(ROUNDS, 9_000) };
        Ok(Self {
            pace: pace.within(options.seconds),
            writers: WRITERS,
            records: RECORDS,
            record_bytes: Payload::of(&Record::new())?.len(),
            flushes: options.store != Backend::Memory,
        })
    }

    fn aim(&self, aim: Aim) -> Aim {
        if self.flushes { aim } else { Aim::None }
    }

    /// Returns the number of records of a strategy under a load.
    fn records(&self, load: Load) -> u32 {
        match load {
            Load::Hot => 1,
            Load::Spread => self.records,
        }
    }
}

/// Measures, prints, and removes everything, also after an interruption.
pub(crate) async fn run(options: &EngineArgs) -> Result<ExitCode> {
    let plan = Plan::of(options)?;
    let taken = fixture::measure(options, async |fixture| {
        let mut rig = Rig::set_up(&plan, Arc::clone(&fixture.store)).await?;
        fixture.run_maintenance().await?;
        rig.rounds(&plan).await
    });
    let Measurement { store, machine, rounds } = taken.await?;
    Report::of(store, &plan, machine, rounds).print(options.output)?;
    Ok(ExitCode::SUCCESS)
}

/// The load generators of all phases.
struct Rig {
    phases: Vec<(Load, Strategy, Writers)>,
    progress: Progress,
}

impl Rig {
    /// The progress steps of a slice.
    const WEIGHT: u64 = 20_000;

    /// Creates all records and writers.
    async fn set_up(plan: &Plan, store: SharedStore) -> Result<Self> {
        let rows: u64 = phases().map(|(load, _)| u64::from(plan.records(load))).sum();
        let slices = u64::from(plan.pace.rounds) * phases().count() as u64;
        let progress = Progress::new(rows + slices * Self::WEIGHT);
        progress.say("creating records");
        let states = StateRegistry::new(Arc::clone(&store));
        let mut prepared = Vec::new();
        for (load, strategy) in phases() {
            let count = plan.records(load);
            let records = Records::create(&*store, (load, strategy), count, &progress).await?;
            let incrementer = Incrementer::new(strategy, &store, &states);
            prepared.push((
                load,
                strategy,
                Writers::new(&incrementer, records, plan.writers, &Zipf::new(count)),
            ));
        }
        Ok(Self { phases: prepared, progress })
    }

    async fn rounds(&mut self, plan: &Plan) -> Result<Vec<Round>> {
        let mut rounds = Vec::new();
        for _ in 0..plan.pace.rounds {
            rounds.push(self.round(plan).await?);
            // Every other round runs in reverse, so that no strategy always follows the same one.
            self.phases.reverse();
        }
        Ok(rounds)
    }

    /// Runs every strategy under every load once, each after a sync.
    async fn round(&mut self, plan: &Plan) -> Result<Round> {
        let mut round = Round::default();
        for (load, strategy, writers) in &mut self.phases {
            self.progress.say(format!("{} records, {}", load.name(), strategy.name()));
            if plan.flushes {
                tokio::time::sleep(PAUSE).await;
                tokio::task::block_in_place(filesystem::flush_page_cache);
            }
            *round.at_mut(*load, *strategy) = writers.slice(plan.pace.slice()).await?;
            self.progress.done(Self::WEIGHT);
        }
        Ok(round)
    }
}
