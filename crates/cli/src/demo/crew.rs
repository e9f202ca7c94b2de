//! The worker processes, and whoever kills them.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::Tally;
use super::shop::Shop;
use crate::address::Address;
use crate::random::Random;

/// How many workers are killed, more or less, and the time between two kills at least and at most.
const KILLS: f64 = 15.0;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3);
/// After the first, one in so many is not killed, but stands still for longer than its leases.
#[cfg(unix)]
const STOPPED: usize = 4;
#[cfg(unix)]
const STANDSTILL: Duration = Duration::from_millis(1_400);
/// How long a worker that is not needed any more may take to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// The workers. They are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Crew {
    address: Address,
    run: String,
    workers: Vec<Child>,
    hired: u64,
    tally: Arc<Tally>,
}

impl Crew {
    /// Starts so many workers.
    pub(crate) fn start(address: &Address, shop: &Shop, workers: u32, tally: &Arc<Tally>) -> Result<Self> {
        let (address, run, tally) = (address.clone(), shop.run().to_owned(), Arc::clone(tally));
        let mut crew = Self { address, run, workers: Vec::new(), hired: 0, tally };
        for _ in 0..workers {
            let worker = crew.hire()?;
            crew.workers.push(worker);
        }
        Ok(crew)
    }

    /// Kills one worker after the other, without warning, and puts a new one in its place. Some only stand still for a while, and
    /// go on as if nothing had happened.
    pub(crate) async fn kill_at_random(&mut self, until: Instant) -> Result<()> {
        let mut random = Random::fresh();
        let all = until.saturating_duration_since(Instant::now());
        let middle = all.div_f64(KILLS).clamp(SHORTEST, LONGEST);
        loop {
            let pause = random.between(middle.mul_f64(0.5), middle.mul_f64(1.5));
            let left = until.saturating_duration_since(Instant::now());
            tokio::time::sleep(pause.min(left)).await;
            if pause >= left {
                return Ok(());
            }
            let victim = random.below(self.workers.len());
            #[cfg(unix)]
            if self.tally.kills.load(Ordering::Relaxed) > 0
                && random.below(STOPPED) == 0
                && left > STANDSTILL * 2
            {
                self.stop_for_a_while(victim).await?;
                continue;
            }
            let successor = self.hire()?;
            if let Some(worker) = self.workers.get_mut(victim) {
                let mut dead = std::mem::replace(worker, successor);
                dead.kill().await.context("a worker cannot be killed")?;
                self.tally.kills.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Stops a worker for longer than its leases last, and lets it go on. Nobody kills it meanwhile, so the process is this one.
    #[cfg(unix)]
    async fn stop_for_a_while(&self, victim: usize) -> Result<()> {
        use rustix::process::{Pid, Signal, kill_process};

        let worker = self.workers.get(victim).and_then(Child::id);
        let Some(pid) = worker.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) else { return Ok(()) };
        // One that ended by itself is replaced, and counted, in the end.
        if kill_process(pid, Signal::STOP).is_ok() {
            self.tally.stops.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(STANDSTILL).await;
            kill_process(pid, Signal::CONT).context("a worker that was stopped cannot go on")?;
        }
        Ok(())
    }

    /// Replaces workers that ended by themselves, and remembers that they did.
    pub(crate) fn replace_the_fallen(&mut self) -> Result<()> {
        for place in 0..self.workers.len() {
            let ended = self.workers.get_mut(place).map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() {
                self.tally.fallen.fetch_add(1, Ordering::Relaxed);
                let successor = self.hire()?;
                if let Some(worker) = self.workers.get_mut(place) {
                    *worker = successor;
                }
            }
        }
        Ok(())
    }

    /// Lets all workers end by themselves; those that do not are killed.
    pub(crate) async fn dismiss(mut self) {
        for worker in &mut self.workers {
            drop(worker.stdin.take());
        }
        for worker in &mut self.workers {
            // A worker that stays is killed when it is dropped.
            drop(tokio::time::timeout(FAREWELL, worker.wait()).await);
        }
    }

    fn hire(&mut self) -> Result<Child> {
        self.hired += 1;
        let mut command = Command::new(std::env::current_exe()?);
        let mut worker = self
            .address
            .hand_over(command.arg("demo-worker"))
            .args(["--run", &self.run, "--name", &format!("worker-{}", self.hired)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("a worker process cannot be started")?;
        if let Some(says) = worker.stdout.take() {
            tokio::spawn(hear(says, self.hired, Arc::clone(&self.tally)));
        }
        Ok(worker)
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
