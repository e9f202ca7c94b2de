//! `store --store postgres`: the store beside handwritten SQL on one server.

mod aged;
mod round;
mod wake;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock_console::address::{Address, Opened};
use tidelock_console::bench::claim::{self, Queue};
use tidelock_console::bench::commit::Producers;
use tidelock_console::bench::handwritten::{self, Strategy};
use tidelock_console::bench::postgres_baseline::{Pool, Writers};
use tidelock_console::bench::report::Report;
use tidelock_console::bench::statistics::{Commits, ratio};
use tidelock_console::bench::until_interrupted;
use tidelock_console::filesystem;
use tidelock_console::progress::Progress;

use self::aged::Aged;
use self::round::Round;
use self::wake::Pair;
use super::plan::Plan;
use crate::args::StoreArgs;
use crate::suite::duration::alternating;
use crate::suite::server::BenchServer;

/// The pause between phases, in which background work ends.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of notifications, over all rounds.
const NOTIFICATIONS: u32 = 200;

/// Measures, prints, and removes everything, also after an interruption.
pub(crate) async fn run(options: &StoreArgs) -> Result<ExitCode> {
    let plan = Plan::of(options);
    let mut server = BenchServer::open(options.url.as_deref(), options.path.as_deref()).await?;
    let names = Names::choose(&mut server);
    server.announce();
    let rounds = until_interrupted(Box::pin(measure(&plan, &server, &names))).await;
    let machine = server.machine();
    server.close().await;
    Report::of("postgres", &plan, machine, rounds?).print(options.output)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(plan: &Plan, server: &BenchServer, names: &Names) -> Result<Vec<Round>> {
    let slices = u64::from(plan.pace.rounds) * Phase::ALL.len() as u64;
    let rows = u64::from(plan.small_rows) + u64::from(plan.large_rows);
    let progress = Progress::new(rows + slices * Rig::WEIGHT + Aged::steps(plan));
    let aged = Box::pin(Aged::measure(plan, server, &names.aged, &progress)).await?;
    let mut rig = Box::pin(Rig::set_up(plan, server, names, progress)).await?;
    let mut rounds = Vec::new();
    for number in 0..plan.pace.rounds {
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
    fn choose(server: &mut BenchServer) -> Self {
        Self {
            commits: server.schema("bench_tidelock"),
            small: server.schema("bench_tidelock_small"),
            large: server.schema("bench_tidelock_large"),
            plain: server.schema("bench_plain"),
            aged: server.schema("bench_tidelock_aged"),
        }
    }
}

/// The length of a queue.
#[derive(Clone, Copy, Debug)]
enum Length {
    Small,
    Large,
}

/// The phases of a round.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Plain,
    TableLock,
    SingleStatement,
    SingleStatementAlone,
    Alone,
    Many,
    Claim(Length, usize),
    Wake,
}

impl Phase {
    const ALL: [Self; 13] = [
        Self::Plain,
        Self::Many,
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
            Self::Plain => "handwritten SQL, transactions",
            Self::TableLock => "handwritten SQL, under a table lock",
            Self::SingleStatement => "handwritten SQL, single statements",
            Self::SingleStatementAlone => "handwritten SQL, single statements, 1 writer",
            Self::Alone => "committing, 1 producer",
            Self::Many => "committing, many producers",
            Self::Claim(Length::Small, _) => "claiming from the short queue",
            Self::Claim(Length::Large, _) => "claiming from the long queue",
            Self::Wake => "waiting for notifications",
        }
    }
}

/// The load generators of all phases.
struct Rig {
    pool: Arc<Pool>,
    plain: Writers,
    table_lock: Writers,
    single_statement: Writers,
    single_statement_alone: Writers,
    store: Opened,
    shared: SharedStore,
    solo: Producers,
    many: Producers,
    small: Filled,
    large: Filled,
    pair: Pair,
    progress: Progress,
}

impl Rig {
    /// The progress steps of a slice.
    const WEIGHT: u64 = 20_000;

    async fn set_up(plan: &Plan, server: &BenchServer, names: &Names, progress: Progress) -> Result<Self> {
        let address = |schema: &String| Address::Schema { url: server.url().clone(), schema: schema.clone() };
        progress.say("filling the short queue");
        let small = Filled::new(&address(&names.small), plan.small_rows, &progress).await?;
        progress.say("filling the long queue");
        let large = Filled::new(&address(&names.large), plan.large_rows, &progress).await?;
        progress.say("settling");
        let store = address(&names.commits).open().await?;
        let shared = store.shared();
        handwritten::create_tables(server.schemas().admin(), &names.plain).await?;
        server.schemas().run_maintenance().await?;
        let writers = |strategy, kind, count| Writers::new(strategy, kind, count, plan.streams);
        Ok(Self {
            pool: Arc::new(Pool::new(server.url(), &names.plain).await?),
            plain: writers(Strategy::Plain, "many", plan.producers)?,
            table_lock: writers(Strategy::TableLock, "many", plan.producers)?,
            single_statement: writers(Strategy::SingleStatement, "many", plan.producers)?,
            single_statement_alone: writers(Strategy::SingleStatement, "solo", 1)?,
            solo: Producers::new("solo", 1, plan.streams)?,
            many: Producers::new("many", plan.producers, plan.streams)?,
            pair: Pair::new(&address(&names.commits), Arc::clone(&shared)).await?,
            store,
            shared,
            small,
            large,
            progress,
        })
    }

    /// Runs every phase once, each after a sync.
    async fn round(&mut self, plan: &Plan, number: u32) -> Result<Round> {
        let mut round = Round::default();
        for phase in alternating(Phase::ALL, number) {
            self.progress.say(phase.name());
            tokio::time::sleep(PAUSE).await;
            tokio::task::block_in_place(filesystem::flush_page_cache);
            self.measure(phase, plan, &mut round).await?;
            self.progress.done(Self::WEIGHT);
        }
        Ok(round)
    }

    async fn measure(&mut self, phase: Phase, plan: &Plan, round: &mut Round) -> Result<()> {
        let (length, pool) = (plan.pace.slice(), &self.pool);
        match phase {
            Phase::Plain => round.plain16 = self.plain.slice(pool, length).await?.commits()?,
            Phase::TableLock => {
                round.plain16_table_lock = self.table_lock.slice(pool, length).await?.commits()?;
            }
            Phase::SingleStatement => {
                round.single_statement16 = self.single_statement.slice(pool, length).await?.commits()?;
            }
            Phase::SingleStatementAlone => {
                round.single_statement1 = self.single_statement_alone.slice(pool, length).await?.commits()?;
            }
            Phase::Alone => round.commit_1 = self.solo.slice(&self.shared, length).await?.commits()?,
            Phase::Many => (round.commit_n, round.commit_n_mean_group) = self.commit_many(length).await?,
            Phase::Claim(Length::Small, workers) => {
                *round.small_mut(workers) = self.small.queue.slice(workers, length).await?;
            }
            Phase::Claim(Length::Large, workers) => {
                *round.large_mut(workers) = self.large.queue.slice(workers, length).await?;
            }
            Phase::Wake => {
                round.record_wake(self.pair.slice(NOTIFICATIONS.div_ceil(plan.pace.rounds.max(1))).await?)
            }
        }
        Ok(())
    }

    /// Commits with many producers; returns the mean commit group as well.
    async fn commit_many(&mut self, length: Duration) -> Result<(Commits, f64)> {
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

/// A schema with a filled queue.
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
