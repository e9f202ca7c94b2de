//! `tidelock bench events`: commands on aggregates beside bare appends, and reactions that handle what was appended.
//!
//! Each round appends with bare batches and with commands, to streams of its own, and then lets reactions with effects in the
//! store handle what the commands appended. What they counted must be what was committed: anything else is an error of the
//! run.

mod drain;
mod load;
mod produce;
mod round;
mod tail;

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

use self::produce::{Crowd, Way};
use self::round::Round;
use super::report::Report;
use super::stand::{self, Stand, Taken};
use crate::args::{Backend, BenchEngine};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::target;

/// The phases take turns this often, so that a noisy moment hits all of them or is outvoted.
const ROUNDS: u32 = 7;
/// The same for a shortened run.
const QUICK_ROUNDS: u32 = 3;
/// Tasks that commit at the same time in the crowded phases.
const PRODUCERS: u32 = 64;
/// Streams that the producers share out among themselves.
const STREAMS: u32 = 1_000;
/// Between two phases, for work in the background to end.
const PAUSE: Duration = Duration::from_millis(50);

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// How long each phase takes over all rounds.
    seconds: f64,
    /// How often the phases take turns.
    rounds: u32,
    /// Tasks that commit at the same time.
    producers: u32,
    /// Streams that are appended to.
    streams: u32,
    /// Events of the stream that is loaded.
    long: u32,
    /// Events that are sent one by one to see how soon they are handled.
    tailed: u32,
    /// Whether this is a shortened run.
    quick: bool,
    /// Whether a write waits for a disk.
    flushes: bool,
}

impl Plan {
    fn of(options: &BenchEngine) -> Self {
        let usual = Duration::from_millis(if options.quick { 600 } else { 4_000 });
        Self {
            seconds: options.seconds.unwrap_or(usual).as_secs_f64(),
            rounds: if options.quick { QUICK_ROUNDS } else { ROUNDS },
            producers: PRODUCERS,
            streams: STREAMS,
            long: if options.quick { 1_000 } else { 10_000 },
            tailed: if options.quick { 20 } else { 200 },
            quick: options.quick,
            flushes: options.store != Backend::Memory,
        }
    }

    /// How long one phase takes in one round.
    fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds.max(1)))
    }
}

/// A stock that is counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Stock {
    left: u64,
}

/// What happens to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum StockEvent {
    /// Goods came in.
    Received {
        /// How many.
        count: u64,
        /// From where.
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

/// Measures, prints, and leaves nothing behind, not even when it is interrupted.
pub(super) async fn run(options: &BenchEngine) -> Result<Exit> {
    let plan = Plan::of(options);
    let Taken { store, machine, rounds } =
        stand::measure(options, async |stand| rounds(&plan, stand).await).await?;
    Report::of(store, &plan, machine, rounds).print(options.output)?;
    Ok(Exit::Well)
}

async fn rounds(plan: &Plan, stand: &Stand<'_>) -> Result<Vec<Round>> {
    let progress = Progress::new(u64::from(plan.rounds) * 7);
    progress.say("making a long stream");
    let long = load::Long::make(&stand.store, plan.long).await?;
    stand.settle().await?;
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        rounds.push(round(plan, stand, &long, number, &progress).await?);
    }
    Ok(rounds)
}

/// Every phase once, each on a settled machine.
async fn round(
    plan: &Plan,
    stand: &Stand<'_>,
    long: &load::Long,
    number: u32,
    progress: &Progress,
) -> Result<Round> {
    let store = &stand.store;
    let mut round = Round::default();
    let phases = [
        (&mut round.apply1, Way::Apply, 1),
        (&mut round.execute1, Way::Execute, 1),
        (&mut round.apply64, Way::Apply, plan.producers),
    ];
    for (slot, way, producers) in phases {
        begin(plan, progress, &format!("{} with {producers}", way.name())).await;
        let crowd =
            Crowd::new(store, way, &format!("{number}-{}-{producers}", way.name()), producers, plan.streams);
        *slot = crowd.run(plan.slice()).await?.0;
    }
    let drain = drain::Drain::begin(store, number).await?;
    begin(plan, progress, "commands that reactions will handle").await;
    let crowd = Crowd::new(store, Way::Execute, drain.prefix(), plan.producers, plan.streams);
    let (execute64, committed) = crowd.run(plan.slice()).await?;
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
        tokio::task::block_in_place(target::settle);
    }
    progress.done(1);
}
