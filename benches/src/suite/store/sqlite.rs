//! `store --store sqlite`: the store beside the device and the bare driver.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock_console::bench::claim::{self, Claims, Queue};
use tidelock_console::bench::commit::Producers;
use tidelock_console::bench::flush::Flusher;
use tidelock_console::bench::machine::Machine;
use tidelock_console::bench::report::{Aim, Measured, Ratio, Report, rate};
use tidelock_console::bench::sqlite_baseline::DriverBaseline;
use tidelock_console::bench::statistics::{Commits, median, ratio};
use tidelock_console::progress::Progress;
use tidelock_console::{filesystem, output};

use super::plan::Plan;
use crate::args::StoreArgs;
use crate::suite::duration::alternating;
use crate::suite::work_files::WorkFiles;

/// The pause between phases, in which background checkpoints end.
const PAUSE: Duration = Duration::from_millis(50);

/// Measures, prints, and removes its files.
pub(crate) async fn run(options: &StoreArgs) -> Result<ExitCode> {
    let plan = Plan::of(options);
    let files = WorkFiles::create(options.path.as_deref())?;
    let rounds = Box::pin(measure(&plan, &files)).await?;
    Report::of("sqlite", &plan, Machine::here(files.directory().path()), rounds).print(options.output)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(plan: &Plan, files: &WorkFiles) -> Result<Vec<Round>> {
    let slices = u64::from(plan.pace.rounds) * Phase::ALL.len() as u64;
    let rows = u64::from(plan.small_rows) + u64::from(plan.large_rows);
    let progress = Progress::new(rows + slices * Rig::WEIGHT);
    let mut rig = Box::pin(Rig::set_up(plan, files, progress)).await?;
    let mut rounds = Vec::new();
    for number in 0..plan.pace.rounds {
        rounds.push(Box::pin(rig.round(plan, number)).await?);
    }
    rig.tear_down().await;
    Ok(rounds)
}

/// The measurements of one round, or the medians of all rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Round {
    fdatasync_append_per_s: f64,
    fdatasync_overwrite_per_s: f64,
    floor_per_s: f64,
    floor_batch_size: f64,
    commit_1: Commits,
    commit_n: Commits,
    commit_n_mean_group: f64,
    claim_small: Claims,
    claim_large: Claims,
}

impl Round {
    /// The device baseline: the faster of the two files.
    fn fdatasync_per_s(&self) -> f64 {
        self.fdatasync_append_per_s.max(self.fdatasync_overwrite_per_s)
    }
}

/// The phases of a round.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Append,
    Overwrite,
    Alone,
    Many,
    Baseline,
    Short,
    Long,
}

impl Phase {
    const ALL: [Self; 7] =
        [Self::Append, Self::Overwrite, Self::Alone, Self::Many, Self::Baseline, Self::Short, Self::Long];

    const fn name(self) -> &'static str {
        match self {
            Self::Append => "flushing a growing log",
            Self::Overwrite => "flushing in place",
            Self::Alone => "committing, 1 producer",
            Self::Many => "committing, many producers",
            Self::Baseline => "writing the same rows with the bare driver",
            Self::Short => "claiming from the short queue",
            Self::Long => "claiming from the long queue",
        }
    }
}

/// The stores and load generators of all phases.
struct Rig {
    store: SqliteStore,
    shared: SharedStore,
    solo: Producers,
    many: Producers,
    flusher: Flusher,
    baseline: DriverBaseline,
    small: Filled,
    large: Filled,
    /// The mean commit group of the last phase with many producers.
    group: f64,
    progress: Progress,
}

impl Rig {
    /// The progress steps of a slice.
    const WEIGHT: u64 = 20_000;

    async fn set_up(plan: &Plan, files: &WorkFiles, progress: Progress) -> Result<Self> {
        progress.say("filling the short queue");
        let small = Filled::new(&files.directory().file("small.db"), plan.small_rows, &progress).await?;
        progress.say("filling the long queue");
        let large = Filled::new(&files.directory().file("large.db"), plan.large_rows, &progress).await?;
        let store = SqliteStore::open(files.store(), SqliteOptions::default()).await?;
        Ok(Self {
            shared: Arc::new(store.clone()),
            store,
            solo: Producers::new("solo", 1, plan.streams)?,
            many: Producers::new("many", plan.producers, plan.streams)?,
            flusher: Flusher::new(files.directory())?,
            baseline: DriverBaseline::new(&files.directory().file("driver.db"), plan.streams).await?,
            small,
            large,
            group: 1.0,
            progress,
        })
    }

    /// Runs every phase once, each after a sync.
    async fn round(&mut self, plan: &Plan, number: u32) -> Result<Round> {
        let mut round = Round::default();
        for phase in alternating(Phase::ALL, number) {
            self.progress.say(phase.name());
            tokio::time::sleep(PAUSE).await;
            self.blocking(|_| filesystem::flush_page_cache());
            self.measure(phase, plan.pace.slice(), &mut round).await?;
            self.progress.done(Self::WEIGHT);
        }
        Ok(round)
    }

    async fn measure(&mut self, phase: Phase, length: Duration, round: &mut Round) -> Result<()> {
        match phase {
            Phase::Append => {
                round.fdatasync_append_per_s = self.blocking(|rig| rig.flusher.append(length))?;
            }
            Phase::Overwrite => {
                round.fdatasync_overwrite_per_s = self.blocking(|rig| rig.flusher.overwrite(length))?;
            }
            Phase::Alone => round.commit_1 = self.solo.slice(&self.shared, length).await?.commits()?,
            Phase::Many => {
                (round.commit_n, round.commit_n_mean_group) = self.commit_many(length).await?;
                self.group = round.commit_n_mean_group.round().max(1.0);
            }
            Phase::Baseline => {
                round.floor_batch_size = self.group;
                round.floor_per_s = self.blocking(|rig| rig.baseline.slice(rig.group as usize, length))?;
            }
            Phase::Short => round.claim_small = self.small.queue.slice(1, length).await?,
            Phase::Long => round.claim_large = self.large.queue.slice(1, length).await?,
        }
        Ok(())
    }

    /// Commits with many producers; returns the mean commit group as well.
    async fn commit_many(&mut self, length: Duration) -> Result<(Commits, f64)> {
        let before = self.store.stats();
        let commits = self.many.slice(&self.shared, length).await?.commits()?;
        let after = self.store.stats();
        let groups = after.groups.saturating_sub(before.groups);
        let batches = after.batches.saturating_sub(before.batches);
        Ok((commits, ratio(batches as f64, groups as f64)))
    }

    /// Runs a blocking measurement.
    fn blocking<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        tokio::task::block_in_place(|| work(self))
    }

    async fn tear_down(self) {
        self.small.store.close().await;
        self.large.store.close().await;
        self.store.close().await;
    }
}

/// A file with a filled queue.
struct Filled {
    store: SqliteStore,
    queue: Queue,
}

impl Filled {
    /// Fills a new file, closes it and opens it again, so that measurements start with cold caches.
    async fn new(path: &Path, rows: u32, progress: &Progress) -> Result<Self> {
        let filled = SqliteStore::open(path, SqliteOptions::default()).await?;
        claim::fill(&filled, rows, progress).await?;
        filled.close().await;
        let store = SqliteStore::open(path, SqliteOptions::default()).await?;
        let queue = Queue::new(Arc::new(store.clone())).await?;
        Ok(Self { store, queue })
    }
}

impl Measured for Round {
    type Plan = Plan;

    fn median(rounds: &[Self]) -> Self {
        let commits =
            |pick: fn(&Self) -> Commits| Commits::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        let claims = |pick: fn(&Self) -> Claims| Claims::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        Self {
            fdatasync_append_per_s: median(rounds, |r| r.fdatasync_append_per_s),
            fdatasync_overwrite_per_s: median(rounds, |r| r.fdatasync_overwrite_per_s),
            floor_per_s: median(rounds, |r| r.floor_per_s),
            floor_batch_size: median(rounds, |r| r.floor_batch_size),
            commit_1: commits(|r| r.commit_1),
            commit_n: commits(|r| r.commit_n),
            commit_n_mean_group: median(rounds, |r| r.commit_n_mean_group),
            claim_small: claims(|r| r.claim_small),
            claim_large: claims(|r| r.claim_large),
        }
    }

    fn ratios(rounds: &[Self], plan: &Plan) -> Vec<Ratio> {
        let many = format!("commit{}", plan.producers);
        let large = plan.large_name();
        let flushes = Self::fdatasync_per_s;
        vec![
            Ratio::of(format!("{many}_to_floor"), Aim::AtLeast(0.6), rounds, |r| {
                ratio(r.commit_n.per_s, r.floor_per_s)
            }),
            Ratio::of(format!("{many}_to_fdatasync"), Aim::AtLeast(8.0), rounds, |r| {
                ratio(r.commit_n.per_s, flushes(r))
            }),
            Ratio::of("commit1_to_fdatasync", Aim::AtLeast(0.7), rounds, |r| {
                ratio(r.commit_1.per_s, flushes(r))
            }),
            Ratio::of(format!("claim_{large}_to_1k"), Aim::AtMost(2.0), rounds, |r| {
                ratio(r.claim_large.claim_p50_us, r.claim_small.claim_p50_us)
            }),
        ]
    }

    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let none = String::new;
        let flush = |name: &str, per_s| [name.to_owned(), rate(per_s), none(), none()];
        let commits = |name, c: Commits| [name, rate(c.per_s), rate(c.p50_us), rate(c.p99_us)];
        let calls = |name, p50, p99| [name, none(), rate(p50), rate(p99)];
        let rows = |verb: &str, rows: u32| format!("{verb}, {} rows", output::number(rows.into()));
        let (small, large) = (self.claim_small, self.claim_large);
        vec![
            flush("fdatasync, growing log", self.fdatasync_append_per_s),
            flush("fdatasync, in place", self.fdatasync_overwrite_per_s),
            flush(&format!("bare driver, {} per transaction", self.floor_batch_size), self.floor_per_s),
            commits("commit, 1 producer".to_owned(), self.commit_1),
            commits(format!("commit, {} producers", plan.producers), self.commit_n),
            calls(rows("claim", plan.small_rows), small.claim_p50_us, small.claim_p99_us),
            calls(rows("ack", plan.small_rows), small.ack_p50_us, small.ack_p99_us),
            calls(rows("claim", plan.large_rows), large.claim_p50_us, large.claim_p99_us),
            calls(rows("ack", plan.large_rows), large.ack_p50_us, large.ack_p99_us),
        ]
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
            "*_to_fdatasync compares with the faster of the two files".to_owned(),
            format!("mean commit group: {:.1}", self.commit_n_mean_group),
        ]
    }
}
