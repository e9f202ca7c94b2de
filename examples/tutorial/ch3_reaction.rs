//! The shop, chapter 3: a reaction counts the sales.
//!
//! `cargo run -p tidelock-examples --example ch3_reaction`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

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

// ANCHOR: sales
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
// ANCHOR_END: sales

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let tide = Tidelock::open(&directory.path().join("shop.db").display().to_string()).await?;

    // ANCHOR: before
    let apples = tide.aggregate::<Stock>("apples");
    apples.append([StockEvent::Received { count: 10 }]).await?;
    apples.execute(|stock| stock.sell("o-1", 3)).await?; // before the reaction exists
    // ANCHOR_END: before

    // ANCHOR: service
    let service = tide.service().reaction(sales()).start().await?;
    apples.execute(|stock| stock.sell("o-2", 2)).await?;
    service.idle().await?; // for tests: waits until every event is handled
    let totals = tide.state::<Sales>((SALES_OF, "apples"));
    assert_eq!(totals.get().await?, Sales { sold: 5, orders: 2 });
    service.shutdown().await;
    // ANCHOR_END: service

    // ANCHOR: again
    apples.execute(|stock| stock.sell("o-3", 1)).await?; // nothing runs
    let service = tide.service().reaction(sales()).start().await?;
    service.idle().await?;
    assert_eq!(totals.get().await?, Sales { sold: 6, orders: 3 }); // o-1 and o-2 are not counted again
    // ANCHOR_END: again
    println!("{:?}", totals.get().await?);
    service.shutdown().await;
    Ok(())
}
