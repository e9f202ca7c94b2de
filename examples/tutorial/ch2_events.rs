//! The shop, chapter 2: the stock is an aggregate with events.
//!
//! `cargo run -p tidelock-examples --example ch2_events`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

// ANCHOR: stock
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
// ANCHOR_END: stock

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let tide = Tidelock::open(&directory.path().join("shop.db").display().to_string()).await?;

    // ANCHOR: commands
    let apples = tide.aggregate::<Stock>("apples");
    apples.append([StockEvent::Received { count: 10 }]).await?;
    let mut customers = tokio::task::JoinSet::new();
    for number in 0..30 {
        let apples = apples.clone();
        customers.spawn(async move {
            apples.execute(|stock| stock.sell(&format!("o-{number}"), 1)).await.is_ok()
        });
    }
    let sold = customers.join_all().await.into_iter().filter(|sold| *sold).count();
    assert_eq!((sold, apples.load().await?.state.left), (10, 0));
    // ANCHOR_END: commands

    // ANCHOR: log
    let stream = ("stock", "apples").into_key()?;
    for event in tide.store().read_stream(StreamQuery::forward(&stream, 100)).await?.events {
        println!("{} {} {}", event.version, event.event_type, event.payload);
    }
    // ANCHOR_END: log
    Ok(())
}
