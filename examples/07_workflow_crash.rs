//! A durable workflow of three steps on a SQLite file. Kill the process in the middle and run it again: the run resumes there.
//!
//! Run `cargo run -p tidelock-examples --example 07_workflow_crash -- order.db`, press Ctrl-C after the second step, and run it
//! again. Without a file, the program starts itself on a temporary file, kills that process, and resumes its run.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidelock::prelude::*;

const ORDER: Workflow<u32, String> = Workflow::new("order");

/// The workflow. Each step is recorded when it ends, so a resumed run does not repeat it.
async fn order(cx: &Ctx, apples: u32) -> Result<String, Failure> {
    cx.step("reserve", async |step| effect(1, &step, "reserving the goods").await).await?;
    cx.step("charge", async |step| effect(2, &step, "charging the card").await).await?;
    cx.step("ship", async |step| effect(3, &step, "shipping").await).await?;
    Ok(format!("{apples} apples are on their way"))
}

/// The effect of a step, which takes a moment. Its key is the idempotency key for the external system.
async fn effect(number: u32, step: &Step, text: &str) -> Result<(), Failure> {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if !BEGUN.swap(true, Ordering::Relaxed) && number > 1 {
        let replayed = number - 1;
        println!("resumed run {}: steps 1–{replayed} replayed, continuing at step {number}", step.run());
    }
    println!("step {number}: {text}, as {}", step.key());
    tokio::time::sleep(Duration::from_millis(700)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let file = std::env::args().nth(1).map_or_else(|| kill_in_step_3(&directory), Ok)?;
    let tide = Tidelock::open(&file).await?;
    // A dead process keeps its run until its lease expires. The lease is short here, to keep the wait short.
    let service = tide.service().lease_ttl(Duration::from_secs(1)).workflow(ORDER, order).start().await?;
    let run = tide.start(ORDER, &3).id("order-17").await?; // the same id: the same run
    println!("run {}: {}", run.run(), run.result().await?);
    service.shutdown().await;
    Ok(())
}

/// Runs the workflow in a child process, and kills the process in the third step.
fn kill_in_step_3(directory: &tempfile::TempDir) -> std::io::Result<String> {
    let file = directory.path().join("order.db").display().to_string();
    let mut child = Command::new(std::env::current_exe()?).arg(&file).stdout(Stdio::piped()).spawn()?;
    for line in BufReader::new(child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?).lines() {
        let line = line?;
        println!("{line}");
        if line.starts_with("step 3") {
            break;
        }
    }
    child.kill()?;
    println!("killed: {}", child.wait()?);
    Ok(file)
}
