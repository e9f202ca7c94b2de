//! Data model of the demo shop: names, stock and orders. The parent and its workers share it.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock::workflow::Workflow;

use crate::random::Random;

/// The items for sale.
pub(crate) const ITEMS: [&str; 5] = ["apples", "bread", "cheese", "dates", "eggs"];
/// The number of gates that parcels leave by. Each gate admits one worker at a time.
pub(crate) const GATES: u64 = 4;
/// The events of an order. A completed order has one of each.
pub(crate) const PLACED: &str = "OrderPlaced";
pub(crate) const PAID: &str = "OrderPaid";
pub(crate) const SHIPPED: &str = "OrderShipped";
/// The event of a gate.
pub(crate) const LEFT: &str = "ParcelLeft";
/// The workflow of an order; see [`order_workflow`](super::order_workflow).
pub(crate) const ORDER: Workflow<Order, u64> = Workflow::new("order");

/// The number of pieces on a full shelf, small enough that shelves run low even in a short demo.
const FULL: u32 = 120;
/// The number of pieces below which more are ordered.
const LOW: u32 = 60;

/// Items and the pieces of each. Piece numbers are unique, so that a lost piece cannot offset a duplicate.
pub(crate) type Lines = BTreeMap<String, Vec<u64>>;

/// Returns the total number of pieces.
pub(crate) fn pieces(lines: &Lines) -> u64 {
    lines.values().map(|pieces| pieces.len() as u64).sum()
}

/// The stored cart of a customer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cart {
    pub(crate) lines: Lines,
}

/// An order of a customer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) customer: usize,
    pub(crate) lines: Lines,
}

/// How an event of an order or a gate came about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) order: u64,
    pub(crate) worker: String,
    /// The attempt number.
    pub(crate) attempt: u32,
    /// Whether an earlier attempt of the step may have started in a process that died or was suspended.
    pub(crate) again: bool,
    /// The number of takeovers of the run so far.
    pub(crate) takeovers: u32,
    /// The fencing token of the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
}

/// One shelf.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stock {
    pub(crate) left: u32,
    /// Whether more has been ordered.
    low: bool,
}

/// An event of a shelf.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum StockEvent {
    /// `answers` is the version of the `RanLow` event that caused it; `None` for the first filling.
    Received {
        count: u32,
        answers: Option<u64>,
    },
    Reserved {
        count: u32,
        done: Done,
    },
    RanLow {
        left: u32,
    },
}

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        match event {
            StockEvent::Received { count, .. } => {
                self.left += count;
                self.low = false;
            }
            StockEvent::Reserved { count, .. } => self.left = self.left.saturating_sub(*count),
            StockEvent::RanLow { .. } => self.low = true,
        }
    }
}

/// The error for a shelf with too few pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoldOut;

impl Stock {
    pub(crate) fn reserve(&self, count: u32, done: &Done) -> Result<Vec<StockEvent>, SoldOut> {
        let left = self.left.checked_sub(count).ok_or(SoldOut)?;
        let mut events = vec![StockEvent::Reserved { count, done: done.clone() }];
        if left < LOW && !self.low {
            events.push(StockEvent::RanLow { left });
        }
        Ok(events)
    }

    /// Fills the shelf. A full shelf also gets an event, so that a duplicate reaction becomes visible.
    pub(crate) fn fill(&self, answers: Option<u64>) -> StockEvent {
        StockEvent::Received { count: FULL.saturating_sub(self.left), answers }
    }

    /// Returns whether more has been ordered and has not arrived yet.
    pub(crate) fn is_low(&self) -> bool {
        self.low
    }
}

/// The counted sales of one item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sales {
    /// The number of pieces.
    pub(crate) sold: u64,
    /// The number of sales, one per order.
    pub(crate) sales: u64,
    /// Identifies the counted sales: the sum of one number per sale. A missing sale cannot offset one that was counted twice.
    pub(crate) checksum: u64,
}

impl Sales {
    /// Returns the counts of one sale.
    pub(crate) fn of(order: u64, count: u32) -> Self {
        let mark = Random::seeded(order.rotate_left(32) ^ u64::from(count)).next();
        // 32 bits: the sum of a million such numbers is still exact in every JSON reader.
        Self { sold: count.into(), sales: 1, checksum: mark >> 32 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.sold += other.sold;
        self.sales += other.sales;
        self.checksum += other.checksum;
    }

    /// Returns the difference of two counts; never 0 when they differ.
    pub(crate) fn apart(self, other: Self) -> u64 {
        let counted = self.sold.abs_diff(other.sold).max(self.sales.abs_diff(other.sales));
        counted.max(u64::from(self != other))
    }
}

/// The part of a store that belongs to one demo. Several demos may share a file.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    run: String,
}

impl Shop {
    /// Creates the shop of a demo.
    pub(crate) fn new(run: &str) -> Self {
        Self { run: run.to_owned() }
    }

    /// Returns the name of the demo.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// Returns a name prefixed with the name of the demo.
    pub(crate) fn named(&self, name: impl std::fmt::Display) -> String {
        format!("{}-{name}", self.run)
    }

    /// Strips the name of the demo from a prefixed name.
    pub(crate) fn without_run<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.run.as_str())?.strip_prefix('-')
    }

    /// Returns the stream of an order.
    pub(crate) fn order(&self, number: u64) -> Result<Key> {
        Ok(Key::of("order", &[Arg::Str(self.run.clone()), Arg::Int(i64::try_from(number)?)])?)
    }

    /// Returns the gate that an order leaves by. It names a lock, a lease and a stream.
    pub(crate) fn gate_of(&self, order: u64) -> Result<Key> {
        self.gate(order % GATES)
    }

    fn gate(&self, gate: u64) -> Result<Key> {
        Ok(Key::of("gate", &[Arg::Str(self.run.clone()), Arg::Int(i64::try_from(gate)?)])?)
    }

    /// Returns the prefix of all streams of one kind in this demo.
    pub(crate) fn all(&self, kind: &str) -> KeyPrefix {
        KeyPrefix::under(kind, &[Arg::Str(self.run.clone())])
    }

    /// Returns the scope of a customer's cart.
    pub(crate) fn customer(&self, customer: usize) -> Scope {
        Scope::user(self.named(format_args!("customer-{customer}")))
    }

    /// Returns the document with the counted sales of an item.
    pub(crate) fn sales(&self, item: &str) -> Result<Key> {
        Ok(Key::new("sales", [self.run.as_str(), item])?)
    }

    /// Counts one sale.
    pub(crate) fn sell(&self, item: &str, sale: Sales) -> Result<Batch> {
        let counts = [("/sold", sale.sold), ("/sales", sale.sales), ("/checksum", sale.checksum)];
        let by = |(path, by)| Ok(Delta::inc(path, i64::try_from(by)?));
        let deltas: Vec<Delta> = counts.into_iter().map(by).collect::<Result<_>>()?;
        Ok(Batch::new().merge_or_create(&self.sales(item)?, Payload::of(&Sales::default())?, deltas))
    }

    /// Returns the name of the scheduler. A name shared with other demos in the file would archive their tasks.
    pub(crate) fn scheduler(&self) -> String {
        self.named("shop")
    }

    /// Returns the document of the fires that have run.
    pub(crate) fn takes(&self) -> Result<Key> {
        Ok(Key::new("stock-takes", [self.run.as_str()])?)
    }

    /// Returns the number of parcels that have left. Each is an event in the stream of its gate.
    pub(crate) async fn shipped(&self, store: &dyn Store) -> Result<u64> {
        let mut shipped = 0;
        for gate in 0..GATES {
            shipped += store
                .stream(&self.gate(gate)?)
                .await?
                .map_or(0, |gate| gate.head.map_or(0, |head| head.0 + 1));
        }
        Ok(shipped)
    }

    /// Returns the last part of a key if it is a number.
    pub(crate) fn number(key: &Key) -> Option<u64> {
        match key.args().last() {
            Some(Arg::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }
}
