//! A workflow of three steps on a SQLite file. Kill it in the middle and run it again: it goes on where it stood.
//!
//! `cargo run -p tidelock-examples --example 07_workflow_crash -- order.db`, Ctrl-C after the second step, and the same again.
//! Without a file, the program starts itself on a temporary one, kills what it started, and goes on.
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

/// The workflow. Whatever dies, each step comes to its end once, and nothing before it is done again.
async fn order(cx: &Ctx, apples: u32) -> Result<String, Failure> {
    let told = Told::default();
    cx.step("reserve", async |step| told.work(1, &step, "reserving the goods").await).await?;
    cx.step("charge", async |step| told.work(2, &step, "charging the card").await).await?;
    cx.step("ship", async |step| told.work(3, &step, "shipping").await).await?;
    Ok(format!("{apples} apples are on their way"))
}

/// What this process said. The function above begins anew in every process, so this does, too.
#[derive(Default)]
struct Told(AtomicBool);

impl Told {
    /// The effect of a step. Only code inside of steps runs once; here it takes a moment.
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

/// Starts the run, or finds it as it was left, and drives it to its end.
async fn run(file: &str) -> Result<(), Box<dyn Error>> {
    let store: SharedStore = Arc::new(SqliteStore::open(file, SqliteOptions::default()).await?);
    // A process that died keeps its run for as long as its lease: short here, so that nobody has to wait.
    let worker = Worker::new(Arc::clone(&store)).lease_ttl(Duration::from_secs(1)).register(ORDER, order);
    let driving = worker.start().await?;
    // The same id and input is the same run, so this starts it or finds it.
    let run = Client::new(store).start(ORDER, &3).id("order-17").await?;
    println!("run {}: {}", run.run(), run.result().await?);
    driving.shutdown().await;
    Ok(())
}

/// Another process that does not live to see the end.
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
