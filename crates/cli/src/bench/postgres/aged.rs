//! A database with a past: a queue beside an old snapshot, and a sweep of a large table with nothing to do.
//!
//! A dump or an idle transaction keeps the server from removing the rows of finished jobs. The rate of a queue must not go
//! down with the number of jobs that were finished since.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use tidelock::clock::Timestamp;
use tidelock::prelude::*;
use tidelock::store::{Sweep, Swept};
use tokio::task::JoinSet;

use super::Site;
use crate::address::Address;
use crate::bench::measure::per_second;
use crate::bench::plan::Plan;
use crate::connection::connect;
use crate::progress::Progress;

/// Workers that enqueue, claim and acknowledge at the same time.
const WORKERS: u32 = 16;
/// Jobs that a worker enqueues, claims and acknowledges together.
const TOGETHER: usize = 10;
const TTL: Duration = Duration::from_secs(60);
/// Documents that one statement generates.
const CHUNK: u32 = 100_000;
/// Sweeps that are measured; the fastest counts, since the others were disturbed.
const SWEEPS: u32 = 5;
const LANE: &str = "aged";

/// What was measured, once in a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Aged {
    /// Jobs per second that were enqueued, claimed and acknowledged, before the snapshot was taken.
    pub(crate) jobs_before_per_s: f64,
    /// The same beside the snapshot, after many jobs.
    pub(crate) jobs_beside_per_s: f64,
    /// How long a sweep with nothing to do took beside many documents, in milliseconds.
    pub(crate) sweep_idle_ms: f64,
}

impl Aged {
    /// The steps of the bar that a run takes.
    pub(crate) fn steps(plan: &Plan) -> u64 {
        u64::from(plan.aged_jobs) + u64::from(plan.documents)
    }

    /// Measures in a schema of its own.
    pub(crate) async fn measure(plan: &Plan, site: &Site, schema: &str, progress: &Progress) -> Result<Self> {
        let opened = Address::Schema { url: site.url().clone(), schema: schema.to_owned() }.open().await?;
        let queue = Jobs { store: opened.shared(), made: Arc::default(), finished: Arc::default() };
        progress.say("finishing jobs");
        let slice = plan.aged_slice();
        queue.run(u64::MAX, slice / 4).await?;
        let jobs_before_per_s = queue.run(u64::MAX, slice).await?;
        let snapshot = connect(site.url()).await?;
        let look = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM {schema}.work");
        snapshot.batch_execute(&look).await?;
        progress.say("finishing jobs beside an old snapshot");
        queue.run(plan.aged_jobs.into(), Duration::MAX).await?;
        progress.done(plan.aged_jobs.into());
        let jobs_beside_per_s = queue.run(u64::MAX, slice).await?;
        snapshot.batch_execute("COMMIT").await?;
        progress.say("generating documents");
        generate(site, schema, plan.documents, progress).await?;
        progress.say("sweeping with nothing to do");
        let sweep_idle_ms = sweep(&*opened.shared()).await?;
        site.schemas().admin().batch_execute(&format!("TRUNCATE {schema}.documents")).await?;
        opened.close().await;
        Ok(Self { jobs_before_per_s, jobs_beside_per_s, sweep_idle_ms })
    }
}

/// A queue whose jobs are all new.
#[derive(Clone, Debug)]
struct Jobs {
    store: SharedStore,
    made: Arc<AtomicU64>,
    finished: Arc<AtomicU64>,
}

impl Jobs {
    /// Finishes so many jobs, or as many as a time allows. Returns the jobs per second.
    async fn run(&self, jobs: u64, length: Duration) -> Result<f64> {
        let (started, before) = (Instant::now(), self.finished.load(Ordering::Relaxed));
        let enough = before.saturating_add(jobs);
        let mut workers = JoinSet::new();
        for number in 0..WORKERS {
            let queue = self.clone();
            workers.spawn(async move {
                while queue.finished.load(Ordering::Relaxed) < enough && started.elapsed() < length {
                    queue.turn(number).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(joined) = workers.join_next().await {
            joined??;
        }
        let finished = self.finished.load(Ordering::Relaxed) - before;
        Ok(per_second(usize::try_from(finished)?, started.elapsed()))
    }

    async fn turn(&self, worker: u32) -> Result<()> {
        let (lane, owner) = (Lane::new(LANE)?, Owner::new(format!("bench-{worker}"))?);
        let first = self.made.fetch_add(TOGETHER as u64, Ordering::Relaxed);
        let mut batch = Batch::new();
        for number in first..first + TOGETHER as u64 {
            let key = Key::new("aged", [i64::try_from(number)?])?;
            batch = batch.enqueue(NewWork::once(key, lane.clone()));
        }
        self.store.apply(batch).await?;
        let grants = self.store.claim(Claim::lanes(&owner, [lane], TOGETHER, TTL)).await?.grants;
        if !grants.is_empty() {
            let acks = grants.iter().fold(Batch::new(), |batch, grant| batch.ack(&grant.lease()));
            self.store.apply(acks).await?;
            self.finished.fetch_add(grants.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Generates documents, of which every fourth expires in a day.
async fn generate(site: &Site, schema: &str, documents: u32, progress: &Progress) -> Result<()> {
    let insert = format!(
        "INSERT INTO {schema}.documents (key, version, value, updated_at, expires_at, bytes)
         SELECT 'doc#' || chr(64 + length(n::text)) || n, 1, '1', c.now,
             CASE WHEN n % 4 = 0 THEN c.now + 86400000000 END, 1
         FROM generate_series($1::bigint, $2::bigint) n, (SELECT {schema}.clock() AS now) c"
    );
    let client = connect(site.url()).await?;
    client.batch_execute("SET synchronous_commit = off").await?;
    for first in (0..documents).step_by(usize::try_from(CHUNK)?) {
        let end = documents.min(first.saturating_add(CHUNK));
        client.execute(&insert, &[&i64::from(first), &(i64::from(end) - 1)]).await?;
        progress.done(u64::from(end - first));
    }
    Ok(())
}

async fn sweep(store: &dyn Store) -> Result<f64> {
    let before = Some(Timestamp::from_micros(1));
    let sweep = Sweep { tombstones_before: before, operations_before: before, ..Sweep::default() };
    let mut fastest = f64::INFINITY;
    for _ in 0..SWEEPS {
        let started = Instant::now();
        let swept = store.sweep(sweep).await?;
        fastest = fastest.min(started.elapsed().as_secs_f64() * 1_000.0);
        ensure!(swept == Swept::default(), "a sweep with nothing to do removed {swept:?}");
    }
    Ok(fastest)
}
