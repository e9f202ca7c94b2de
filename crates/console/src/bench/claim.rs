//! The claim workload: workers claim a row of a long queue, acknowledge it and enqueue it again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use tidelock::prelude::*;
use tokio::task::JoinSet;

use super::statistics::{Latencies, median, per_second};
use crate::progress::Progress;

/// Rows that are enqueued in one batch.
const FILL_BATCH: u32 = 5_000;
/// The bounds of claims in one slice: the most of one worker, and the fewest of all workers.
const MOST: usize = 2_000;
const FEWEST: usize = 50;
/// Uncounted claims after the store was opened.
const WARM_UP: usize = 50;
const TTL: Duration = Duration::from_secs(60);
/// The queue of all rows.
const QUEUE: &str = "bench";

/// The rate and the latencies of claims and acknowledgements.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Claims {
    /// The number of claims.
    pub count: f64,
    /// Rows per second that were claimed, acknowledged and enqueued again.
    pub turns_per_s: f64,
    /// The median latency of a claim.
    pub claim_p50_us: f64,
    /// Its 99th percentile.
    pub claim_p99_us: f64,
    /// The median latency of an acknowledgement.
    pub ack_p50_us: f64,
    /// Its 99th percentile.
    pub ack_p99_us: f64,
}

impl Claims {
    /// Returns the median of each number.
    #[must_use]
    pub fn median(of: &[Self]) -> Self {
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

/// Enqueues `rows` rows.
///
/// # Errors
/// When the store fails.
pub async fn fill(store: &dyn Store, rows: u32, progress: &Progress) -> Result<()> {
    let queue = QueueName::new(QUEUE)?;
    for first in (0..rows).step_by(usize::try_from(FILL_BATCH)?) {
        let end = rows.min(first.saturating_add(FILL_BATCH));
        let mut batch = Batch::new();
        for number in first..end {
            batch = batch.enqueue(job(number, &queue)?);
        }
        store.apply(batch).await?;
        progress.done(u64::from(end - first));
    }
    Ok(())
}

/// A store with a filled queue.
#[derive(Clone, Debug)]
pub struct Queue {
    store: SharedStore,
    queue: QueueName,
}

impl Queue {
    /// Warms up the queue of a store that [`fill`] has filled.
    ///
    /// # Errors
    /// When the store fails or the queue is empty.
    pub async fn new(store: SharedStore) -> Result<Self> {
        let queue = Self { store, queue: QueueName::new(QUEUE)? };
        let mut worker = Worker::new(&queue, 0)?;
        for _ in 0..WARM_UP {
            worker.turn().await?;
        }
        Ok(queue)
    }

    /// Runs `workers` workers for a while.
    ///
    /// # Errors
    /// When the store fails or the queue is empty.
    pub async fn slice(&self, workers: usize, length: Duration) -> Result<Claims> {
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
    queue: QueueName,
    owner: Owner,
    claims: Latencies,
    acks: Latencies,
}

impl Worker {
    fn new(queue: &Queue, number: usize) -> Result<Self> {
        let Queue { store, queue } = queue;
        let owner = Owner::new(format!("bench-{number}"))?;
        let (claims, acks) = (Latencies::default(), Latencies::default());
        Ok(Self { store: Arc::clone(store), queue: queue.clone(), owner, claims, acks })
    }

    async fn run(mut self, fewest: usize, until: Instant) -> Result<Self> {
        while self.claims.count() < fewest || (Instant::now() < until && self.claims.count() < MOST) {
            self.turn().await?;
        }
        Ok(self)
    }

    /// Claims, acknowledges and enqueues one row. Claim and acknowledgement are timed; enqueueing keeps the queue's length.
    async fn turn(&mut self) -> Result<()> {
        let started = Instant::now();
        let claim = Claim::queues(&self.owner, [self.queue.clone()], 1, TTL);
        let claimed = self.store.claim(claim).await?;
        self.claims.add(started.elapsed());
        let Some(grant) = claimed.grants.first() else {
            bail!("cannot measure claims: the store granted no row of a filled queue")
        };
        let started = Instant::now();
        self.store.apply(Batch::new().ack(&grant.lease())).await?;
        self.acks.add(started.elapsed());
        let again =
            NewWork::once(grant.row.key.clone(), self.queue.clone()).payload(grant.row.payload.clone());
        self.store.apply(Batch::new().enqueue(again)).await?;
        Ok(())
    }
}

fn job(number: u32, queue: &QueueName) -> Result<NewWork> {
    let payload =
        Payload::from_json(format!(r#"{{"order":"o-{number:07}","carrier":"north","parcels":1}}"#))?;
    Ok(NewWork::once(Key::new("job", [number])?, queue.clone()).payload(payload))
}
