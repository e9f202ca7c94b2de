//! The proof: what the log, the queue and the counters say after everybody has gone home.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock::store::EventFilter;

use super::Tally;
use super::shop::{PLACED, SHIPPED, Shop};
use crate::args::Format;
use crate::output::{self, Tone};

const PAGE: usize = 5_000;

/// The numbers, each from its own source.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Proof {
    /// Whether the demo came to its end, with nothing left to do.
    whole: bool,
    /// Orders whose receipt the parent got.
    asked: u64,
    /// Orders with a shipping in the log.
    done: u64,
    /// Orders that still wait in the queue.
    waiting: u64,
    /// Orders with a receipt that are neither shipped nor waiting.
    lost: u64,
    /// Orders that were placed or shipped more than once.
    doubled: u64,
    /// Orders in the log that nobody has a receipt for.
    unasked: u64,
    /// Shippings that the workers' counter shows.
    counted: u64,
    /// Shippings in the log.
    shipments: u64,
    /// Workers that were killed.
    kills: u64,
    /// Workers that ended by themselves.
    fallen: u64,
    /// Leases that ran out, so that somebody else went on.
    takeovers: u64,
    /// Writes of workers that had lost their lease, all refused.
    fenced: u64,
    /// Attempts that failed on purpose and were tried again.
    retries: u64,
    /// Orders that were placed twice under one id, and recognised.
    recognised: u64,
    /// Errors that reached a worker, by code.
    errors: BTreeMap<String, u64>,
    /// Whether nothing was lost and nothing doubled.
    pub(crate) holds: bool,
}

/// What the log says about one order.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    placed: u64,
    shipped: u64,
    takeovers: u64,
}

/// The part of a shipping that the proof reads.
#[derive(Debug, Deserialize)]
struct Shipping {
    takeovers: u64,
}

impl Proof {
    /// Asks the store for every number.
    pub(crate) async fn find(store: &dyn Store, shop: &Shop, tally: &Tally, whole: bool) -> Result<Self> {
        let orders = read_log(store, shop).await?;
        let queue = read_queue(store, shop).await?;
        let counters = shop.counters(store).await?;
        let receipts = tally.receipts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let errors = tally.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shipped = |number: &u64| orders.get(number).is_some_and(|order| order.shipped > 0);
        let placed = |number: &u64| orders.get(number).is_some_and(|order| order.placed > 0);
        let lost = |number: &&u64| !placed(number) || !(shipped(number) || queue.contains(number));
        let proof = Self {
            whole,
            asked: count(&receipts),
            done: receipts.iter().filter(|number| shipped(number)).count() as u64,
            waiting: count(&queue),
            lost: receipts.iter().filter(lost).count() as u64,
            doubled: orders.values().filter(|order| order.placed > 1 || order.shipped > 1).count() as u64,
            unasked: orders.keys().filter(|number| !receipts.contains(number)).count() as u64,
            counted: counters.shipped,
            shipments: orders.values().map(|order| order.shipped).sum(),
            kills: tally.kills.load(Ordering::Relaxed),
            fallen: tally.fallen.load(Ordering::Relaxed),
            takeovers: orders.values().map(|order| order.takeovers).sum(),
            fenced: counters.fenced,
            retries: counters.retries,
            recognised: tally.recognised.load(Ordering::Relaxed),
            errors,
            holds: false,
        };
        Ok(Self { holds: proof.verdict(), ..proof })
    }

    fn verdict(&self) -> bool {
        let exact =
            self.lost == 0 && self.doubled == 0 && self.unasked == 0 && self.counted == self.shipments;
        self.whole && exact && self.waiting == 0 && self.done == self.asked
    }

    /// Prints the numbers and where each comes from.
    pub(crate) fn print(&self, format: Format) -> Result<()> {
        if format == Format::Json {
            return output::json(self);
        }
        let mut table = output::table(&["", "number", "where it comes from"], &[1]);
        for (name, number, source) in self.lines() {
            table.add_row([name.to_owned(), output::number(number), source.to_owned()]);
        }
        output::say(table)?;
        if !self.errors.is_empty() {
            output::say(format_args!("errors that reached a worker, by code: {:?}", self.errors))?;
        }
        let (tone, text) = match (self.holds, self.whole) {
            (true, _) => (Tone::Good, "✓ the proof holds: everything that was asked was done, exactly once"),
            (false, false) => {
                (Tone::Caution, "the demo was stopped before all was done: these are the numbers so far")
            }
            (false, true) => {
                (Tone::Bad, "✗ the proof does not hold; please report this with the file (--keep)")
            }
        };
        output::say(output::styled(text, tone))
    }

    fn lines(&self) -> Vec<(&'static str, u64, &'static str)> {
        vec![
            ("asked", self.asked, "receipts that the parent got for OrderPlaced + job, one batch each"),
            ("done", self.done, "of these, order streams with OrderShipped in the log (read_log)"),
            ("waiting", self.waiting, "rows left in the shipping lane (works)"),
            ("lost", self.lost, "receipts without OrderPlaced in the log, or neither shipped nor waiting"),
            ("doubled", self.doubled, "order streams with two OrderPlaced or two OrderShipped"),
            ("unasked", self.unasked, "orders in the log without a receipt"),
            ("shipments", self.shipments, "all OrderShipped events in the log"),
            ("counted", self.counted, "the document that each shipping increments in its own commit"),
            ("kills", self.kills, "SIGKILLs that the parent sent to workers"),
            ("fallen", self.fallen, "workers that ended by themselves, which none should"),
            (
                "take-overs",
                self.takeovers,
                "sum of `takeovers` in the OrderShipped events: leases that ran out",
            ),
            (
                "fenced",
                self.fenced,
                "stale writes that the store refused, counted by the workers that survived them",
            ),
            (
                "retries",
                self.retries,
                "attempts that failed on purpose, counted in the commit that failed them",
            ),
            (
                "recognised",
                self.recognised,
                "batches sent twice under one op_id and answered with the first receipt",
            ),
        ]
    }
}

fn count(set: &BTreeSet<u64>) -> u64 {
    set.len() as u64
}

async fn read_log(store: &dyn Store, shop: &Shop) -> Result<BTreeMap<u64, Order>> {
    let mut orders: BTreeMap<u64, Order> = BTreeMap::new();
    let filter = EventFilter { streams: Some(shop.orders()), ..EventFilter::default() };
    let mut query = LogQuery { filter, ..LogQuery::all(PAGE) };
    loop {
        let page = store.read_log(query.clone()).await?;
        for event in page.events {
            let Some(number) = Shop::number(&event.stream) else { continue };
            let order = orders.entry(number).or_default();
            order.placed += u64::from(event.event_type.as_str() == PLACED);
            if event.event_type.as_str() == SHIPPED {
                order.shipped += 1;
                order.takeovers += event.payload.parse::<Shipping>()?.takeovers;
            }
        }
        if page.end {
            return Ok(orders);
        }
        query.after = page.scanned_to;
    }
}

async fn read_queue(store: &dyn Store, shop: &Shop) -> Result<BTreeSet<u64>> {
    let mut waiting = BTreeSet::new();
    let mut page = Page::first(PAGE);
    loop {
        let found = store.works(&shop.all_jobs(), page).await?;
        waiting.extend(found.rows.iter().filter_map(|row| Shop::number(&row.key)));
        let Some(next) = found.next else { return Ok(waiting) };
        page = Page::after(&next, PAGE);
    }
}

#[cfg(test)]
mod tests;
