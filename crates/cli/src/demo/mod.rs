//! `tidelock demo`: worker processes on one store are killed at random, and at the end the numbers are laid open.
//!
//! The parent asks (it places orders) and counts; it never ships. Workers ship, and never outlive the parent. If the
//! parent is killed, the workers end by themselves and the file or the schema stays as it is.

mod crew;
mod load;
mod proof;
mod shop;
mod site;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::ProgressBar;
use tidelock::prelude::*;

use self::crew::Crew;
use self::proof::Proof;
use self::shop::Shop;
use self::site::Site;
use crate::args::Demo;
use crate::exit::Exit;

pub(crate) use worker::work;

/// Orders come in for this share of the time; workers are killed to its end.
const LOAD_SHARE: f64 = 0.85;
/// The time in which what is left must be done, once nobody is killed any more.
const DRAIN: Duration = Duration::from_secs(60);

/// Plays the whole piece and proves how it ended.
pub(crate) async fn run(options: Demo) -> Result<Exit> {
    let site = Site::choose(&options).await?;
    let proof = Box::pin(perform(&options, &site)).await;
    let shown = proof.and_then(|proof| proof.print(options.output).map(|()| proof.holds));
    site.leave(&options).await?;
    Ok(if shown? { Exit::Well } else { Exit::Failed })
}

async fn perform(options: &Demo, site: &Site) -> Result<Proof> {
    let opened = site.address().open().await?;
    let store = opened.shared();
    let shop = Shop::new(&uuid::Uuid::now_v7().simple().to_string())?;
    let tally = Arc::new(Tally::default());
    let whole = tokio::select! {
        played = Box::pin(play(options, site, &*store, &shop, &tally)) => played?,
        asked_to_stop = tokio::signal::ctrl_c() => {
            asked_to_stop?;
            false
        }
    };
    let proof = Proof::find(&*store, &shop, &tally, whole).await?;
    opened.close().await;
    Ok(proof)
}

/// Everybody at work. Returns whether nothing was left to do at the end. When this future is dropped, the workers
/// are killed with it.
async fn play(
    options: &Demo,
    site: &Site,
    store: &dyn Store,
    shop: &Shop,
    tally: &Arc<Tally>,
) -> Result<bool> {
    let started = Instant::now();
    let mut crew = Crew::start(site.address(), shop, options.workers, tally)?;
    let whole = async {
        let load_ends = started + options.seconds.mul_f64(LOAD_SHARE);
        let chaos_ends = started + options.seconds;
        tokio::try_join!(load::place_orders(store, shop, tally, load_ends), crew.kill_at_random(chaos_ends))?;
        let drained = drain(store, shop, &mut crew).await?;
        crew.dismiss().await;
        anyhow::Ok(drained)
    };
    tokio::select! {
        done = whole => done,
        never = show(store, shop, tally) => never,
    }
}

/// Waits until no work is left; `false` when that takes too long.
async fn drain(store: &dyn Store, shop: &Shop, crew: &mut Crew) -> Result<bool> {
    let started = Instant::now();
    while started.elapsed() < DRAIN {
        if store.count_work(&shop.all_jobs()).await? == 0 {
            return Ok(true);
        }
        crew.replace_the_fallen()?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(false)
}

/// A line on the terminal that lives; nothing when standard error is not one.
async fn show(store: &dyn Store, shop: &Shop, tally: &Tally) -> Result<bool> {
    let line = ProgressBar::new_spinner();
    line.enable_steady_tick(Duration::from_millis(120));
    loop {
        let waiting = store.count_work(&shop.all_jobs()).await?;
        let shipped = shop.counters(store).await?.shipped;
        let (asked, kills) = (tally.asked(), tally.kills.load(Ordering::Relaxed));
        line.set_message(format!("asked {asked} · shipped {shipped} · waiting {waiting} · killed {kills}"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What the parent knows by itself.
#[derive(Debug, Default)]
struct Tally {
    /// Orders whose receipt came back.
    receipts: Mutex<BTreeSet<u64>>,
    /// Orders that were placed twice under one id, and recognised.
    recognised: AtomicU64,
    /// Workers that were killed.
    kills: AtomicU64,
    /// Workers that ended by themselves, which none should.
    fallen: AtomicU64,
    /// Errors that reached a worker, by code.
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    fn asked(&self) -> usize {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn add_receipt(&self, order: u64) {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).insert(order);
    }

    fn add_error(&self, code: &str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(code.to_owned()).or_default() += 1;
    }
}
