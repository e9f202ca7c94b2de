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

/// The time between two kills: 0.7 s on average.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_millis(900);
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

    /// Kills one worker after the other, without warning, and puts a new one in its place.
    pub(crate) async fn kill_at_random(&mut self, until: Instant) -> Result<()> {
        let mut random = Random::fresh();
        loop {
            let pause = random.between(SHORTEST, LONGEST);
            let left = until.saturating_duration_since(Instant::now());
            tokio::time::sleep(pause.min(left)).await;
            if pause >= left {
                return Ok(());
            }
            let victim = random.below(self.workers.len());
            let successor = self.hire()?;
            if let Some(worker) = self.workers.get_mut(victim) {
                let mut dead = std::mem::replace(worker, successor);
                dead.kill().await.context("a worker cannot be killed")?;
                self.tally.kills.fetch_add(1, Ordering::Relaxed);
            }
        }
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
            tokio::spawn(hear(says, Arc::clone(&self.tally)));
        }
        Ok(worker)
    }
}

/// Notes the errors that a worker tells about, until it is gone.
async fn hear(says: ChildStdout, tally: Arc<Tally>) {
    let mut lines = BufReader::new(says).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(code) = line.split(' ').next() {
            tally.add_error(code);
        }
    }
}
