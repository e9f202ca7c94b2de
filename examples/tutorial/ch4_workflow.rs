//! The shop, chapter 4: an order is a durable workflow.
//!
//! `cargo run -p tidelock-examples --example ch4_workflow`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

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

// ANCHOR: workflow
#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

const PAID: Signal<u32> = Signal::new("paid");
const ORDER: Workflow<Order, String> = Workflow::new("order").accepts(PAID);

async fn order(cx: &Ctx, tide: &Tidelock, order: Order) -> Result<String, Failure> {
    let stock = tide.aggregate::<Stock>(&order.item);
    // The event and the record of the step are one commit.
    cx.step_in("reserve", async |step| {
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
    println!("shipping {key}");
    Ok(format!("shipped as {key}"))
}
// ANCHOR_END: workflow

// ANCHOR: service
async fn start(tide: &Tidelock) -> Result<ServiceHandle, tidelock::Error> {
    let shop = tide.clone();
    let service = tide.service().lease_ttl(Duration::from_secs(1)).reaction(sales());
    service.workflow(ORDER, async move |cx: &Ctx, input: Order| order(cx, &shop, input).await).start().await
}
// ANCHOR_END: service

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let tide = Tidelock::open(&directory.path().join("shop.db").display().to_string()).await?;
    tide.aggregate::<Stock>("apples").append([StockEvent::Received { count: 10 }]).await?;

    // ANCHOR: crash
    let service = start(&tide).await?;
    let run = tide.start(ORDER, &Order { item: "apples".to_owned(), count: 3 }).id("o-1").await?;
    service.idle().await?; // the apples are reserved, and the run waits for the payment
    drop(service); // like a crash: everything stops at once

    run.signal(PAID, &12).await?; // no service runs, and the store keeps the signal
    let service = start(&tide).await?;
    assert_eq!(run.result().await?, "12 euros paid, shipped as o-1:ship");
    // ANCHOR_END: crash

    // ANCHOR: refused
    let large = tide.start(ORDER, &Order { item: "apples".to_owned(), count: 8 }).id("o-2").await?;
    println!("{}", large.result().await.err().ok_or("8 of 7 apples are sold")?);
    // ANCHOR_END: refused
    service.idle().await?;
    assert_eq!(tide.state::<Sales>((SALES_OF, "apples")).get().await?, Sales { sold: 3, orders: 1 });
    service.shutdown().await;
    Ok(())
}
