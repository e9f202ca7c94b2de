//! Observed results of the demo: the log, read once from start to end, and the documents, runs and carts.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;
use tidelock::prelude::*;
use tidelock::store::{Event, EventFilter};
use tidelock::workflow::{RunFilter, RunStatus, WorkflowClient};

use super::expected::{Expected, Piece};
use super::load::CUSTOMERS;
use super::shop::{
    Cart, Done, ITEMS, LEFT, Lines, Order, PAID, PLACED, SHIPPED, Sales, Shop, Stock, StockEvent,
};

const PAGE: usize = 5_000;

/// The events of one order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) placed: u64,
    pub(crate) paid: u64,
    pub(crate) shipped: u64,
    /// The number of times its parcel left a gate.
    pub(crate) left: u64,
    /// The customer and the ordered items.
    pub(crate) customer: usize,
    pub(crate) lines: Lines,
    /// The number of reservations and the number of pieces, per item.
    pub(crate) reserved: BTreeMap<String, (u64, u64)>,
}

impl Entry {
    /// Returns whether any effect happened twice.
    pub(crate) fn is_doubled(&self) -> bool {
        let once = [self.placed, self.paid, self.shipped, self.left];
        let taken = self.reserved.values().map(|(times, _)| times);
        once.iter().chain(taken).any(|times| *times > 1)
    }

    /// Returns the difference between the reserved and the ordered pieces, summed over all items.
    fn astray(&self) -> u64 {
        let gap = |item| {
            let ordered = self.lines.get(item).map_or(0, |pieces| pieces.len() as u64);
            ordered.abs_diff(self.reserved.get(item).map_or(0, |(_, pieces)| *pieces))
        };
        ITEMS.into_iter().map(gap).sum()
    }
}

/// The events of one shelf.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf {
    /// The numbers of received and reserved pieces.
    received: u64,
    reserved: u64,
    /// The counts that the sales reaction should have reached.
    sales: Sales,
    /// The number of refills for each `RanLow`, by its version. `None` is the first filling, which answers no event.
    fillings: BTreeMap<Option<u64>, u64>,
    /// The versions of `RanLow`.
    ran_low: Vec<u64>,
}

/// The refills of the shelves that ran low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refills {
    pub(crate) all: u64,
    /// Refills beyond one for each shelf that ran low.
    pub(crate) doubled: u64,
    /// Shelves that ran low and were not refilled.
    pub(crate) left_out: u64,
}

impl Shelf {
    fn add_to(&self, refills: &mut Refills) {
        let wanted = self.ran_low.iter().copied().map(Some).chain([None]);
        refills.left_out += wanted.clone().filter(|one| !self.fillings.contains_key(one)).count() as u64;
        let times: u64 = self.fillings.values().sum();
        let good = wanted.filter(|one| self.fillings.contains_key(one)).count() as u64;
        refills.doubled += times - good;
        refills.all += times - self.fillings.get(&None).copied().unwrap_or_default();
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) orders: BTreeMap<u64, Entry>,
    /// The fencing tokens of the parcels that left, per gate, in log order.
    pub(crate) gates: BTreeMap<Key, Vec<u64>>,
    pub(crate) shelves: BTreeMap<String, Shelf>,
    /// Attempts beyond the first: of reservations, and of all other steps.
    pub(crate) conflicts: u64,
    pub(crate) retries: u64,
    /// Steps that one process started and another completed.
    pub(crate) rerun: u64,
    /// Takeovers of runs.
    pub(crate) takeovers: u64,
}

impl Observed {
    /// Reads the log.
    pub(crate) async fn read(store: &dyn Store, shop: &Shop) -> Result<Self> {
        let mut ledger = Self::default();
        for range in [shop.all("order"), shop.all("gate"), KeyPrefix::kind("stock")] {
            let filter = EventFilter { streams: Some(range), ..EventFilter::default() };
            let mut query = LogQuery { filter, ..LogQuery::all(PAGE) };
            loop {
                let page = store.read_log(query.clone()).await?;
                for event in &page.events {
                    ledger.add(shop, event)?;
                }
                if page.end {
                    break;
                }
                query.after = page.scanned_to;
            }
        }
        Ok(ledger)
    }

    fn add(&mut self, shop: &Shop, event: &Event) -> Result<()> {
        match (event.event_type.as_str(), Shop::number(&event.stream)) {
            (LEFT, _) => {
                let done: Done = event.payload.parse()?;
                self.orders.entry(done.order).or_default().left += 1;
                self.gates.entry(event.stream.clone()).or_default().extend(done.fence);
            }
            (PLACED, Some(number)) => {
                let order: Order = event.payload.parse()?;
                let entry = self.orders.entry(number).or_default();
                entry.placed += 1;
                (entry.customer, entry.lines) = (order.customer, order.lines);
            }
            (PAID, Some(number)) => {
                let done: Done = event.payload.parse()?;
                self.orders.entry(number).or_default().paid += 1;
                self.retries += u64::from(done.attempt.saturating_sub(1));
                self.rerun += u64::from(done.again && done.attempt == 1);
            }
            (SHIPPED, Some(number)) => {
                let done: Done = event.payload.parse()?;
                self.orders.entry(number).or_default().shipped += 1;
                self.takeovers += u64::from(done.takeovers);
                self.retries += u64::from(done.attempt.saturating_sub(1));
                self.rerun += u64::from(done.again && done.attempt == 1);
            }
            _ => self.add_to_shelf(shop, event)?,
        }
        Ok(())
    }

    fn add_to_shelf(&mut self, shop: &Shop, event: &Event) -> Result<()> {
        let args = event.stream.args();
        let Some(Arg::Str(shelf)) = args.first() else { return Ok(()) };
        let Some(item) = shop.without_run(shelf) else { return Ok(()) };
        let shelf = self.shelves.entry(item.to_owned()).or_default();
        match tidelock::events::decode(&event.event_type, &event.payload)? {
            StockEvent::Received { count, answers } => {
                shelf.received += u64::from(count);
                *shelf.fillings.entry(answers).or_default() += 1;
            }
            StockEvent::RanLow { .. } => shelf.ran_low.push(event.version.0),
            StockEvent::Reserved { count, done } => {
                shelf.reserved += u64::from(count);
                shelf.sales.add(Sales::of(done.order, count));
                let order = self.orders.entry(done.order).or_default();
                let (times, pieces) = order.reserved.entry(item.to_owned()).or_default();
                (*times, *pieces) = (*times + 1, *pieces + u64::from(count));
                self.conflicts += u64::from(done.attempt.saturating_sub(1));
                self.rerun += u64::from(done.again && done.attempt == 1);
            }
        }
        Ok(())
    }

    /// Returns the number of lost or surplus pieces. A piece put into a cart must be exactly once in an order or a cart of the same
    /// customer. An ordered piece must be reserved. The pieces on a shelf must agree with its events.
    pub(crate) async fn astray(&self, store: &SharedStore, shop: &Shop, put: Vec<Piece>) -> Result<u64> {
        let mut astray = self.unbalanced(put, in_carts(store, shop).await?);
        astray += self.orders.values().map(Entry::astray).sum::<u64>();
        let events = Events::new(store.clone());
        for (item, shelf) in &self.shelves {
            let left = u64::from(events.load::<Stock>(shop.named(item)).await?.state.left);
            astray += shelf.received.abs_diff(shelf.reserved + left);
        }
        Ok(astray)
    }

    /// Returns the number of pieces that are lost or surplus. A piece is lost if it was put into a cart and is nowhere. It is surplus if
    /// it was never put there, or appears twice.
    fn unbalanced(&self, put: Vec<Piece>, in_carts: Vec<Piece>) -> u64 {
        let mut balance: BTreeMap<Piece, i64> = BTreeMap::new();
        for piece in put {
            *balance.entry(piece).or_default() += 1;
        }
        let ordered = self.orders.values().flat_map(|order| of_customer(order.customer, &order.lines));
        for piece in ordered.chain(in_carts) {
            *balance.entry(piece).or_default() -= 1;
        }
        balance.values().map(|left| left.unsigned_abs()).sum()
    }

    /// Returns the difference between the counted sales and the reserved pieces.
    pub(crate) async fn miscounted(&self, store: &dyn Store, shop: &Shop) -> Result<u64> {
        let mut differ = 0;
        for item in ITEMS {
            let taken = self.shelves.get(item).map(|shelf| shelf.sales).unwrap_or_default();
            differ += taken.apart(sold(store, shop, item).await?);
        }
        Ok(differ)
    }

    /// Returns the refills of the shelves that ran low. Each must be refilled exactly once.
    pub(crate) fn refills(&self) -> Refills {
        let mut refills = Refills::default();
        self.shelves.values().for_each(|shelf| shelf.add_to(&mut refills));
        refills
    }

    /// Returns the number of parcels whose fencing token is not above the previous one at the gate. Each shows two workers at the gate at
    /// once.
    pub(crate) fn collided(&self) -> u64 {
        let stale =
            |fences: &Vec<u64>| fences.iter().zip(fences.iter().skip(1)).filter(|(a, b)| a >= b).count();
        self.gates.values().map(stale).sum::<usize>() as u64
    }
}

/// Returns the status of all runs, by order number.
pub(crate) async fn runs(store: &SharedStore, shop: &Shop) -> Result<BTreeMap<u64, RunStatus>> {
    let client = WorkflowClient::new(store.clone());
    let filter = RunFilter { prefix: Some(shop.named("")), ..RunFilter::default() };
    let (mut runs, mut after) = (BTreeMap::new(), None);
    loop {
        let page = client.list(&filter, after.as_ref(), 500).await?;
        for run in page.runs {
            if let Some(number) = shop.without_run(&run.run).and_then(|number| number.parse().ok()) {
                runs.insert(number, run.status);
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(runs);
        }
    }
}

/// Returns whether all orders are completed and stock was taken up to an instant. It uses only cheap queries; the proof checks in detail.
pub(crate) async fn is_settled(
    store: &SharedStore,
    shop: &Shop,
    tally: &Expected,
    until: Timestamp,
) -> Result<bool> {
    if shop.shipped(&**store).await? < tally.asked() {
        return Ok(false);
    }
    let (mut counted, ordered) = (0, tally.receipts().values().sum::<u64>());
    for item in ITEMS {
        counted += sold(&**store, shop, item).await?.sold;
    }
    if counted < ordered || !is_taken(&fires(&**store, shop).await?, until) {
        return Ok(false);
    }
    let events = Events::new(store.clone());
    for item in ITEMS {
        if events.load::<Stock>(shop.named(item)).await?.state.is_low() {
            return Ok(false);
        }
    }
    let running =
        RunFilter { prefix: Some(shop.named("")), status: Some(RunStatus::Running), ..RunFilter::default() };
    Ok(WorkflowClient::new(store.clone()).list(&running, None, 1).await?.runs.is_empty())
}

/// Returns the fires for which stock was taken.
async fn fires(store: &dyn Store, shop: &Shop) -> Result<Vec<i64>> {
    #[derive(Default, Deserialize)]
    struct Takes {
        fires: Vec<i64>,
    }
    let document = store.document(&shop.takes()?).await?;
    Ok(document.map(|found| found.value.parse::<Takes>()).transpose()?.unwrap_or_default().fires)
}

/// Returns whether no fire is missing between the last one and an instant. A stopped schedule would show no gap before its last fire.
fn is_taken(fires: &[i64], until: Timestamp) -> bool {
    let last = fires.iter().max().map(|last| Timestamp::from_micros(*last));
    last.is_some_and(|last| last.after(super::worker::TAKE_EVERY) >= until)
}

/// Returns the number of stock-takings, of duplicates for one fire, and of fires missing between the first and the last.
pub(crate) async fn takes(store: &dyn Store, shop: &Shop) -> Result<(u64, u64, u64)> {
    let mut fires = fires(store, shop).await?;
    let all = fires.len() as u64;
    fires.sort_unstable();
    fires.dedup();
    let doubled = all - fires.len() as u64;
    let every = i64::try_from(super::worker::TAKE_EVERY.as_micros())?;
    let due = fires.first().zip(fires.last()).map_or(0, |(first, last)| (last - first) / every + 1);
    Ok((all, doubled, u64::try_from(due)?.abs_diff(fires.len() as u64)))
}

async fn sold(store: &dyn Store, shop: &Shop, item: &str) -> Result<Sales> {
    let document = store.document(&shop.sales(item)?).await?;
    Ok(document.map(|found| found.value.parse()).transpose()?.unwrap_or_default())
}

async fn in_carts(store: &SharedStore, shop: &Shop) -> Result<Vec<Piece>> {
    let (states, mut all) = (StateRegistry::new(store.clone()), Vec::new());
    for customer in 0..CUSTOMERS {
        let cart = states.state::<Cart>(&shop.customer(customer), "cart")?;
        all.extend(of_customer(customer, &cart.get().await?.lines));
    }
    Ok(all)
}

/// Returns the pieces of a customer.
fn of_customer(customer: usize, lines: &Lines) -> impl Iterator<Item = Piece> {
    lines
        .iter()
        .flat_map(move |(item, pieces)| pieces.iter().map(move |piece| (customer, item.clone(), *piece)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_stopped_or_never_began_has_not_taken_all() {
        let until = Timestamp::from_micros(10_000_000);
        assert!(!is_taken(&[], until));
        assert!(!is_taken(&[9_000_000, 9_499_999], until));
        assert!(is_taken(&[9_000_000, 9_500_000], until));
    }
}
