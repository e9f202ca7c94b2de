//! Whoever asks: places orders, each in one batch with the job of shipping it, under an id that makes asking twice
//! the same as asking once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tidelock::prelude::*;

use super::Tally;
use super::shop::{PLACED, Shop};
use crate::random::Random;

/// More jobs than this do not wait: the demo shows correctness, not queues.
const BACKLOG: u64 = 300;
/// How often the backlog is looked at, in orders.
const LOOK_EVERY: u64 = 50;
/// One order in so many is placed twice, as after a lost answer.
const TWICE_EVERY: u64 = 20;

/// Places orders until the time has come.
pub(crate) async fn place_orders(
    store: &dyn Store,
    shop: &Shop,
    tally: &Tally,
    until: Instant,
) -> Result<()> {
    let next = AtomicU64::new(1);
    let customer = || customer(store, shop, tally, &next, until);
    tokio::try_join!(customer(), customer(), customer()).map(|_| ())
}

async fn customer(
    store: &dyn Store,
    shop: &Shop,
    tally: &Tally,
    next: &AtomicU64,
    until: Instant,
) -> Result<()> {
    let mut random = Random::fresh();
    while Instant::now() < until {
        let number = next.fetch_add(1, Ordering::Relaxed);
        place(store, shop, tally, number).await?;
        while number.is_multiple_of(LOOK_EVERY)
            && Instant::now() < until
            && store.count_work(&shop.all_jobs()).await? > BACKLOG
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(random.between(Duration::from_millis(3), Duration::from_millis(9))).await;
    }
    Ok(())
}

async fn place(store: &dyn Store, shop: &Shop, tally: &Tally, number: u64) -> Result<()> {
    let event =
        NewEvent::new(PLACED.parse()?, Payload::from_json(format!(r#"{{"parcels":{}}}"#, number % 3 + 1))?);
    let job = NewWork::once(shop.job(number)?, shop.lane.clone()).only_new();
    let batch =
        Batch::new().op_id(OpId::new()).append(&shop.order(number)?, Expect::Absent, [event]).enqueue(job);
    let again = number.is_multiple_of(TWICE_EVERY).then(|| batch.clone());
    store.apply(batch).await?;
    tally.add_receipt(number);
    if let Some(again) = again {
        let receipt = store.apply(again).await?;
        ensure!(receipt.repeated, "order {number} was placed twice under one id and not recognised");
        tally.recognised.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
