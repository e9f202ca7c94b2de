//! One worker process: claims shipping jobs under a short lease, and for each does everything in one commit.
//!
//! It is killed in the middle of anything. What it had claimed and not committed comes back when the lease ends.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::Watch;
use tokio::task::JoinSet;

use super::shop::{SHIPPED, Shop};
use crate::address::Address;
use crate::args::DemoWorker;
use crate::exit::Exit;
use crate::lifeline::Lifeline;
use crate::output;
use crate::random::Random;

/// How long a claim lasts. Short, so that a killed worker's jobs are soon somebody else's.
const LEASE: Duration = Duration::from_secs(1);
/// A worker that hangs does so for longer than its lease.
const HANG: Duration = Duration::from_millis(1_400);
/// Jobs that one worker has in hand.
const SLOTS: usize = 8;
/// One job in so many fails at its first attempt, on purpose.
const FAILS_EVERY: u64 = 11;
/// One job in so many meets a worker that hangs at its first attempt, on purpose.
const HANGS_EVERY: u64 = 53;
/// An idle worker looks this often, whatever it hears.
const LOOK: Duration = Duration::from_millis(200);

/// Works until the parent is gone or closes the lifeline.
pub(crate) async fn work(options: DemoWorker) -> Result<Exit> {
    let mut parent = Lifeline::listen();
    let store = Address::handed_over(&options.store)?.open_existing().await?.shared();
    let worker = Worker { store, shop: Shop::new(&options.run)?, owner: Owner::new(options.name)? };
    tokio::select! {
        ended = worker.run() => ended?,
        () = parent.cut() => {}
    }
    Ok(Exit::Well)
}

/// A worker; its copies are the same worker.
#[derive(Clone, Debug)]
struct Worker {
    store: SharedStore,
    shop: Shop,
    owner: Owner,
}

/// What a shipping says about the way it came about.
#[derive(Debug, Serialize)]
struct Shipped<'a> {
    worker: &'a Owner,
    fence: Fence,
    attempts: u32,
    takeovers: u32,
}

impl Worker {
    async fn run(&self) -> Result<()> {
        let mut hints = self.store.watch();
        let mut jobs = JoinSet::new();
        loop {
            while jobs.try_join_next().is_some() {}
            if jobs.len() >= SLOTS {
                jobs.join_next().await;
                continue;
            }
            let free = SLOTS.saturating_sub(jobs.len());
            let claim = Claim::lanes(&self.owner, [self.shop.lane.clone()], free, LEASE);
            match self.store.claim(claim).await {
                Ok(claimed) if claimed.grants.is_empty() => idle(&mut hints).await,
                Ok(claimed) => {
                    for grant in claimed.grants {
                        let worker = self.clone();
                        jobs.spawn(async move { worker.handle(grant).await });
                    }
                }
                Err(error) => {
                    tell(&error);
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// One grant, from the claim to the commit.
    async fn handle(&self, grant: Grant) {
        let number = Shop::number(&grant.row.key).unwrap_or_default();
        let first = grant.row.attempts == 1;
        if first && number.is_multiple_of(HANGS_EVERY) {
            tokio::time::sleep(HANG).await;
        } else {
            let packing = Random::fresh().between(Duration::from_millis(1), Duration::from_millis(12));
            tokio::time::sleep(packing).await;
        }
        let fails = first && number.is_multiple_of(FAILS_EVERY) && !number.is_multiple_of(HANGS_EVERY);
        let batch = if fails { self.failing(&grant) } else { self.shipping(&grant, number) };
        match batch {
            Ok(batch) => self.commit(batch).await,
            Err(error) => eprintln!("warning: a batch cannot be made: {error:#}"),
        }
    }

    /// The event, the counter and the acknowledgement: all three or none. The append accepts any version, so that
    /// nothing but the fence keeps a second shipping out.
    fn shipping(&self, grant: &Grant, number: u64) -> Result<Batch> {
        let (attempts, takeovers) = (grant.row.attempts, grant.row.takeovers);
        let shipped = Shipped { worker: &self.owner, fence: grant.fence, attempts, takeovers };
        let event = NewEvent::new(SHIPPED.parse()?, Payload::of(&shipped)?);
        let batch = Batch::new().append(&self.shop.order(number)?, Expect::Exists, [event]);
        Ok(self.shop.count(batch, "shipped")?.ack(&grant.lease()))
    }

    fn failing(&self, grant: &Grant) -> Result<Batch> {
        let wait = Due::After(Duration::from_millis(30));
        let batch = Batch::new().fail(&grant.lease(), "the carrier was closed", wait);
        self.shop.count(batch, "retries")
    }

    async fn commit(&self, batch: Batch) {
        let Err(error) = self.store.apply(batch).await else { return };
        if !matches!(error.refusal(), Some(Refusal::Fenced { .. })) {
            return tell(&error);
        }
        let counted = match self.shop.count(Batch::new(), "fenced") {
            Ok(batch) => self.store.apply(batch).await,
            Err(error) => return eprintln!("warning: a batch cannot be made: {error:#}"),
        };
        if let Err(error) = counted {
            tell(&error);
        }
    }
}

/// Waits until something may have changed, and never for long.
async fn idle(hints: &mut Watch) {
    // Whether it was a hint or the clock makes no difference: the next claim finds out.
    drop(tokio::time::timeout(LOOK, hints.changed()).await);
}

/// Tells the parent about an error that no worker should see: one line, the code first.
fn tell(error: &dyn Explain) {
    // A parent that does not listen any more is gone, and this worker will be, too.
    drop(output::say(format_args!("{} {error}", error.code())));
}
