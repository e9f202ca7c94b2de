//! `tidelock demo`: a small shop on one store. Its worker processes are killed at random, and at the end the numbers are laid open.
//!
//! The parent asks (its customers order) and counts; it never ships. Workers drive the orders, fill the shelves and take stock, and
//! never outlive the parent. If the parent is killed, the workers end by themselves and the file or the schema stays as it is.

mod crew;
mod customers;
mod desk;
mod inspector;
mod ledger;
mod proof;
mod shop;
mod site;
mod tally;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::ProgressBar;
use tidelock::prelude::*;
use tidelock::schedule::Scheduler;

use self::crew::Crew;
use self::customers::Customers;
use self::inspector::Inspector;
use self::proof::Proof;
use self::shop::{ITEMS, Shop, Stock};
use self::site::Site;
use self::tally::Tally;
use crate::args::Demo;
use crate::exit::Exit;
use crate::random::Random;

pub(crate) use worker::work;

/// Orders come in for this share of the time; workers are killed to its end.
const LOAD_SHARE: f64 = 0.85;
/// The time in which what is left must be done, once nobody is killed any more.
const DRAIN: Duration = Duration::from_mins(2);

/// Plays the whole piece and proves how it ended.
pub(crate) async fn run(options: Demo) -> Result<Exit> {
    let site = Site::choose(&options).await?;
    // Listens before anything else is done: whoever interrupts it leaves nothing behind.
    let interrupted = interrupted()?;
    let proven = Box::pin(perform(&options, &site, interrupted)).await;
    site.leave(&options).await?;
    Ok(if proven? { Exit::Well } else { Exit::Failed })
}

/// Ctrl-C, from now on.
fn interrupted() -> Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        Ok(async move {
            interrupt.recv().await;
        })
    }
    #[cfg(not(unix))]
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

async fn perform(options: &Demo, site: &Site, interrupted: impl Future<Output = ()>) -> Result<bool> {
    let opened = site.address().open().await?;
    let store = opened.shared();
    let shop = Shop::new(&format!("{:08x}", Random::fresh().next() >> 32));
    let (tally, locks) = (Arc::new(Tally::default()), Locks::new());
    let inspector = Inspector::open(&store, &locks, options).await?;
    let stage = Stage { options, site, store: &store, shop: &shop, tally: &tally, locks: &locks };
    let mut stopped = false;
    let whole = tokio::select! {
        played = Box::pin(stage.play()) => played?,
        () = interrupted => {
            stopped = true;
            false
        }
    };
    let proof = Proof::find(&store, &shop, &tally, whole).await?;
    proof.print(options.output)?;
    if options.stay && !stopped {
        inspector.stay().await?;
    }
    inspector.close().await;
    opened.close().await;
    Ok(proof.holds)
}

/// Where everything comes together.
struct Stage<'a> {
    options: &'a Demo,
    site: &'a Site,
    store: &'a SharedStore,
    shop: &'a Shop,
    tally: &'a Arc<Tally>,
    locks: &'a Locks,
}

impl Stage<'_> {
    /// Everybody at work. Returns whether nothing was left to do at the end. When this future is dropped, the workers are killed
    /// with it.
    async fn play(&self) -> Result<bool> {
        let events = Events::new(Arc::clone(self.store));
        for item in ITEMS {
            events.append::<Stock>(self.shop.named(item), [Stock::default().fill(None)]).await?;
        }
        let started = Instant::now();
        let mut crew = Crew::start(self.site.address(), self.shop, self.options.workers, self.tally)?;
        let (store, shop, tally) = (Arc::clone(self.store), self.shop.clone(), Arc::clone(self.tally));
        let customers = Customers {
            store,
            shop,
            tally,
            locks: self.locks.clone(),
            next: Arc::new(1.into()),
            pieces: Arc::default(),
        };
        let whole = async {
            let load_ends = started + self.options.seconds.mul_f64(LOAD_SHARE);
            let chaos_ends = started + self.options.seconds;
            tokio::try_join!(customers.buy(load_ends), crew.kill_at_random(chaos_ends))?;
            let drained = self.drain(&mut crew).await?;
            crew.dismiss().await;
            self.close().await?;
            anyhow::Ok(drained)
        };
        tokio::select! {
            done = whole => done,
            never = self.show() => never,
        }
    }

    /// Waits until nothing is left to do; `false` when that takes too long.
    async fn drain(&self, crew: &mut Crew) -> Result<bool> {
        let (started, until) = (Instant::now(), self.store.now().await?);
        while started.elapsed() < DRAIN {
            if ledger::is_settled(self.store, self.shop, self.tally, until).await? {
                return Ok(true);
            }
            crew.replace_the_fallen()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(false)
    }

    /// Nobody takes stock any more: in a file that stays, the task would be late for ever.
    async fn close(&self) -> Result<()> {
        let empty = Scheduler::new(Arc::clone(self.store)).name(self.shop.scheduler());
        empty.start().await?.shutdown().await;
        Ok(())
    }

    /// A line on the terminal that lives; nothing when standard error is not one.
    async fn show(&self) -> Result<bool> {
        let line = ProgressBar::new_spinner();
        line.enable_steady_tick(Duration::from_millis(120));
        loop {
            let shipped = self.shop.shipped(&**self.store).await?;
            let (asked, kills) = (self.tally.asked(), self.tally.kills.load(Ordering::Relaxed));
            let under_way = asked.saturating_sub(shipped);
            line.set_message(format!(
                "ordered {asked} · shipped {shipped} · under way {under_way} · workers killed {kills}"
            ));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
