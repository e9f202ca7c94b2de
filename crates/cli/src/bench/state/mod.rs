//! `tidelock bench state`: writers that count in the same records, by hand and with containers, in the same run.
//!
//! Every way has its own records in the same store, which is opened once. The ways take turns in rounds. After each
//! slice the counters are added up: a sum that is not the number of acknowledged increments is an error of the run.

mod crowd;
mod record;
mod round;
mod way;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock_benches::lock::Zipf;

use self::crowd::Crowd;
use self::record::{Record, Records};
use self::round::Round;
use self::way::{Hand, Load, Way, phases};
use super::report::{Aim, Report};
use super::stand::{self, Taken};
use crate::args::{Backend, BenchEngine};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::target;

/// The ways take turns this often, so that a noisy moment hits all of them or is outvoted. A slice is long beside what
/// an increment takes that starves, so there are fewer of them than elsewhere.
const ROUNDS: u32 = 9;
/// The same for a shortened run.
const QUICK_ROUNDS: u32 = 3;
/// Tasks that write side by side.
const WRITERS: u32 = 64;
/// Records of the writers that do not all want the same one.
const RECORDS: u32 = 10_000;
/// Between two phases, for work in the background to end.
const PAUSE: Duration = Duration::from_millis(50);

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// How long each phase takes over all rounds.
    seconds: f64,
    /// How often the phases take turns.
    rounds: u32,
    /// Tasks that write at the same time.
    writers: u32,
    /// Records of the spread load.
    records: u32,
    /// The length of a record.
    record_bytes: usize,
    /// Whether this is a shortened run.
    quick: bool,
    /// Whether a write waits for a disk. Otherwise there is nothing to be won by sharing writes, and no aim.
    flushes: bool,
}

impl Plan {
    fn of(options: &BenchEngine) -> Result<Self> {
        let usual = Duration::from_millis(if options.quick { 600 } else { 9_000 });
        Ok(Self {
            seconds: options.seconds.unwrap_or(usual).as_secs_f64(),
            rounds: if options.quick { QUICK_ROUNDS } else { ROUNDS },
            writers: WRITERS,
            records: RECORDS,
            record_bytes: Payload::of(&Record::new())?.len(),
            quick: options.quick,
            flushes: options.store != Backend::Memory,
        })
    }

    /// How long one phase takes in one round.
    fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds.max(1)))
    }

    fn aim(&self, aim: Aim) -> Aim {
        if self.flushes { aim } else { Aim::None }
    }

    /// How many records a way has under a load.
    fn records(&self, load: Load) -> u32 {
        match load {
            Load::Hot => 1,
            Load::Spread => self.records,
        }
    }
}

/// Measures, prints, and leaves nothing behind, not even when it is interrupted.
pub(super) async fn run(options: &BenchEngine) -> Result<Exit> {
    let plan = Plan::of(options)?;
    let taken = stand::measure(options, async |stand| {
        let mut rig = Rig::set_up(&plan, Arc::clone(&stand.store)).await?;
        stand.settle().await?;
        rig.rounds(&plan).await
    });
    let Taken { store, machine, rounds } = taken.await?;
    Report::of(store, &plan, machine, rounds).print(options.output)?;
    Ok(Exit::Well)
}

/// Everything that is measured, ready to go on.
struct Rig {
    crowds: Vec<(Load, Way, Crowd)>,
    progress: Progress,
}

impl Rig {
    /// How many steps of the bar a slice is worth.
    const WEIGHT: u64 = 20_000;

    /// Creates all records.
    async fn set_up(plan: &Plan, store: SharedStore) -> Result<Self> {
        let rows: u64 = phases().map(|(load, _)| u64::from(plan.records(load))).sum();
        let slices = u64::from(plan.rounds) * phases().count() as u64;
        let progress = Progress::new(rows + slices * Self::WEIGHT);
        progress.say("creating records");
        let states = States::new(Arc::clone(&store));
        let mut crowds = Vec::new();
        for (load, way) in phases() {
            let count = plan.records(load);
            let records = Records::create(&*store, (load, way), count, &progress).await?;
            let hand = Hand::new(way, &store, &states);
            crowds.push((load, way, Crowd::new(&hand, records, plan.writers, &Zipf::new(count))));
        }
        Ok(Self { crowds, progress })
    }

    async fn rounds(&mut self, plan: &Plan) -> Result<Vec<Round>> {
        let mut rounds = Vec::new();
        for _ in 0..plan.rounds {
            rounds.push(self.round(plan).await?);
            // Every other round goes backwards, so that no way always pays for what the same other one left behind.
            self.crowds.reverse();
        }
        Ok(rounds)
    }

    /// Every way under every load once, each on a settled machine.
    async fn round(&mut self, plan: &Plan) -> Result<Round> {
        let mut round = Round::default();
        for (load, way, crowd) in &mut self.crowds {
            self.progress.say(format!("{} records, {}", load.name(), way.name()));
            if plan.flushes {
                tokio::time::sleep(PAUSE).await;
                tokio::task::block_in_place(target::settle);
            }
            *round.at_mut(*load, *way) = crowd.slice(plan.slice()).await?;
            self.progress.done(Self::WEIGHT);
        }
        Ok(round)
    }
}
