//! The worker processes, and whoever kills them.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::prelude::*;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::Tally;
use super::chaos::{ChaosEvent, Notes};
use super::shop::Shop;
use crate::address::Address;
use crate::random::Random;

/// How many workers are killed, more or less, and the time between two kills at least and at most.
const KILLS: f64 = 15.0;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3);
/// The first is killed after this share of the time at the latest, however short that is.
const FIRST: f64 = 0.4;
/// After the first, one in so many is not killed, but stands still for longer than its leases.
#[cfg(unix)]
const STOPPED: usize = 4;
#[cfg(unix)]
const STANDSTILL: Duration = Duration::from_millis(1_400);
/// How long a worker that is not needed any more may take to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// One worker process.
#[derive(Debug)]
struct Worker {
    name: String,
    process: Child,
}

/// The workers. They are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Crew {
    address: Address,
    run: String,
    workers: Vec<Worker>,
    hired: u64,
    tally: Arc<Tally>,
    notes: Notes,
}

impl Crew {
    /// Nobody so far.
    pub(crate) fn new(address: &Address, store: &SharedStore, shop: &Shop, tally: &Arc<Tally>) -> Self {
        let (address, run, tally) = (address.clone(), shop.run().to_owned(), Arc::clone(tally));
        let notes = Notes::of(store, &run);
        Self { address, run, workers: Vec::new(), hired: 0, tally, notes }
    }

    /// Starts so many workers.
    pub(crate) async fn start(&mut self, workers: u32) -> Result<()> {
        for _ in 0..workers {
            let worker = self.hire().await?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Kills one worker after the other, without warning, and puts a new one in its place. Some only stand still for a while, and
    /// go on as if nothing had happened. At least one is killed.
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
        // It may have ended by itself just before.
        let how = process.wait().await?;
        if !was_killed(how) {
            return self.fell(name, how).await;
        }
        self.tally.kills.fetch_add(1, Ordering::Relaxed);
        self.notes.note(ChaosEvent::WorkerKilled { worker: name }).await
    }

    /// Stops a worker for longer than its leases last, and lets it go on. Nobody kills it meanwhile, so the process is this one.
    #[cfg(unix)]
    async fn stop_for_a_while(&mut self, victim: usize) -> Result<()> {
        use rustix::process::{Pid, Signal, kill_process};

        let Some(Worker { name, process }) = self.workers.get_mut(victim) else { return Ok(()) };
        // One that has ended is replaced, and counted, before the next is chosen.
        let ended = process.try_wait()?.is_some();
        let id = process.id().filter(|_| !ended);
        let Some(pid) = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) else { return Ok(()) };
        kill_process(pid, Signal::STOP).context("a worker cannot be stopped")?;
        self.tally.stops.fetch_add(1, Ordering::Relaxed);
        let for_ms = u64::try_from(STANDSTILL.as_millis())?;
        let stopped = self.notes.note(ChaosEvent::WorkerStopped { worker: name.clone(), for_ms });
        let going_on = async {
            tokio::time::sleep(STANDSTILL).await;
            kill_process(pid, Signal::CONT).context("a worker that was stopped cannot go on")
        };
        // At the same time: a worker that stands still in the middle of a write keeps a file from everybody, this note included.
        let (stopped, going_on) = tokio::join!(stopped, going_on);
        going_on.and(stopped)?;
        self.notes.note(ChaosEvent::WorkerWentOn { worker: name.clone() }).await
    }

    /// Replaces workers that ended by themselves, and remembers that they did.
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

    /// Lets all workers end by themselves. Those that end badly have fallen; those that do not end are killed.
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

    /// Kills whoever is left, and waits until they are gone.
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
        // Ctrl-C is for the parent: it ends the workers, and none of them falls.
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

/// Whether a process ended because it was killed outright.
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

/// Notes what a worker tells, until it is gone.
async fn hear(says: ChildStdout, worker: u64, tally: Arc<Tally>) {
    let mut lines = BufReader::new(says).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(told) = serde_json::from_str(&line) {
            tally.hear(worker, told);
        }
    }
}
