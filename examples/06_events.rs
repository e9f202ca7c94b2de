//! An event-sourced inventory: customers place orders, and a typed reaction reserves stock for them. Two services decide
//! concurrently, as two processes would, and no item is sold twice.
//!
//! `cargo run -p tidelock-examples --example 06_events`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

#[derive(Clone, Debug, Default)]
struct Stock {
    left: u32,
}

#[derive(Serialize, Deserialize)]
enum StockEvent {
    Received(u32),
    Reserved(u32),
}

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;
    fn apply(&mut self, event: &StockEvent) {
        match event {
            StockEvent::Received(count) => self.left += count,
            StockEvent::Reserved(count) => self.left -= count,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Order {
    rejected: bool,
}

#[derive(Serialize, Deserialize)]
enum OrderEvent {
    Placed { item: String, count: u32 },
    Rejected { reason: String },
}

impl Aggregate for Order {
    const KIND: &'static str = "order";
    type Event = OrderEvent;
    fn apply(&mut self, event: &OrderEvent) {
        self.rejected |= matches!(event, OrderEvent::Rejected { .. });
    }
}

/// Reserves stock for each order. The decision on the stock and the progress of the reaction are one commit. If another
/// service reserved first, the store rejects the commit, and the handler decides again on the new stock.
fn reserve(tide: &Tidelock) -> Reaction {
    let events = tide.events().clone();
    Reaction::of::<Order>("reserve-stock").on(["Placed"]).each(move |ctx, id, event| {
        let events = events.within(ctx.context());
        async move {
            let OrderEvent::Placed { item, count } = event else { return Ok(Batch::new()) };
            let decide = |stock: &Stock| match stock.left.checked_sub(count) {
                Some(_) => Ok([StockEvent::Reserved(count)]),
                None => Err(format!("only {} left", stock.left)),
            };
            match events.decide(item.as_str(), decide).await {
                Err(ExecuteError::Refused { error, .. }) => {
                    let reject = |_: &Order| Ok::<_, String>([OrderEvent::Rejected { reason: error }]);
                    Ok(events.decide(id, reject).await?)
                }
                decided => Ok(decided?),
            }
        }
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let tide = Tidelock::open(&directory.path().join("shop.db").display().to_string()).await?;
    let first = tide.service().reaction(reserve(&tide)).start().await?;
    let second = tide.service().reaction(reserve(&tide)).start().await?;

    tide.aggregate::<Stock>("apples").append([StockEvent::Received(10)]).await?;
    for number in 0..30 {
        let placed = OrderEvent::Placed { item: "apples".to_owned(), count: 1 };
        tide.aggregate::<Order>(format!("o-{number}")).append([placed]).await?;
    }
    first.idle().await?; // for tests: waits until every event is handled, in any process

    let mut rejected = 0;
    for number in 0..30 {
        rejected += u32::from(tide.aggregate::<Order>(format!("o-{number}")).load().await?.state.rejected);
    }
    let left = tide.aggregate::<Stock>("apples").load().await?.state.left;
    println!("30 orders for 10 apples: {} reserved, {rejected} rejected, {left} left", 30 - rejected);
    assert_eq!((rejected, left), (20, 0));
    tokio::join!(first.shutdown(), second.shutdown());
    Ok(())
}
