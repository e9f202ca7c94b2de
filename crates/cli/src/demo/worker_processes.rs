//! The worker processes and the task that kills them.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::prelude::*;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::Expected;
use super::chaos::{ChaosEvent, Notes};
use super::shop::Shop;
use crate::address::Address;
use crate::random::Random;

/// The approximate number of kills, and the minimum and maximum time between two kills.
const KILLS: f64 = 15.0;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3);
/// The first worker is killed after at most this share of the time, however short the demo is.
const FIRST: f64 = 0.4;
/// After the first kill, one victim in this number, on average, is suspended for longer than its lease instead of being killed.
#[cfg(unix)]
const STOPPED: usize = 4;
#[cfg(unix)]
const STANDSTILL: Duration = Duration::from_millis(1_400);
/// The time a dismissed worker may take to exit.
const FAREWELL: Duration = Duration::from_secs(2);

/// One worker process.
#[derive(Debug)]
struct Worker {
    name: String,
    process: Child,
}

/// The worker processes. Dropping this value kills them.
#[derive(Debug)]
pub(crate) struct WorkerProcesses {
    address: Address,
    run: String,
    workers: Vec<Worker>,
    hired: u64,
    tally: Arc<Expected>,
    notes: Notes,
}

impl WorkerProcesses {
    /// Creates a crew without workers.
    pub(crate) fn new(address: &Address, store: &SharedStore, shop: &Shop, tally: &Arc<Expected>) -> Self {
        let (address, run, tally) = (address.clone(), shop.run().to_owned(), Arc::clone(tally));
        let notes = Notes::of(store, &run);
        Self { address, run, workers: Vec::new(), hired: 0, tally, notes }
    }

    /// Starts the given number of workers.
    pub(crate) async fn start(&mut self, workers: u32) -> Result<()> {
        for _ in 0..workers {
            let worker = self.hire().await?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Kills one worker after another without warning, and starts a replacement for each. Some are only suspended for a while and
    /// then resume. At least one is killed.
    pub(crate) async fn kill_at_random(&mut self, until: Instant) -> Result<()> {
        let mut random = Random::fresh();
        let all = until.saturating_duration_since(Instant::now());
        let middle = all.div_f64(KILLS).clamp(SHORTEST, LONGEST);
        let mut pause = middle.min(all.mul_f64(FIRST));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            tokio::time::sleep(pause.min(left)).await;
            self.replace_the_fallen().await?;
            let (is_over, is_first) = (pause >= left, self.tally.kills.load(Ordering::Relaxed) == 0);
            if is_over && !is_first {
                return Ok(());
            }
            let victim = random.below(self.workers.len());
            #[cfg(unix)]
            if !is_first && random.below(STOPPED) == 0 && left > STANDSTILL * 2 {
                self.stop_for_a_while(victim).await?;
                pause = random.between(middle.mul_f64(0.5), middle.mul_f64(1.5));
                continue;
            }
            self.kill(victim).await?;
            if is_over {
                return Ok(());
            }
            pause = random.between(middle.mul_f64(0.5), middle.mul_f64(1.5));
        }
    }

    async fn kill(&mut self, victim: usize) -> Result<()> {
        let successor = self.hire().await?;
        let Some(place) = self.workers.get_mut(victim) else { return Ok(()) };
        let Worker { name, mut process } = std::mem::replace(place, successor);
        if let Some(how) = process.try_wait()? {
            return self.fell(name, how).await;
        }
        process.kill().await.context("a worker cannot be killed")?;
        // It may have exited just before the kill.
        let how = process.wait().await?;
        if !was_killed(how) {
            return self.fell(name, how).await;
        }
        self.tally.kills.fetch_add(1, Ordering::Relaxed);
        self.notes.note(ChaosEvent::WorkerKilled { worker: name }).await
    }

    /// Suspends a worker for longer than its leases last, then resumes it. No other task kills it in between, so the pid still
    /// names this process.
    #[cfg(unix)]
    async fn stop_for_a_while(&mut self, victim: usize) -> Result<()> {
        use rustix::process::{Pid, Signal, kill_process};

        let Some(Worker { name, process }) = self.workers.get_mut(victim) else { return Ok(()) };
        // A worker that has exited is replaced and counted before the next victim is chosen.
        let ended = process.try_wait()?.is_some();
        let id = process.id().filter(|_| !ended);
        let Some(pid) = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) else { return Ok(()) };
        kill_process(pid, Signal::STOP).context("a worker cannot be stopped")?;
        self.tally.stops.fetch_add(1, Ordering::Relaxed);
        let for_ms = u64::try_from(STANDSTILL.as_millis())?;
        let stopped = self.notes.note(ChaosEvent::WorkerStopped { worker: name.clone(), for_ms });
        let going_on = async {
            tokio::time::sleep(STANDSTILL).await;
            kill_process(pid, Signal::CONT).context("a stopped worker cannot continue")
        };
        // Both run concurrently: a worker suspended in the middle of a write locks the file for all processes, this note
        // included.
        let (stopped, going_on) = tokio::join!(stopped, going_on);
        going_on.and(stopped)?;
        self.notes.note(ChaosEvent::WorkerWentOn { worker: name.clone() }).await
    }

    /// Replaces workers that exited unexpectedly, and counts them.
    pub(crate) async fn replace_the_fallen(&mut self) -> Result<()> {
        for place in 0..self.workers.len() {
            let ended = self.workers.get_mut(place).map(|worker| worker.process.try_wait());
            let Some(how) = ended.transpose()?.flatten() else { continue };
            let successor = self.hire().await?;
            if let Some(worker) = self.workers.get_mut(place) {
                let Worker { name, .. } = std::mem::replace(worker, successor);
                self.fell(name, how).await?;
            }
        }
        Ok(())
    }

    async fn fell(&self, worker: String, how: ExitStatus) -> Result<()> {
        self.tally.fallen.fetch_add(1, Ordering::Relaxed);
        self.notes.note(ChaosEvent::WorkerFell { worker, how: how.to_string() }).await
    }

    /// Lets all workers exit. A worker with a failure status counts as fallen; a worker that does not exit is killed.
    pub(crate) async fn dismiss(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            drop(worker.process.stdin.take());
        }
        for Worker { name, mut process } in std::mem::take(&mut self.workers) {
            match tokio::time::timeout(FAREWELL, process.wait()).await {
                Ok(how) => {
                    let how = how?;
                    if !how.success() {
                        self.fell(name, how).await?;
                    }
                }
                Err(_) => process.kill().await.context("a worker cannot be killed")?,
            }
        }
        Ok(())
    }

    /// Kills the remaining workers and waits until they have exited.
    pub(crate) async fn disband(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            if worker.process.try_wait()?.is_none() {
                worker.process.kill().await.context("a worker cannot be killed")?;
            }
        }
        self.workers.clear();
        Ok(())
    }

    async fn hire(&mut self) -> Result<Worker> {
        self.hired += 1;
        let name = format!("worker-{}", self.hired);
        let mut command = Command::new(std::env::current_exe()?);
        // Only the parent handles Ctrl-C: it stops the workers, so none of them counts as fallen.
        #[cfg(unix)]
        command.process_group(0);
        let mut process = self
            .address
            .hand_over(command.arg("demo-worker"))
            .args(["--run", &self.run, "--name", &name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("a worker process cannot be started")?;
        if let Some(says) = process.stdout.take() {
            tokio::spawn(hear(says, self.hired, Arc::clone(&self.tally)));
        }
        self.notes.note(ChaosEvent::WorkerStarted { worker: name.clone() }).await?;
        Ok(Worker { name, process })
    }
}

/// Returns whether the process was terminated by `SIGKILL`.
fn was_killed(how: ExitStatus) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        how.signal() == Some(rustix::process::Signal::KILL.as_raw())
    }
    #[cfg(not(unix))]
    {
        !how.success()
    }
}

/// Records the reports of a worker until it exits.
async fn hear(says: ChildStdout, worker: u64, tally: Arc<Expected>) {
    let mut lines = BufReader::new(says).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(told) = serde_json::from_str(&line) {
            tally.hear(worker, told);
        }
    }
}
