//! An event-sourced inventory. Customers place orders, and a reaction reserves stock for them. No item is sold twice, although two workers
//! reserve concurrently.
//!
//! `cargo run -p tidelock-examples --example 06_events`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidelock::events::{Context, ExecuteError};
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, ReactionEngine, Reactions};
use tidelock::worker::WorkerHandle;

#[derive(Clone, Debug, Default)]
struct Stock {
    left: u32,
    reserved: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum StockEvent {
    Received { count: u32 },
    Reserved { order: String, count: u32 },
}

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        match event {
            StockEvent::Received { count } => self.left += count,
            StockEvent::Reserved { order, count } => {
                self.left -= count;
                self.reserved.push(order.clone());
            }
        }
    }
}

impl Stock {
    fn reserve(&self, order: &str, count: u32) -> Result<Vec<StockEvent>, String> {
        if count > self.left {
            return Err(format!("{count} wanted, {} left", self.left));
        }
        Ok(vec![StockEvent::Reserved { order: order.to_owned(), count }])
    }
}

#[derive(Clone, Debug, Default)]
struct Order {
    placed: bool,
    rejected: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum OrderEvent {
    Placed { item: String, count: u32 },
    Rejected { reason: String },
}

impl Aggregate for Order {
    const KIND: &'static str = "order";
    type Event = OrderEvent;

    fn apply(&mut self, event: &OrderEvent) {
        match event {
            OrderEvent::Placed { .. } => self.placed = true,
            OrderEvent::Rejected { .. } => self.rejected = true,
        }
    }
}

/// Reserves stock for an order. One commit contains the decision on the stock, the event on the order and the progress of the reaction.
/// If another worker reserved first, the store rejects the commit and the handler decides again.
async fn reserve(events: Events, event: tidelock::store::Event) -> Result<Batch, Failure> {
    let OrderEvent::Placed { item, count } = tidelock::events::decode(&event.event_type, &event.payload)?
    else {
        return Ok(Batch::new());
    };
    let id =
        event.stream.args().into_iter().next().ok_or_else(|| Failure::permanent("an order has an id"))?;
    let order = event.stream.to_string();
    let events = events.within(Context::caused_by(&event));
    match events.decide(item.as_str(), |stock: &Stock| stock.reserve(&order, count)).await {
        Ok(batch) => Ok(batch),
        Err(ExecuteError::Refused { error, .. }) => {
            let reject = |_: &Order| Ok::<_, String>([OrderEvent::Rejected { reason: error }]);
            Ok(events.decide(id, reject).await?)
        }
        Err(error) => Err(error.into()),
    }
}

async fn worker(store: &SharedStore) -> Result<WorkerHandle<ReactionEngine>, Box<dyn std::error::Error>> {
    let events = Events::new(Arc::clone(store));
    let reaction = Reaction::new("reserve-stock")
        .on(["Placed"])
        .streams(KeyPrefix::kind("order"))
        .each(move |_, event| reserve(events.clone(), event));
    Ok(Reactions::new(Arc::clone(store)).with(reaction).start().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let store: SharedStore =
        Arc::new(SqliteStore::open(directory.path().join("shop.db"), SqliteOptions::default()).await?);
    let events = Events::new(Arc::clone(&store));
    let (first, second) = (worker(&store).await?, worker(&store).await?);

    events.append::<Stock>("apples", [StockEvent::Received { count: 10 }]).await?;
    let orders = (0..30).map(|i| {
        let events = events.clone();
        tokio::spawn(async move {
            let placed = OrderEvent::Placed { item: "apples".to_owned(), count: 1 };
            events.append::<Order>(format!("o-{i}").as_str(), [placed]).await
        })
    });
    for order in orders.collect::<Vec<_>>() {
        order.await??;
    }
    first.settle().await?;

    let stock = events.load::<Stock>("apples").await?.state;
    let mut rejected = 0;
    for i in 0..30 {
        rejected += u32::from(events.load::<Order>(format!("o-{i}").as_str()).await?.state.rejected);
    }
    println!(
        "30 orders for 10 apples: {} reserved, {rejected} rejected, {} left",
        stock.reserved.len(),
        stock.left
    );
    assert_eq!((stock.reserved.len(), rejected, stock.left), (10, 20, 0));
    first.shutdown().await;
    second.shutdown().await;
    Ok(())
}
