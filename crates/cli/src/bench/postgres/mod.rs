//! `bench store --store postgres`: the store beside transactions written by hand, on one server, in rounds.

mod aged;
mod hand;
mod round;
mod site;
mod wake;
mod yard;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidelock::prelude::*;

use self::aged::Aged;
use self::hand::Way;
use self::round::Round;
use self::wake::Pair;
use self::yard::{Crowd, Yard};
use super::claim::{self, Queue};
use super::commit::Crew;
use super::measure::{Commits, ratio};
use super::plan::Plan;
use super::report::Report;
use super::until_stopped;
use crate::address::{Address, Opened};
use crate::args::BenchStore;
use crate::exit::Exit;
use crate::progress::Progress;
use crate::target;

pub(crate) use site::Site;

/// Between two phases, for work in the background to end.
const PAUSE: Duration = Duration::from_millis(50);
/// Hints that are waited for, over all rounds.
const HINTS: u32 = 200;

/// Measures, prints, and leaves nothing behind, not even when it is interrupted.
pub(crate) async fn run(options: &BenchStore) -> Result<Exit> {
    let plan = Plan::of(options);
    let mut site = Site::choose(options.url.as_deref(), options.path.as_deref()).await?;
    let names = Names::choose(&mut site);
    site.announce();
    let rounds = until_stopped(Box::pin(measure(&plan, &site, &names))).await;
    let machine = site.machine();
    site.leave().await;
    Report::of("postgres", &plan, machine, rounds?).print(options.output)?;
    Ok(Exit::Well)
}

async fn measure(plan: &Plan, site: &Site, names: &Names) -> Result<Vec<Round>> {
    let slices = u64::from(plan.rounds) * Phase::ALL.len() as u64;
    let rows = u64::from(plan.small_rows) + u64::from(plan.large_rows);
    let progress = Progress::new(rows + slices * Rig::WEIGHT + Aged::steps(plan));
    let aged = Box::pin(Aged::measure(plan, site, &names.aged, &progress)).await?;
    let mut rig = Box::pin(Rig::set_up(plan, site, names, progress)).await?;
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        let mut round = Box::pin(rig.round(plan, number)).await?;
        round.aged = aged;
        rounds.push(round);
    }
    rig.tear_down().await;
    Ok(rounds)
}

/// The schemas of a run.
#[derive(Debug)]
struct Names {
    commits: String,
    small: String,
    large: String,
    plain: String,
    aged: String,
}

impl Names {
    fn choose(site: &mut Site) -> Self {
        Self {
            commits: site.schema("bench_tidelock"),
            small: site.schema("bench_tidelock_small"),
            large: site.schema("bench_tidelock_large"),
            plain: site.schema("bench_plain"),
            aged: site.schema("bench_tidelock_aged"),
        }
    }
}

/// How many rows wait in a queue.
#[derive(Clone, Copy, Debug)]
enum Length {
    Small,
    Large,
}

/// What is measured in each round.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Plain,
    TableLock,
    SingleStatement,
    SingleStatementAlone,
    Alone,
    Crowd,
    Claim(Length, usize),
    Wake,
}

impl Phase {
    const ALL: [Self; 13] = [
        Self::Plain,
        Self::Crowd,
        Self::TableLock,
        Self::SingleStatement,
        Self::Alone,
        Self::SingleStatementAlone,
        Self::Claim(Length::Small, 1),
        Self::Claim(Length::Large, 1),
        Self::Claim(Length::Small, 4),
        Self::Claim(Length::Large, 4),
        Self::Claim(Length::Small, 16),
        Self::Claim(Length::Large, 16),
        Self::Wake,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "committing by hand",
            Self::TableLock => "committing by hand, one at a time",
            Self::SingleStatement => "committing by hand, in one statement",
            Self::SingleStatementAlone => "committing by hand, in one statement, alone",
            Self::Alone => "committing alone",
            Self::Crowd => "committing in a crowd",
            Self::Claim(Length::Small, _) => "claiming from the short queue",
            Self::Claim(Length::Large, _) => "claiming from the long queue",
            Self::Wake => "waiting for hints",
        }
    }
}

/// Everything that is measured, ready to go on.
struct Rig {
    yard: Arc<Yard>,
    plain: Crowd,
    table_lock: Crowd,
    single_statement: Crowd,
    single_statement_alone: Crowd,
    store: Opened,
    shared: SharedStore,
    solo: Crew,
    many: Crew,
    small: Filled,
    large: Filled,
    pair: Pair,
    progress: Progress,
}

impl Rig {
    /// How many steps of the bar a slice is worth.
    const WEIGHT: u64 = 20_000;

    async fn set_up(plan: &Plan, site: &Site, names: &Names, progress: Progress) -> Result<Self> {
        let address = |schema: &String| Address::Schema { url: site.url().clone(), schema: schema.clone() };
        progress.say("filling the short queue");
        let small = Filled::new(&address(&names.small), plan.small_rows, &progress).await?;
        progress.say("filling the long queue");
        let large = Filled::new(&address(&names.large), plan.large_rows, &progress).await?;
        progress.say("settling");
        let store = address(&names.commits).open().await?;
        let shared = store.shared();
        hand::make_tables(site.schemas().admin(), &names.plain).await?;
        site.schemas().settle().await?;
        let crowd = |way, kind, producers| Crowd::new(way, kind, producers, plan.streams);
        Ok(Self {
            yard: Arc::new(Yard::new(site.url(), &names.plain).await?),
            plain: crowd(Way::Plain, "many", plan.producers)?,
            table_lock: crowd(Way::TableLock, "many", plan.producers)?,
            single_statement: crowd(Way::SingleStatement, "many", plan.producers)?,
            single_statement_alone: crowd(Way::SingleStatement, "solo", 1)?,
            solo: Crew::new("solo", 1, plan.streams)?,
            many: Crew::new("many", plan.producers, plan.streams)?,
            pair: Pair::new(&address(&names.commits), Arc::clone(&shared)).await?,
            store,
            shared,
            small,
            large,
            progress,
        })
    }

    /// Every phase once, each on a settled machine. Every other round goes backwards, so that no phase always pays
    /// for what the same other one left behind.
    async fn round(&mut self, plan: &Plan, number: u32) -> Result<Round> {
        let mut order = Phase::ALL;
        if !number.is_multiple_of(2) {
            order.reverse();
        }
        let mut round = Round::default();
        for phase in order {
            self.progress.say(phase.name());
            tokio::time::sleep(PAUSE).await;
            tokio::task::block_in_place(target::settle);
            self.measure(phase, plan, &mut round).await?;
            self.progress.done(Self::WEIGHT);
        }
        Ok(round)
    }

    async fn measure(&mut self, phase: Phase, plan: &Plan, round: &mut Round) -> Result<()> {
        let (length, yard) = (plan.slice(), &self.yard);
        match phase {
            Phase::Plain => round.plain16 = self.plain.slice(yard, length).await?.commits()?,
            Phase::TableLock => {
                round.plain16_table_lock = self.table_lock.slice(yard, length).await?.commits()?;
            }
            Phase::SingleStatement => {
                round.single_statement16 = self.single_statement.slice(yard, length).await?.commits()?;
            }
            Phase::SingleStatementAlone => {
                round.single_statement1 = self.single_statement_alone.slice(yard, length).await?.commits()?;
            }
            Phase::Alone => round.commit_1 = self.solo.slice(&self.shared, length).await?.commits()?,
            Phase::Crowd => (round.commit_n, round.commit_n_mean_group) = self.crowd(length).await?,
            Phase::Claim(Length::Small, workers) => {
                *round.small_mut(workers) = self.small.queue.slice(workers, length).await?;
            }
            Phase::Claim(Length::Large, workers) => {
                *round.large_mut(workers) = self.large.queue.slice(workers, length).await?;
            }
            Phase::Wake => round.wake_up(self.pair.slice(HINTS.div_ceil(plan.rounds.max(1))).await?),
        }
        Ok(())
    }

    /// The crowded phase, with the number of commits that shared a flush on average.
    async fn crowd(&mut self, length: Duration) -> Result<(Commits, f64)> {
        let before = self.store.written();
        let commits = self.many.slice(&self.shared, length).await?.commits()?;
        let after = self.store.written();
        let groups = after.groups.saturating_sub(before.groups);
        let batches = after.batches.saturating_sub(before.batches);
        Ok((commits, ratio(batches as f64, groups as f64)))
    }

    async fn tear_down(self) {
        self.pair.close().await;
        self.small.store.close().await;
        self.large.store.close().await;
        self.store.close().await;
    }
}

/// A schema with a queue in it.
struct Filled {
    store: Opened,
    queue: Queue,
}

impl Filled {
    async fn new(address: &Address, rows: u32, progress: &Progress) -> Result<Self> {
        let store = address.open().await?;
        claim::fill(&*store.shared(), rows, progress).await?;
        let queue = Queue::new(store.shared()).await?;
        Ok(Self { store, queue })
    }
}
