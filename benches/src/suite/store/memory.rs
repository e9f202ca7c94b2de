//! `store --store memory`: the reference store beside a map behind a mutex.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock_console::bench::commit::Producers;
use tidelock_console::bench::machine::Machine;
use tidelock_console::bench::memory_baseline::appends_per_second;
use tidelock_console::bench::report::{Aim, Measured, Ratio, Report, rate};
use tidelock_console::bench::statistics::{Commits, median, ratio};
use tidelock_console::progress::Progress;
use tidelock_console::usage::UsageError;

use super::plan::Plan;
use crate::args::StoreArgs;

/// Measures and prints.
pub(crate) async fn run(options: &StoreArgs) -> Result<ExitCode> {
    if options.path.is_some() {
        return Err(UsageError("cannot place the memory store in a file; leave out --path".to_owned()).into());
    }
    let plan = Plan::of(options);
    let progress = Progress::new(u64::from(plan.pace.rounds) * 4);
    let mut rounds = Vec::new();
    for _ in 0..plan.pace.rounds {
        rounds.push(round(&plan, &progress).await?);
    }
    drop(progress);
    Report::of("memory", &plan, Machine::here(Path::new(".")), rounds).print(options.output)?;
    Ok(ExitCode::SUCCESS)
}

/// The measurements of one round, or the medians of all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Round {
    map_1_per_s: f64,
    map_n_per_s: f64,
    commit_1: Commits,
    commit_n: Commits,
}

async fn round(plan: &Plan, progress: &Progress) -> Result<Round> {
    let length = plan.pace.slice();
    progress.say("appending to a map");
    let map_1_per_s = appends_per_second(1, length).await?;
    progress.done(1);
    let map_n_per_s = appends_per_second(plan.producers, length).await?;
    progress.done(1);
    progress.say("committing");
    let commit_1 = commits(1, plan, length).await?;
    progress.done(1);
    let commit_n = commits(plan.producers, plan, length).await?;
    progress.done(1);
    Ok(Round { map_1_per_s, map_n_per_s, commit_1, commit_n })
}

/// Commits to a new store, so that no slice pays for the data of another.
async fn commits(producers: u32, plan: &Plan, length: Duration) -> Result<Commits> {
    let store: SharedStore = Arc::new(MemoryStore::new());
    Producers::new("many", producers, plan.streams)?.slice(&store, length).await?.commits()
}

impl Measured for Round {
    type Plan = Plan;

    fn median(rounds: &[Self]) -> Self {
        let commits =
            |pick: fn(&Self) -> Commits| Commits::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        Self {
            map_1_per_s: median(rounds, |r| r.map_1_per_s),
            map_n_per_s: median(rounds, |r| r.map_n_per_s),
            commit_1: commits(|r| r.commit_1),
            commit_n: commits(|r| r.commit_n),
        }
    }

    fn ratios(rounds: &[Self], plan: &Plan) -> Vec<Ratio> {
        let many = format!("commit{}_to_map", plan.producers);
        vec![
            Ratio::of("commit1_to_map", Aim::None, rounds, |r| ratio(r.commit_1.per_s, r.map_1_per_s)),
            Ratio::of(many, Aim::None, rounds, |r| ratio(r.commit_n.per_s, r.map_n_per_s)),
        ]
    }

    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let baseline = |name, per_s| [name, rate(per_s), String::new(), String::new()];
        let commits = |name, c: Commits| [name, rate(c.per_s), rate(c.p50_us), rate(c.p99_us)];
        let n = plan.producers;
        vec![
            baseline("map, 1 task".to_owned(), self.map_1_per_s),
            baseline(format!("map, {n} tasks"), self.map_n_per_s),
            commits("commit, 1 producer".to_owned(), self.commit_1),
            commits(format!("commit, {n} producers"), self.commit_n),
        ]
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
            "the map checks no versions, keeps no order across streams and detects no duplicates".to_owned(),
        ]
    }
}
