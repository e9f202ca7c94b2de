//! The shop: what its things are called, what is on its shelves, and what happens to an order. The parent and its workers share it.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock::workflow::Workflow;

/// What is sold.
pub(crate) const ITEMS: [&str; 5] = ["apples", "bread", "cheese", "dates", "eggs"];
/// How many gates parcels leave by. At each there is one worker at a time.
pub(crate) const GATES: u64 = 4;
/// The events that an order consists of, one of each in the end.
pub(crate) const PLACED: &str = "OrderPlaced";
pub(crate) const PAID: &str = "OrderPaid";
pub(crate) const SHIPPED: &str = "OrderShipped";
/// The event of a gate.
pub(crate) const LEFT: &str = "ParcelLeft";
/// What an order goes through; see [`desk`](super::desk).
pub(crate) const ORDER: Workflow<Order, u64> = Workflow::new("order");

/// How many of an item are on the shelf.
const FULL: u32 = 2_000;
/// With less than this, more is ordered.
const LOW: u32 = 500;

/// Items, and how many of each.
pub(crate) type Lines = BTreeMap<String, u32>;

/// How many items there are in all.
pub(crate) fn items(lines: &Lines) -> u64 {
    lines.values().copied().map(u64::from).sum()
}

/// The cart of a customer, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cart {
    pub(crate) lines: Lines,
}

/// What a customer ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) lines: Lines,
}

/// What an event of an order or a gate says about the way it came about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) order: u64,
    pub(crate) worker: String,
    /// The how manieth attempt it was.
    pub(crate) attempt: u32,
    /// Whether the step may have been begun before, by a process that died or stood still.
    pub(crate) again: bool,
    /// How often the run was taken over so far.
    pub(crate) takeovers: u32,
    /// The fence of the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
}

/// One shelf.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stock {
    pub(crate) left: u32,
    /// More has been ordered.
    low: bool,
}

/// What happens on a shelf.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum StockEvent {
    Received { count: u32 },
    Reserved { count: u32, done: Done },
    RanLow { left: u32 },
}

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        match event {
            StockEvent::Received { count } => {
                self.left += count;
                self.low = false;
            }
            StockEvent::Reserved { count, .. } => self.left = self.left.saturating_sub(*count),
            StockEvent::RanLow { .. } => self.low = true,
        }
    }
}

/// There is not enough on the shelf.
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

    /// Fills the shelf.
    pub(crate) fn fill(&self) -> Option<StockEvent> {
        FULL.checked_sub(self.left).filter(|count| *count > 0).map(|count| StockEvent::Received { count })
    }
}

/// One demo's part of a store. Several may share a file.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    run: String,
}

impl Shop {
    /// The shop of a demo.
    pub(crate) fn new(run: &str) -> Self {
        Self { run: run.to_owned() }
    }

    /// The name of the demo.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// A name with the demo's before it.
    pub(crate) fn named(&self, name: impl std::fmt::Display) -> String {
        format!("{}-{name}", self.run)
    }

    /// What a name that begins with the demo's goes on with.
    pub(crate) fn without_run<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.run.as_str())?.strip_prefix('-')
    }

    /// The stream of an order.
    pub(crate) fn order(&self, number: u64) -> Result<Key> {
        Ok(Key::of("order", &[Arg::Str(self.run.clone()), Arg::Int(i64::try_from(number)?)])?)
    }

    /// The gate that an order leaves by: the name of a lock, of a lease and of a stream.
    pub(crate) fn gate_of(&self, order: u64) -> Result<Key> {
        self.gate(order % GATES)
    }

    fn gate(&self, gate: u64) -> Result<Key> {
        Ok(Key::of("gate", &[Arg::Str(self.run.clone()), Arg::Int(i64::try_from(gate)?)])?)
    }

    /// All streams of a kind of this demo.
    pub(crate) fn all(&self, kind: &str) -> KeyPrefix {
        KeyPrefix::under(kind, &[Arg::Str(self.run.clone())])
    }

    /// Where a customer's cart is.
    pub(crate) fn customer(&self, customer: usize) -> Scope {
        Scope::user(self.named(format_args!("customer-{customer}")))
    }

    /// What the sales reaction has counted of an item.
    pub(crate) fn sales(&self, item: &str) -> Result<Key> {
        Ok(Key::new("sales", [self.run.as_str(), item])?)
    }

    /// The scheduler. A name that others in the file have, too, would archive their tasks.
    pub(crate) fn scheduler(&self) -> String {
        self.named("shop")
    }

    /// Which fires of the schedule have run.
    pub(crate) fn takes(&self) -> Result<Key> {
        Ok(Key::new("stock-takes", [self.run.as_str()])?)
    }

    /// How many parcels have left so far: each is an event in the stream of its gate.
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

    /// The last part of a key, if it is a number.
    pub(crate) fn number(key: &Key) -> Option<u64> {
        match key.args().last() {
            Some(Arg::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }
}
