//! Cron schedules: a nightly report in Berlin across the change to summer time, a heartbeat that is retried after a failure, and a bill
//! that a workflow writes. The days pass in a moment, because the example advances a manual clock.
//!
//! `cargo run -p tidelock-examples --example 11_schedule`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidelock::prelude::*;
use tidelock::schedule::{Schedule, Scheduler, Schedules};
use tidelock::workflow::{Client, Ctx, Failure, Worker, Workflow};

const BILL: Workflow<String, String> = Workflow::new("bill");

async fn bill(cx: &Ctx, day: String) -> Result<String, Failure> {
    Ok(cx.step("write", async |step| Ok(format!("the bill of {day}, sent as {}", step.key()))).await?)
}

/// Declares the report task. Each report is a line in a document, in the same commit as the record that the task has run.
fn report() -> Schedule {
    Schedule::new("report").cron("30 2 * * *").zone("Europe/Berlin").run(async |fire| {
        let empty = Payload::from_json(r#"{"lines": []}"#)?;
        let line = [Delta::push("/lines", fire.key())];
        Ok(Batch::new().merge_or_create(&Key::single("reports")?, empty, line))
    })
}

/// Declares the heartbeat task, whose first attempt fails.
fn heartbeat() -> Schedule {
    let beats = Arc::new(AtomicU32::new(0));
    Schedule::new("heartbeat").every(Duration::from_hours(24)).retry(Duration::from_mins(10)).run(
        move |fire| {
            let first = beats.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                println!("heartbeat of {}, attempt {}", fire.time(), fire.attempt());
                if first { Err(Failure::retry("nobody answered")) } else { Ok(()) }
            }
        },
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Arc::new(ManualClock::new("2026-03-27T12:00:00Z".parse()?));
    let store: SharedStore = Arc::new(MemoryStore::with_clock(clock.clone()));
    let driving = Worker::new(Arc::clone(&store)).register(BILL, bill).start().await?;

    let bills = Schedule::new("bills").cron("0 6 * * MON").start(BILL, |fire| fire.time().to_string());
    let scheduler = Scheduler::new(Arc::clone(&store)).with(report()).with(heartbeat()).with(bills);
    let running = scheduler.poll_interval(Duration::from_millis(5)).start().await?;
    for _ in 0..4 * 24 * 2 {
        clock.advance(Duration::from_mins(30));
        running.settle().await?; // for tests: returns when nothing is due and nothing runs
    }

    let reports = store.document(&Key::single("reports")?).await?.ok_or("no report")?;
    println!("{}", reports.value.as_str());
    // On the 29th, 02:30 does not exist in Berlin. The report runs at the end of the skipped hour.
    for key in ["report:2026-03-28T01:30:00Z", "report:2026-03-29T01:00:00Z", "report:2026-03-30T00:30:00Z"] {
        assert!(reports.value.as_str().contains(key), "{key} is missing");
    }

    let bill = Client::new(Arc::clone(&store)).handle(BILL, "bills:2026-03-30T06:00:00Z").result().await?;
    println!("{bill}");

    let schedules = Schedules::new(store);
    schedules.pause("report", "the printer is broken").await?;
    for task in schedules.list().await? {
        let record = &task.record;
        println!("{} {}: {} runs, {:?}", record.name, record.cron_expression, task.runs, task.doing);
    }
    for entry in schedules.history("heartbeat", 10).await? {
        println!("heartbeat of {} attempt {}: {:?}", entry.fire, entry.attempt, entry.outcome);
    }
    running.shutdown().await;
    driving.shutdown().await;
    Ok(())
}
