//! The `events` suite: commands on aggregates beside bare appends, and reactions to the appended events.
//!
//! Each round appends with bare batches and with commands, to separate streams. Reactions with effects in the store then
//! handle the events of the commands. Their count must equal the number of committed events.

mod drain;
mod load;
mod produce;
mod round;
mod tail;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock_console::bench::report::Report;
use tidelock_console::filesystem;
use tidelock_console::progress::Progress;

use self::produce::{Producers, Strategy};
use self::round::Round;
use super::duration::Pace;
use super::fixture::{self, Fixture, Measurement};
use crate::args::{Backend, EngineArgs};

/// The number of rounds, so that a noisy moment affects all phases or is outvoted by the median.
const ROUNDS: u32 = 7;
/// The number of concurrent producers.
const PRODUCERS: u32 = 64;
/// The number of streams, distributed over the producers.
const STREAMS: u32 = 1_000;
/// The pause between phases, in which background work ends.
const PAUSE: Duration = Duration::from_millis(50);

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    #[serde(flatten)]
    pace: Pace,
    /// The number of concurrent producers.
    producers: u32,
    /// The number of streams.
    streams: u32,
    /// Events of the loaded stream.
    long: u32,
    /// Events sent one by one, to measure the latency until they are handled.
    tailed: u32,
    /// Whether a write waits for a disk.
    flushes: bool,
}

impl Plan {
    fn of(options: &EngineArgs) -> Self {
        let pace = if options.quick { Pace::quick(600) } else { Pace::full(ROUNDS, 4_000) };
        Self {
            pace: pace.within(options.seconds),
            producers: PRODUCERS,
            streams: STREAMS,
            long: if options.quick { 1_000 } else { 10_000 },
            tailed: if options.quick { 20 } else { 200 },
            flushes: options.store != Backend::Memory,
        }
    }
}

/// An aggregate that counts its stock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Stock {
    left: u64,
}

/// Its events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum StockEvent {
    /// Goods were received.
    Received {
        /// The number of goods.
        count: u64,
        /// The supplier.
        supplier: String,
    },
}

impl StockEvent {
    fn received() -> Self {
        Self::Received {
            count: 1,
            supplier: "the orchard behind the hill, second gate on the left".to_owned(),
        }
    }
}

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        let StockEvent::Received { count, .. } = event;
        self.left = self.left.saturating_add(*count);
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
    let progress = Progress::new(u64::from(plan.pace.rounds) * 7);
    progress.say("making a long stream");
    let long = load::Long::make(&fixture.store, plan.long).await?;
    fixture.run_maintenance().await?;
    let mut rounds = Vec::new();
    for number in 0..plan.pace.rounds {
        rounds.push(round(plan, fixture, &long, number, &progress).await?);
    }
    Ok(rounds)
}

/// Runs every phase once, each after a sync.
async fn round(
    plan: &Plan,
    fixture: &Fixture<'_>,
    long: &load::Long,
    number: u32,
    progress: &Progress,
) -> Result<Round> {
    let store = &fixture.store;
    let mut round = Round::default();
    let phases = [
        (&mut round.apply1, Strategy::Apply, 1),
        (&mut round.execute1, Strategy::Execute, 1),
        (&mut round.apply64, Strategy::Apply, plan.producers),
    ];
    for (slot, strategy, producers) in phases {
        begin(plan, progress, &format!("{} with {producers}", strategy.name())).await;
        let appending = Producers::new(
            store,
            strategy,
            &format!("{number}-{}-{producers}", strategy.name()),
            producers,
            plan.streams,
        );
        *slot = appending.run(plan.pace.slice()).await?.0;
    }
    let drain = drain::Drain::begin(store, number).await?;
    begin(plan, progress, "commands that reactions will handle").await;
    let appending = Producers::new(store, Strategy::Execute, drain.prefix(), plan.producers, plan.streams);
    let (execute64, committed) = appending.run(plan.pace.slice()).await?;
    round.execute64 = execute64;
    begin(plan, progress, "reactions").await;
    round.drained_per_s = drain.run(committed).await?;
    begin(plan, progress, "from commit to handler").await;
    round.tail = tail::run(store, number, plan.tailed).await?;
    begin(plan, progress, "loading a long stream").await;
    (round.load_ms, round.load_snapshot_ms) = long.load(store).await?;
    Ok(round)
}

async fn begin(plan: &Plan, progress: &Progress, what: &str) {
    progress.say(what.to_owned());
    if plan.flushes {
        tokio::time::sleep(PAUSE).await;
        tokio::task::block_in_place(filesystem::flush_page_cache);
    }
    progress.done(1);
}
