//! `tidelock demo`: a small shop on one store. Its worker processes are killed at random, and a proof of the results is printed at
//! the end.
//!
//! The parent places the customers' orders and counts; it never ships. Workers execute the orders, fill the shelves and take stock,
//! and never outlive the parent. If the parent is killed, the workers exit and the file or the schema stays as it is.

mod chaos;
mod environment;
mod expected;
mod inspector;
mod load;
mod observed;
mod order_workflow;
mod shop;
mod shutdown;
mod verify;
mod worker;
mod worker_processes;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::ProgressBar;
use tidelock::prelude::*;
use tidelock::schedule::Scheduler;
use tidelock_server::Conflicts;

use self::chaos::Numbers;
use self::environment::Environment;
use self::expected::Expected;
use self::inspector::Inspector;
use self::load::LoadGenerator;
use self::shop::{ITEMS, Shop, Stock};
use self::shutdown::ShutdownSignals;
use self::verify::Verification;
use self::worker_processes::WorkerProcesses;
use crate::args::Demo;
use crate::exit::Exit;
use crate::random::Random;

pub(crate) use worker::work;

/// Orders arrive during this share of the time. Workers are killed during all of it.
const LOAD_SHARE: f64 = 0.85;
/// The interval at which progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(250);
/// The time allowed to complete the remaining work after the last kill.
const DRAIN: Duration = Duration::from_mins(2);

/// Runs the demo and proves its result.
pub(crate) async fn run(options: Demo) -> Result<Exit> {
    // Listens before anything is created, so that an interrupted demo leaves nothing behind.
    let ending = ShutdownSignals::listen()?;
    let site = Environment::choose(&options).await?;
    ending.leaves(site.leftovers());
    let played = Box::pin(perform(&options, &site, &ending)).await;
    let left = site.leave(&options).await;
    let exit = played?;
    left.map(|()| exit)
}

async fn perform(options: &Demo, site: &Environment, ending: &ShutdownSignals) -> Result<Exit> {
    if ending.is_asked() {
        return Ok(Exit::Failed);
    }
    let opened = site.address().open().await?;
    let played = Box::pin(play(options, site, &opened.shared(), ending)).await;
    opened.close().await;
    played
}

async fn play(
    options: &Demo,
    site: &Environment,
    store: &SharedStore,
    ending: &ShutdownSignals,
) -> Result<Exit> {
    let shop = Shop::new(&format!("{:08x}", Random::fresh().next() >> 32));
    let (tally, locks, conflicts) = (Arc::new(Expected::default()), Locks::new(), Conflicts::new());
    let inspector = Inspector::open(store, &shop, &locks, &conflicts, options).await?;
    let stage = Stage { options, store, shop: &shop, tally: &tally, locks: &locks, conflicts: &conflicts };
    let mut crew = WorkerProcesses::new(site.address(), store, &shop, &tally);
    let whole = tokio::select! {
        whole = Box::pin(stage.play(&mut crew)) => whole,
        () = ending.asked() => Ok(false),
    };
    crew.disband().await?;
    let proof = Verification::find(store, &shop, &tally, whole?).await?;
    let printed = proof.print(options.output);
    if options.stay && !ending.is_asked() {
        inspector.stay(ending).await;
    }
    inspector.close().await;
    match printed {
        // A proof that does not hold is a failure even when it could not be printed.
        Err(error) if !proof.holds => {
            notice(format_args!("warning: the proof could not be printed: {error:#}"));
            Ok(Exit::Failed)
        }
        printed => printed.map(|()| if proof.holds { Exit::Well } else { Exit::Failed }),
    }
}

/// Prints a message to standard error. Write errors are ignored, because the cleanup still has to run.
fn notice(what: impl std::fmt::Display) {
    drop(writeln!(std::io::stderr(), "{what}"));
}

/// The shared parts of a running demo.
struct Stage<'a> {
    options: &'a Demo,
    store: &'a SharedStore,
    shop: &'a Shop,
    tally: &'a Arc<Expected>,
    locks: &'a Locks,
    conflicts: &'a Arc<Conflicts>,
}

impl Stage<'_> {
    /// Runs the customers and the workers. Returns whether all work was completed at the end.
    async fn play(&self, crew: &mut WorkerProcesses) -> Result<bool> {
        let events = Events::new(Arc::clone(self.store));
        for item in ITEMS {
            events.append::<Stock>(self.shop.named(item), [Stock::default().fill(None)]).await?;
        }
        let started = Instant::now();
        crew.start(self.options.workers).await?;
        let whole = async {
            let load_ends = started + self.options.seconds.mul_f64(LOAD_SHARE);
            let chaos_ends = started + self.options.seconds;
            tokio::try_join!(self.customers().buy(load_ends), crew.kill_at_random(chaos_ends))?;
            let drained = self.drain(crew).await?;
            crew.dismiss().await?;
            self.close().await?;
            anyhow::Ok(drained)
        };
        tokio::select! {
            done = whole => done,
            never = self.show() => never,
        }
    }

    fn customers(&self) -> LoadGenerator {
        LoadGenerator {
            store: Arc::clone(self.store),
            shop: self.shop.clone(),
            tally: Arc::clone(self.tally),
            locks: self.locks.clone(),
            conflicts: Arc::clone(self.conflicts),
            next: Arc::new(1.into()),
            pieces: Arc::default(),
        }
    }

    /// Waits until all work is completed. Returns `false` when that takes too long.
    async fn drain(&self, crew: &mut WorkerProcesses) -> Result<bool> {
        let (started, until) = (Instant::now(), self.store.now().await?);
        while started.elapsed() < DRAIN {
            if observed::is_settled(self.store, self.shop, self.tally, until).await? {
                return Ok(true);
            }
            crew.replace_the_fallen().await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(false)
    }

    /// Archives the stock-taking task. In a file that is kept, it would stay overdue permanently.
    async fn close(&self) -> Result<()> {
        let empty = Scheduler::new(Arc::clone(self.store)).name(self.shop.scheduler());
        empty.start().await?.shutdown().await;
        self.numbers().await?.show(&**self.store, self.shop.run()).await
    }

    async fn numbers(&self) -> Result<Numbers> {
        let (ordered, shipped) = (self.tally.asked(), self.shop.shipped(&**self.store).await?);
        let told = self.tally.total();
        Ok(Numbers {
            ordered,
            shipped,
            under_way: ordered.saturating_sub(shipped),
            kills: self.tally.kills.load(Ordering::Relaxed),
            standstills: self.tally.stops.load(Ordering::Relaxed),
            fallen: self.tally.fallen.load(Ordering::Relaxed),
            replayed: told.replayed,
            fenced: told.fenced,
        })
    }

    /// Shows progress as a live line if standard error is a terminal, and as a document in the store.
    async fn show(&self) -> Result<bool> {
        let line = ProgressBar::new_spinner();
        line.enable_steady_tick(Duration::from_millis(120));
        loop {
            let numbers = self.numbers().await?;
            let Numbers { ordered, shipped, under_way, kills, .. } = numbers;
            line.set_message(format!(
                "ordered {ordered} · shipped {shipped} · under way {under_way} · workers killed {kills}"
            ));
            numbers.show(&**self.store, self.shop.run()).await?;
            tokio::time::sleep(SHOW_EVERY).await;
        }
    }
}
