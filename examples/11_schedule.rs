//! Cron schedules: a nightly report in Berlin across the change to summer time, a heartbeat that is retried after a failure, and
//! a bill that a workflow writes. The days pass in a moment, because the example advances a manual clock.
//!
//! `cargo run -p tidelock-examples --example 11_schedule`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::Arc;
use std::time::Duration;

use tidelock::prelude::*;

const BILL: Workflow<String, String> = Workflow::new("bill");

async fn bill(cx: &Ctx, day: String) -> Result<String, Failure> {
    Ok(cx.step("write", async |step| Ok(format!("the bill of {day}, as {}", step.key()))).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Arc::new(ManualClock::new("2026-03-27T12:00:00Z".parse()?));
    let tide = Tidelock::from(MemoryStore::with_clock(clock.clone()));

    // The returned batch commits with the record of the firing: once, whichever process dies.
    let report = Schedule::new("report").cron("30 2 * * *").zone("Europe/Berlin").run(|tick| async move {
        let empty = Payload::from_json(r#"{"lines": []}"#)?;
        let line = [Delta::push("/lines", tick.key())];
        Ok(Batch::new().merge_or_create(&"reports".into_key()?, empty, line))
    });
    let heartbeat = Schedule::new("heartbeat")
        .every(Duration::from_hours(24))
        .retry(Duration::from_mins(10))
        .run(|tick| async move {
            println!("heartbeat of {}, attempt {}", tick.time(), tick.attempt());
            if tick.attempt() == 1 {
                Err(std::io::Error::other("no answer"))?
            } // retried after 10 minutes
            Ok(())
        });
    let bills = Schedule::new("bills").cron("0 6 * * MON").start(BILL, |tick| tick.time().to_string());
    let service = tide.service().workflow(BILL, bill).schedule(report).schedule(heartbeat).schedule(bills);
    let service = service.poll_interval(Duration::from_millis(5)).start().await?;
    for _ in 0..4 * 24 * 2 {
        clock.advance(Duration::from_mins(30));
        service.idle().await?; // for tests: returns when nothing is due and nothing runs
    }

    let reports = tide.store().document(&"reports".into_key()?).await?.ok_or("no report")?.value;
    println!("reports at {reports}");
    // On the 29th, 02:30 does not exist in Berlin. The report runs at the end of the skipped hour.
    for time in ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"] {
        assert!(reports.as_str().contains(time), "no report at {time}");
    }
    let bill = tide.runs().handle(BILL, "bills:2026-03-30T06:00:00Z").result().await?;
    println!("{bill}");

    tide.schedules().pause("report", "the printer is broken").await?;
    for view in tide.schedules().list().await? {
        println!("{}: {} runs, {:?}", view.record.name, view.runs, view.doing);
    }
    let beats = tide.schedules().history("heartbeat", 10).await?;
    assert!(beats.iter().any(|entry| entry.attempt == 1) && beats.iter().any(|entry| entry.attempt == 2));
    service.shutdown().await;
    Ok(())
}
