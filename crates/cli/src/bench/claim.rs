//! The claim workload: a long queue of due work, of which one row after the other is taken, done and put back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use tidelock::prelude::*;
use tokio::task::JoinSet;

use super::measure::{Latencies, median, per_second};
use crate::progress::Progress;

/// Rows that are enqueued in one batch.
const FILL_BATCH: u32 = 5_000;
/// Claims in one slice, at most for one worker and at least for all together.
const MOST: usize = 2_000;
const FEWEST: usize = 50;
/// Claims that are not counted, after the store was opened anew.
const WARM_UP: usize = 50;
const TTL: Duration = Duration::from_secs(60);
/// The lane that all rows are in.
const LANE: &str = "bench";

/// How long taking and acknowledging took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Claims {
    /// How many claims were measured.
    pub(crate) count: f64,
    /// Rows per second that were taken, acknowledged and put back.
    pub(crate) turns_per_s: f64,
    /// Half of the claims were answered within this time.
    pub(crate) claim_p50_us: f64,
    /// All but one in a hundred were.
    pub(crate) claim_p99_us: f64,
    /// Half of the acknowledgements were done within this time.
    pub(crate) ack_p50_us: f64,
    /// All but one in a hundred were.
    pub(crate) ack_p99_us: f64,
}

impl Claims {
    /// The median of each number.
    pub(crate) fn median(of: &[Self]) -> Self {
        Self {
            count: median(of, |c| c.count),
            turns_per_s: median(of, |c| c.turns_per_s),
            claim_p50_us: median(of, |c| c.claim_p50_us),
            claim_p99_us: median(of, |c| c.claim_p99_us),
            ack_p50_us: median(of, |c| c.ack_p50_us),
            ack_p99_us: median(of, |c| c.ack_p99_us),
        }
    }
}

/// Enqueues so many rows.
pub(crate) async fn fill(store: &dyn Store, rows: u32, progress: &Progress) -> Result<()> {
    let lane = Lane::new(LANE)?;
    for first in (0..rows).step_by(usize::try_from(FILL_BATCH)?) {
        let end = rows.min(first.saturating_add(FILL_BATCH));
        let mut batch = Batch::new();
        for number in first..end {
            batch = batch.enqueue(job(number, &lane)?);
        }
        store.apply(batch).await?;
        progress.done(u64::from(end - first));
    }
    Ok(())
}

/// A store with a queue of a given length.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    store: SharedStore,
    lane: Lane,
}

impl Queue {
    /// The queue of a store that was filled before, with some turns to warm up.
    pub(crate) async fn new(store: SharedStore) -> Result<Self> {
        let queue = Self { store, lane: Lane::new(LANE)? };
        let mut worker = Worker::new(&queue, 0)?;
        for _ in 0..WARM_UP {
            worker.turn().await?;
        }
        Ok(queue)
    }

    /// Lets so many workers take, acknowledge and put back for a while.
    pub(crate) async fn slice(&self, workers: usize, length: Duration) -> Result<Claims> {
        let started = Instant::now();
        let fewest = FEWEST.div_ceil(workers.max(1));
        let mut tasks = JoinSet::new();
        for number in 0..workers {
            let worker = Worker::new(self, number)?;
            tasks.spawn(worker.run(fewest, started + length));
        }
        let (mut claims, mut acks) = (Latencies::default(), Latencies::default());
        while let Some(joined) = tasks.join_next().await {
            let worker = joined??;
            claims.merge(worker.claims);
            acks.merge(worker.acks);
        }
        Ok(Claims {
            count: claims.count() as f64,
            turns_per_s: per_second(claims.count(), started.elapsed()),
            claim_p50_us: claims.percentile(0.5),
            claim_p99_us: claims.percentile(0.99),
            ack_p50_us: acks.percentile(0.5),
            ack_p99_us: acks.percentile(0.99),
        })
    }
}

/// One task that takes rows.
#[derive(Debug)]
struct Worker {
    store: SharedStore,
    lane: Lane,
    owner: Owner,
    claims: Latencies,
    acks: Latencies,
}

impl Worker {
    fn new(queue: &Queue, number: usize) -> Result<Self> {
        let Queue { store, lane } = queue;
        let owner = Owner::new(format!("bench-{number}"))?;
        let (claims, acks) = (Latencies::default(), Latencies::default());
        Ok(Self { store: Arc::clone(store), lane: lane.clone(), owner, claims, acks })
    }

    async fn run(mut self, fewest: usize, until: Instant) -> Result<Self> {
        while self.claims.count() < fewest || (Instant::now() < until && self.claims.count() < MOST) {
            self.turn().await?;
        }
        Ok(self)
    }

    /// One row: claim and ack are timed each by itself; putting the row back keeps the queue as long as it was.
    async fn turn(&mut self) -> Result<()> {
        let started = Instant::now();
        let claim = Claim::lanes(&self.owner, [self.lane.clone()], 1, TTL);
        let claimed = self.store.claim(claim).await?;
        self.claims.add(started.elapsed());
        let Some(grant) = claimed.grants.first() else { bail!("a queue with rows gave none") };
        let started = Instant::now();
        self.store.apply(Batch::new().ack(&grant.lease())).await?;
        self.acks.add(started.elapsed());
        let again =
            NewWork::once(grant.row.key.clone(), self.lane.clone()).payload(grant.row.payload.clone());
        self.store.apply(Batch::new().enqueue(again)).await?;
        Ok(())
    }
}

fn job(number: u32, lane: &Lane) -> Result<NewWork> {
    let payload =
        Payload::from_json(format!(r#"{{"order":"o-{number:07}","carrier":"north","parcels":1}}"#))?;
    Ok(NewWork::once(Key::new("job", [number])?, lane.clone()).payload(payload))
}
