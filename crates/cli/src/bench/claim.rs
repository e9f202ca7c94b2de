//! The claim workload: a long queue of due work, of which one row after the other is taken, done and put back.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use tidelock::prelude::*;

use super::measure::{Latencies, median};
use super::progress::Progress;

/// Rows that are enqueued in one batch.
const FILL_BATCH: u32 = 5_000;
/// Claims in one slice, at most and at least.
const MOST: usize = 2_000;
const FEWEST: usize = 50;
/// Claims that are not counted, after the file was opened anew.
const WARM_UP: usize = 50;
const TTL: Duration = Duration::from_secs(60);

/// How long taking and acknowledging took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Claims {
    /// How many claims were measured.
    pub(crate) count: f64,
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
            claim_p50_us: median(of, |c| c.claim_p50_us),
            claim_p99_us: median(of, |c| c.claim_p99_us),
            ack_p50_us: median(of, |c| c.ack_p50_us),
            ack_p99_us: median(of, |c| c.ack_p99_us),
        }
    }
}

/// A store with a queue of a given length.
#[derive(Debug)]
pub(crate) struct Queue {
    store: SqliteStore,
    lane: Lane,
    owner: Owner,
}

impl Queue {
    /// Fills a new file, closes it and opens it again, so that all that comes after starts from the file.
    pub(crate) async fn new(path: &Path, rows: u32, progress: &Progress) -> Result<Self> {
        let lane = Lane::new("bench")?;
        let filled = SqliteStore::open(path, SqliteOptions::default()).await?;
        for first in (0..rows).step_by(usize::try_from(FILL_BATCH)?) {
            let end = rows.min(first.saturating_add(FILL_BATCH));
            let mut batch = Batch::new();
            for number in first..end {
                batch = batch.enqueue(job(number, &lane)?);
            }
            filled.apply(batch).await?;
            progress.done(u64::from(end - first));
        }
        filled.close().await;
        let store = SqliteStore::open(path, SqliteOptions::default()).await?;
        let queue = Self { store, lane, owner: Owner::new("bench")? };
        for _ in 0..WARM_UP {
            queue.turn(&mut Latencies::default(), &mut Latencies::default()).await?;
        }
        Ok(queue)
    }

    /// Takes, acknowledges and puts back for a while.
    pub(crate) async fn slice(&self, length: Duration) -> Result<Claims> {
        let started = Instant::now();
        let (mut claims, mut acks) = (Latencies::default(), Latencies::default());
        while claims.count() < FEWEST || (started.elapsed() < length && claims.count() < MOST) {
            self.turn(&mut claims, &mut acks).await?;
        }
        Ok(Claims {
            count: claims.count() as f64,
            claim_p50_us: claims.percentile(0.5),
            claim_p99_us: claims.percentile(0.99),
            ack_p50_us: acks.percentile(0.5),
            ack_p99_us: acks.percentile(0.99),
        })
    }

    /// One row: claim and ack are timed each by itself; putting the row back keeps the queue as long as it was.
    async fn turn(&self, claims: &mut Latencies, acks: &mut Latencies) -> Result<()> {
        let started = Instant::now();
        let claim = Claim::lanes(&self.owner, [self.lane.clone()], 1, TTL);
        let claimed = self.store.claim(claim).await?;
        claims.add(started.elapsed());
        let Some(grant) = claimed.grants.first() else { bail!("a queue with rows gave none") };
        let started = Instant::now();
        self.store.apply(Batch::new().ack(&grant.lease())).await?;
        acks.add(started.elapsed());
        let again =
            NewWork::once(grant.row.key.clone(), self.lane.clone()).payload(grant.row.payload.clone());
        self.store.apply(Batch::new().enqueue(again)).await?;
        Ok(())
    }

    /// Ends.
    pub(crate) async fn close(self) {
        self.store.close().await;
    }
}

fn job(number: u32, lane: &Lane) -> Result<NewWork> {
    let payload =
        Payload::from_json(format!(r#"{{"order":"o-{number:07}","carrier":"north","parcels":1}}"#))?;
    Ok(NewWork::once(Key::new("job", [number])?, lane.clone()).payload(payload))
}
