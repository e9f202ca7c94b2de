//! Clients that start and await runs of ten empty steps, and the replay of a long run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::prelude::*;
use tidelock::workflow::{Ctx, Failure, Signal, Worker, Workflow, WorkflowClient};
use tidelock_console::bench::statistics::{Commits, Latencies, per_second};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::STEPS;
use super::round::Runs;

const TEN: Workflow<u64, u32> = Workflow::new("ten-steps");
const GO: Signal<u32> = Signal::new("go");
const LONG: Workflow<u32, u32> = Workflow::new("many-steps").accepts(GO);

/// The latencies that runs record.
#[derive(Clone)]
struct Recorder {
    began: Instant,
    steps: Arc<Mutex<Latencies>>,
    firsts: Arc<Mutex<Latencies>>,
}

impl Recorder {
    fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

fn note(latencies: &Mutex<Latencies>, took: Duration) {
    latencies.lock().unwrap_or_else(PoisonError::into_inner).add(took);
}

/// Runs clients for a while.
pub(super) async fn run(store: &SharedStore, clients: u32, length: Duration) -> Result<Runs> {
    let notes = Recorder { began: Instant::now(), steps: Arc::default(), firsts: Arc::default() };
    let noted = notes.clone();
    let code = async move |cx: &Ctx, asked: u64| -> Result<u32, Failure> {
        let mut sum = 0;
        for number in 0..STEPS {
            let began = Instant::now();
            sum += cx
                .scope("step", number)
                .step("nothing", async |_| {
                    if number == 0 {
                        note(&noted.firsts, Duration::from_micros(noted.micros().saturating_sub(asked)));
                    }
                    Ok(1)
                })
                .await?;
            note(&noted.steps, began.elapsed());
        }
        Ok(sum)
    };
    let driving = Worker::new(Arc::clone(store)).register(TEN, code).start().await?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        tasks.spawn(start(WorkflowClient::new(Arc::clone(store)), notes.clone(), started + length));
    }
    let mut done = 0;
    while let Some(joined) = tasks.join_next().await {
        done += joined??;
    }
    let took = started.elapsed();
    driving.shutdown().await;
    let taken = |latencies: &Mutex<Latencies>| {
        let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
        (latencies.percentile(0.5), latencies.percentile(0.99))
    };
    let (p50_us, p99_us) = taken(&notes.steps);
    let per_s = per_second(done, took);
    let steps = Commits { per_s: per_s * f64::from(STEPS), p50_us, p99_us };
    let (p50_us, p99_us) = taken(&notes.firsts);
    Ok(Runs { per_s, steps, first_p50_us: p50_us, first_p99_us: p99_us })
}

async fn start(client: WorkflowClient, notes: Recorder, until: Instant) -> Result<usize> {
    let mut done = 0;
    while Instant::now() < until {
        let run = client.start(TEN, &notes.micros()).await?;
        let steps = run.result().await?;
        anyhow::ensure!(steps == STEPS, "cannot trust the run: it ended after {steps} steps");
        done += 1;
    }
    Ok(done)
}

/// Returns the replayed steps per second of a long run.
pub(super) async fn replay(store: &SharedStore, steps: u32) -> Result<f64> {
    let code = async |cx: &Ctx, steps: u32| -> Result<u32, Failure> {
        let numbers = (0..steps).map(|number| async move {
            let scope = cx.scope("step", number);
            scope.step("nothing", async |_| Ok(number)).await
        });
        // Concurrently, so that recording the history is fast.
        for step in futures_util::future::join_all(numbers).await {
            step?;
        }
        Ok(cx.signal(GO).await?)
    };
    let driving = Worker::new(Arc::clone(store)).register(LONG, code).start().await?;
    let id = format!("long-{}", Uuid::now_v7());
    let run = WorkflowClient::new(Arc::clone(store)).start(LONG, &steps).id(&id).await?;
    while driving.stats().steps < u64::from(steps) || driving.stats().active > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let started = Instant::now();
    driving.drive(&id).await.context("cannot resume the long run")?;
    let took = started.elapsed();
    run.signal(GO, &7).await?;
    anyhow::ensure!(run.result().await? == 7, "cannot trust the run: the long run returned another value");
    driving.shutdown().await;
    Ok(per_second(steps as usize, took))
}
