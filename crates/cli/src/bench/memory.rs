//! `bench store --store memory`: the reference store beside a bare map behind a mutex.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::commit::{self, Crew};
use super::machine::Machine;
use super::measure::{Commits, median, per_second, ratio};
use super::plan::{Place, Plan};
use super::report::{Aim, Measured, Ratio, Report, rate};
use crate::args::BenchStore;
use crate::exit::{Exit, WrongUse};
use crate::progress::Progress;

/// Measures and prints.
pub(crate) async fn run(options: &BenchStore) -> Result<Exit> {
    if options.path.is_some() {
        return Err(WrongUse("the memory store has no file; leave out --path".to_owned()).into());
    }
    let plan = Plan::of(options);
    let place = Place::choose(None)?;
    let progress = Progress::new(u64::from(plan.rounds) * 4);
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        rounds.push(round(&plan, &progress).await?);
    }
    drop(progress);
    Report::of("memory", &plan, Machine::here(place.directory()), rounds).print(options.output)?;
    Ok(Exit::Well)
}

/// What one round measured, or the median of all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Round {
    map_1_per_s: f64,
    map_n_per_s: f64,
    commit_1: Commits,
    commit_n: Commits,
}

async fn round(plan: &Plan, progress: &Progress) -> Result<Round> {
    let length = plan.slice();
    progress.say("appending to a bare map");
    let map_1_per_s = map(1, length).await?;
    progress.done(1);
    let map_n_per_s = map(plan.producers, length).await?;
    progress.done(1);
    progress.say("committing");
    let commit_1 = commits(1, plan, length).await?;
    progress.done(1);
    let commit_n = commits(plan.producers, plan, length).await?;
    progress.done(1);
    Ok(Round { map_1_per_s, map_n_per_s, commit_1, commit_n })
}

/// Every slice has a store of its own, so that none pays for what another left behind.
async fn commits(producers: u32, plan: &Plan, length: Duration) -> Result<Commits> {
    let store: SharedStore = Arc::new(MemoryStore::new());
    Crew::new("many", producers, plan.streams)?.slice(&store, length).await?.commits()
}

/// Appends per second to a map of lists behind one mutex, with a new id and the same payload each.
async fn map(producers: u32, length: Duration) -> Result<f64> {
    let shared = Arc::new(Mutex::new(HashMap::<Key, Vec<(EventId, Payload)>>::new()));
    let payload = Payload::from_json(commit::payload_text())?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..producers {
        let (shared, payload) = (Arc::clone(&shared), payload.clone());
        let key = commit::stream_key("many", number)?;
        tasks.spawn(async move {
            let mut count = 0_usize;
            while started.elapsed() < length {
                let mut map = shared.lock().await;
                map.entry(key.clone()).or_default().push((EventId::new(), payload.clone()));
                count += 1;
            }
            count
        });
    }
    let count: usize = tasks.join_all().await.into_iter().sum();
    Ok(per_second(count, started.elapsed()))
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
        let crowd = format!("commit{}_to_map", plan.producers);
        vec![
            Ratio::of("commit1_to_map", Aim::None, rounds, |r| ratio(r.commit_1.per_s, r.map_1_per_s)),
            Ratio::of(crowd, Aim::None, rounds, |r| ratio(r.commit_n.per_s, r.map_n_per_s)),
        ]
    }

    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let bare = |name, per_s| [name, rate(per_s), String::new(), String::new()];
        let commits = |name, c: Commits| [name, rate(c.per_s), rate(c.p50_us), rate(c.p99_us)];
        let n = plan.producers;
        vec![
            bare("bare map, 1 task".to_owned(), self.map_1_per_s),
            bare(format!("bare map, {n} tasks"), self.map_n_per_s),
            commits("commit, 1 producer".to_owned(), self.commit_1),
            commits(format!("commit, {n} producers"), self.commit_n),
        ]
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
            "the bare map checks no versions, keeps no order across streams and finds no repetition"
                .to_owned(),
        ]
    }
}
