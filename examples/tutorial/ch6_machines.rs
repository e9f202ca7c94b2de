//! The shop, chapter 6: two processes drive the orders, on SQLite or PostgreSQL, and one of them is killed.
//!
//! `cargo run -p tidelock-examples --example ch6_machines` uses a temporary SQLite file. With `TIDELOCK_STORE` set to
//! `postgres://USER:PASSWORD@HOST/DATABASE?schema=NAME`, it uses that database.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tokio::process::{Child, Command};

const ORDERS: u32 = 60;

#[derive(Clone, Default)]
struct Stock {
    left: u32,
}

#[derive(Serialize, Deserialize)]
enum StockEvent {
    Received { count: u32 },
    Sold { order: String, count: u32 },
}

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        match event {
            StockEvent::Received { count } => self.left += count,
            StockEvent::Sold { count, .. } => self.left -= count,
        }
    }
}

impl Stock {
    fn sell(&self, order: &str, count: u32) -> Result<[StockEvent; 1], String> {
        if count > self.left {
            return Err(format!("only {} left", self.left));
        }
        Ok([StockEvent::Sold { order: order.to_owned(), count }])
    }
}

const SALES_OF: &str = "sales";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sales {
    sold: u32,
    orders: u32,
}

/// Counts the sales of each item. The counts and the progress of the reaction are one commit.
fn sales() -> Reaction {
    Reaction::of::<Stock>("sales").on(["Sold"]).each(|_, item, event| async move {
        let StockEvent::Sold { count, .. } = event else { return Ok(Batch::new()) };
        let deltas = [Delta::inc("/sold", i64::from(count)), Delta::inc("/orders", 1)];
        Ok(Batch::new().merge_or_create(
            &(SALES_OF, &item).into_key()?,
            Payload::of(&Sales::default())?,
            deltas,
        ))
    })
}

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

const PAID: Signal<u32> = Signal::new("paid");
const ORDER: Workflow<Order, String> = Workflow::new("order").accepts(PAID);

async fn order(cx: &Ctx, tide: &Tidelock, order: Order) -> Result<String, Failure> {
    let stock = tide.aggregate::<Stock>(&order.item);
    // Many orders decide on one stock. The slower commit is rejected and decides again, so the step gets more attempts.
    let busy = RetryPolicy { max_attempts: 20, ..RetryPolicy::default() };
    cx.retry(busy)
        .step_in("reserve", async |step| {
            match stock.decide(|stock| stock.sell(step.run(), order.count)).await {
                Err(ExecuteError::Refused { error, .. }) => Err(Failure::permanent(error)), // not retried
                decided => Ok((decided?, ())),
            }
        })
        .await?;
    let euros = cx.signal(PAID).await?;
    let parcel = cx.step("ship", async |step| ship(&step.key()).await).await?;
    Ok(format!("{euros} euros paid, {parcel}"))
}

/// The carrier, outside the store. It gets the same key for each attempt, so it can ignore a repetition.
async fn ship(key: &str) -> Result<String, Failure> {
    tokio::time::sleep(Duration::from_millis(30)).await;
    Ok(format!("shipped as {key}"))
}

// ANCHOR: worker
/// A worker process: it opens the store that `TIDELOCK_STORE` names, and drives orders until it is stopped.
async fn work() -> Result<(), tidelock::Error> {
    let tide = Tidelock::from_env().await?;
    let shop = tide.clone();
    let service = tide.service().lease_ttl(Duration::from_secs(1)).concurrency(4).reaction(sales());
    let service = service.workflow(ORDER, async move |cx: &Ctx, input: Order| order(cx, &shop, input).await);
    let service = service.start().await?;
    service.stopped().await; // Ctrl-C or SIGTERM
    service.shutdown().await;
    Ok(())
}

fn worker(url: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg("work").env("TIDELOCK_STORE", url).kill_on_drop(true).spawn()
}
// ANCHOR_END: worker

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("work") {
        return Ok(work().await?);
    }
    // ANCHOR: open
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db").display().to_string();
    let url = std::env::var("TIDELOCK_STORE").unwrap_or(file);
    let tide = Tidelock::open(&url).await?;
    // ANCHOR_END: open

    // ANCHOR: orders
    let item = format!("apples-{}", OpId::new()); // another item for each run of this program
    tide.aggregate::<Stock>(&item).append([StockEvent::Received { count: ORDERS }]).await?;
    let (mut first, mut second) = (worker(&url)?, worker(&url)?);
    let mut runs = Vec::new();
    for number in 0..ORDERS {
        let run =
            tide.start(ORDER, &Order { item: item.clone(), count: 1 }).id(format!("{item}-{number}")).await?;
        run.signal(PAID, &4).await?;
        runs.push(run);
        tokio::time::sleep(Duration::from_millis(20)).await;
        if number == ORDERS / 2 {
            first.kill().await?; // SIGKILL, in the middle of several orders
        }
    }
    // ANCHOR_END: orders

    // ANCHOR: proof
    for run in runs {
        let result = tokio::time::timeout(Duration::from_mins(2), run.result()).await??;
        assert_eq!(result, format!("4 euros paid, shipped as {}:ship", run.run()));
    }
    assert_eq!(tide.aggregate::<Stock>(&item).load().await?.state.left, 0);
    let sales = tide.state::<Sales>((SALES_OF, &item));
    while sales.get().await?.orders < ORDERS {
        tokio::time::sleep(Duration::from_millis(10)).await; // the reaction is still counting
    }
    assert_eq!(sales.get().await?, Sales { sold: ORDERS, orders: ORDERS });
    println!("{ORDERS} orders shipped and counted once; one of two workers was killed");
    // ANCHOR_END: proof
    second.kill().await?;
    Ok(())
}
