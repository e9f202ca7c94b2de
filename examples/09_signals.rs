//! Signals with a timeout: an expense that two people must approve within three days. Signals that arrive before the run waits for
//! them are stored, and a repeated signal counts once. The three days pass in a moment, because the worker skips time.
//!
//! `cargo run -p tidelock-examples --example 09_signals`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock::workflow::{Client, Ctx, Failure, Signal, Worker, Workflow};

#[derive(Serialize, Deserialize)]
struct Word {
    by: String,
    yes: bool,
}

const WORD: Signal<Word> = Signal::new("word");
const EXPENSE: Workflow<u32, String> = Workflow::new("expense").hears(WORD);
const THREE_DAYS: Duration = Duration::from_hours(3 * 24);

async fn expense(cx: &Ctx, euros: u32) -> Result<String, Failure> {
    let mut approved = Vec::new();
    while approved.len() < 2 {
        match cx.signal_within(WORD, THREE_DAYS).await? {
            Some(word) if word.yes => approved.push(word.by),
            Some(word) => return Ok(format!("refused by {}", word.by)),
            None => return Ok(format!("given up: only {} approved it in time", approved.len())),
        }
    }
    let receipt = cx.step("pay", async |step| Ok(format!("{euros} euros paid as {}", step.key()))).await?;
    Ok(format!("{receipt}, approved by {}", approved.join(" and ")))
}

/// Sends a decision. The name of the sender is the id of the signal, so repeated presses of the button count once.
async fn say(client: &Client, run: &str, by: &str, yes: bool) -> Result<(), Box<dyn std::error::Error>> {
    Ok(client.signal_once(run, WORD, by, &Word { by: by.to_owned(), yes }).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Arc::new(ManualClock::default());
    let store: SharedStore = Arc::new(MemoryStore::with_clock(clock.clone()));
    let client = Client::new(Arc::clone(&store));

    // No worker runs yet. The store keeps these runs and their signals.
    let begun = clock.now();
    let good = client.start(EXPENSE, &120).id("good").await?;
    let bad = client.start(EXPENSE, &9_000).id("bad").await?;
    let slow = client.start(EXPENSE, &50).id("slow").await?;
    for (run, by, yes) in
        [("good", "Ada", true), ("good", "Ada", true), ("good", "Bo", true), ("bad", "Bo", false)]
    {
        say(&client, run, by, yes).await?;
    }
    // Ada presses the button three times, which counts as one approval.
    for _ in 0..3 {
        say(&client, "slow", "Ada", true).await?;
    }

    let worker = Worker::new(Arc::clone(&store)).skip_time(Arc::clone(&clock)).register(EXPENSE, expense);
    let driving = worker.start().await?;
    for (run, expected) in [
        (good, "120 euros paid as good:pay, approved by Ada and Bo"),
        (bad, "refused by Bo"),
        (slow, "given up: only 1 approved it in time"),
    ] {
        let result = run.result().await?;
        println!("{}: {result}", run.run());
        assert_eq!(result, expected);
    }
    println!("by the store's clock that took {:?}", clock.now().since(begun));

    match say(&client, "slow", "Bo", true).await {
        Err(late) => println!("too late: {late}"),
        Ok(()) => return Err("a run that is over heard a signal".into()),
    }
    driving.shutdown().await;
    Ok(())
}
