//! Signals with a timeout: an expense that two people must approve within three days. Signals that arrive early are stored, and
//! a repeated signal counts once. The three days pass in a moment, because the service skips idle time.
//!
//! `cargo run -p tidelock-examples --example 09_signals`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

#[derive(Serialize, Deserialize)]
struct Vote {
    by: String,
    yes: bool,
}

const VOTE: Signal<Vote> = Signal::new("vote");
const EXPENSE: Workflow<u32, String> = Workflow::new("expense").accepts(VOTE);
const THREE_DAYS: Duration = Duration::from_hours(3 * 24);

async fn expense(cx: &Ctx, euros: u32) -> Result<String, Failure> {
    let mut approved = Vec::new();
    while approved.len() < 2 {
        match cx.signal_timeout(VOTE, THREE_DAYS).await? {
            Some(vote) if vote.yes => approved.push(vote.by),
            Some(vote) => return Ok(format!("refused by {}", vote.by)),
            None => return Ok(format!("timed out with {} approval", approved.len())),
        }
    }
    let receipt = cx.step("pay", async |step| Ok(format!("{euros} euros paid as {}", step.key()))).await?;
    Ok(format!("{receipt}, approved by {}", approved.join(" and ")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Arc::new(ManualClock::default());
    let (tide, begun) = (Tidelock::from(MemoryStore::with_clock(clock.clone())), clock.now());

    // No service runs yet. The store keeps the runs and their signals.
    let vote = async |run: &str, by: &str, yes: bool| {
        // The name of the voter is the id of the signal, so a repeated press of the button counts once.
        tide.runs().signal_once(run, VOTE, by, &Vote { by: by.to_owned(), yes }).await
    };
    let mut runs = Vec::new();
    for (id, euros) in [("good", 120), ("bad", 9_000), ("slow", 50)] {
        runs.push(tide.start(EXPENSE, &euros).id(id).await?);
    }
    for (run, by, yes) in [("good", "Ada", true), ("good", "Bo", true), ("bad", "Bo", false)] {
        vote(run, by, yes).await?;
    }
    for _ in 0..3 {
        vote("slow", "Ada", true).await?;
    }

    let service = tide.service().workflow(EXPENSE, expense).skip_time(Arc::clone(&clock)).start().await?;
    let expected =
        ["120 euros paid as good:pay, approved by Ada and Bo", "refused by Bo", "timed out with 1 approval"];
    for (run, expected) in runs.into_iter().zip(expected) {
        let result = run.result().await?;
        println!("{}: {result}", run.run());
        assert_eq!(result, expected);
    }
    println!("by the clock of the store that took {:?}", clock.now().since(begun));
    println!("too late: {}", vote("slow", "Bo", true).await.err().ok_or("an ended run accepted a signal")?);
    service.shutdown().await;
    Ok(())
}
