//! A durable workflow of three steps on a SQLite file. Kill the process in the middle and run it again: the run resumes at that step.
//!
//! Run `cargo run -p tidelock-examples --example 07_workflow_crash -- order.db`, press Ctrl-C after the second step, and run it again.
//! Without a file, the program starts a child process on a temporary file, kills the child, and resumes its run.
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidelock::prelude::*;
use tidelock::workflow::{Client, Ctx, Failure, Step, Worker, Workflow};

const ORDER: Workflow<u32, String> = Workflow::new("order");

/// The workflow. Each step completes exactly once, even across crashes, and a resumed run does not repeat completed steps.
async fn order(cx: &Ctx, apples: u32) -> Result<String, Failure> {
    let told = Told::default();
    cx.step("reserve", async |step| told.work(1, &step, "reserving the goods").await).await?;
    cx.step("charge", async |step| told.work(2, &step, "charging the card").await).await?;
    cx.step("ship", async |step| told.work(3, &step, "shipping").await).await?;
    Ok(format!("{apples} apples are on their way"))
}

/// Whether this process has executed a step. The workflow function restarts in every process, and so does this flag.
#[derive(Default)]
struct Told(AtomicBool);

impl Told {
    /// Performs the effect of a step, which takes a moment here. Only code inside steps is not replayed.
    async fn work(&self, number: u32, step: &Step, what: &str) -> Result<(), Failure> {
        let first_here = !self.0.swap(true, Ordering::Relaxed);
        match number {
            2 if first_here => println!("resumed run {}: step 1 replayed, continuing at step 2", step.run()),
            3.. if first_here => {
                let before = number - 1;
                println!(
                    "resumed run {}: steps 1–{before} replayed, continuing at step {number}",
                    step.run()
                );
            }
            _ => {}
        }
        println!("step {number}: {what}, as {}", step.key());
        tokio::time::sleep(Duration::from_millis(700)).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(file) = std::env::args().nth(1) {
        return run(&file).await;
    }
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("order.db").display().to_string();
    kill_in_the_third_step(&file)?;
    run(&file).await
}

/// Starts the run, or resumes the existing one, and waits for its result.
async fn run(file: &str) -> Result<(), Box<dyn Error>> {
    let store: SharedStore = Arc::new(SqliteStore::open(file, SqliteOptions::default()).await?);
    // A process that died keeps its run until its lease expires. The lease is short here, to keep the wait short.
    let worker = Worker::new(Arc::clone(&store)).lease_ttl(Duration::from_secs(1)).register(ORDER, order);
    let driving = worker.start().await?;
    // The same id and input identify the same run, so this call starts the run or finds it.
    let run = Client::new(store).start(ORDER, &3).id("order-17").await?;
    println!("run {}: {}", run.run(), run.result().await?);
    driving.shutdown().await;
    Ok(())
}

/// Runs the workflow in a child process, and kills it in the third step.
fn kill_in_the_third_step(file: &str) -> Result<(), Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?).arg(file).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        if line.starts_with("step 3") {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    println!("killed");
    Ok(())
}
