//! The shop, chapter 5: a report every morning.
//!
//! `cargo run -p tidelock-examples --example ch5_schedule`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::Arc;
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

// ANCHOR: report
/// Writes the sales so far into a document for each day. The document and the record of the firing are one commit.
fn report(tide: &Tidelock) -> Schedule {
    let sales = tide.state::<Sales>((SALES_OF, "apples"));
    Schedule::new("report").cron("0 6 * * *").zone("Europe/Berlin").run(move |tick| {
        let sales = sales.clone();
        async move {
            let report = ("reports", tick.key()).into_key()?;
            Ok(Batch::new().put(&report, Expect::Absent, Payload::of(&sales.get().await?)?))
        }
    })
}
// ANCHOR_END: report

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // ANCHOR: clock
    let clock = Arc::new(ManualClock::new("2026-03-27T12:00:00Z".parse()?));
    let tide = Tidelock::from(MemoryStore::with_clock(clock.clone()));
    let service = tide.service().reaction(sales()).schedule(report(&tide));
    let service = service.poll_interval(Duration::from_millis(5)).start().await?;
    // ANCHOR_END: clock

    // ANCHOR: days
    let apples = tide.aggregate::<Stock>("apples");
    apples.append([StockEvent::Received { count: 100 }]).await?;
    for day in 1..=3 {
        apples.execute(|stock| stock.sell(&format!("o-{day}"), day)).await?;
        service.idle().await?; // the sale is counted
        clock.advance(Duration::from_hours(24));
        service.idle().await?; // the report is written
    }
    // In the night to the 29th, the clocks in Berlin go forward. 6 o'clock is 5:00 UTC before, and 4:00 UTC after.
    for (time, sold) in
        [("2026-03-28T05:00:00Z", 1), ("2026-03-29T04:00:00Z", 3), ("2026-03-30T04:00:00Z", 6)]
    {
        let report = tide.state::<Sales>(("reports", format!("report:{time}"))).get().await?; // the key of the tick
        println!("{time}: {report:?}");
        assert_eq!(report.sold, sold);
    }
    // ANCHOR_END: days

    // ANCHOR: operate
    tide.schedules().pause("report", "the printer is broken").await?;
    for time in tide.schedules().upcoming("report", 2).await? {
        println!("after the pause: {time}");
    }
    // ANCHOR_END: operate
    service.shutdown().await;
    Ok(())
}
