//! The shop: what its things are called, what is on its shelves, and what happens to an order. The parent and its workers share it.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock::workflow::Workflow;

use crate::random::Random;

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

/// How many of an item are on a shelf that was filled: so few that shelves run low also in a short demo.
const FULL: u32 = 120;
/// With less than this, more is ordered.
const LOW: u32 = 60;

/// Items, and the pieces of each. No two pieces have the same number, so that one which is lost does not make up for another one
/// which is there twice.
pub(crate) type Lines = BTreeMap<String, Vec<u64>>;

/// How many pieces there are in all.
pub(crate) fn pieces(lines: &Lines) -> u64 {
    lines.values().map(|pieces| pieces.len() as u64).sum()
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
    pub(crate) customer: usize,
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
    /// Which `RanLow` it answers, by its version; `None` for the first filling.
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

    /// Fills the shelf. Also a full one gets an event: whoever answers twice is to be seen.
    pub(crate) fn fill(&self, answers: Option<u64>) -> StockEvent {
        StockEvent::Received { count: FULL.saturating_sub(self.left), answers }
    }

    /// Whether more has been ordered, and has not come yet.
    pub(crate) fn is_low(&self) -> bool {
        self.low
    }
}

/// What was counted of the sales of one item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sales {
    /// Pieces.
    pub(crate) sold: u64,
    /// Sales: one for each order.
    pub(crate) sales: u64,
    /// Says which sales these are: the sum of a number for each. One that is missing does not make up for one that was counted twice.
    pub(crate) checksum: u64,
}

impl Sales {
    /// One sale.
    pub(crate) fn of(order: u64, count: u32) -> Self {
        let mark = Random::seeded(order.rotate_left(32) ^ u64::from(count)).next();
        // 32 bits: the sum of a million of them is still a number that every reader of JSON keeps whole.
        Self { sold: count.into(), sales: 1, checksum: mark >> 32 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.sold += other.sold;
        self.sales += other.sales;
        self.checksum += other.checksum;
    }

    /// How far two counts are apart; never 0 when they differ.
    pub(crate) fn apart(self, other: Self) -> u64 {
        let counted = self.sold.abs_diff(other.sold).max(self.sales.abs_diff(other.sales));
        counted.max(u64::from(self != other))
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

    /// Counts one sale.
    pub(crate) fn sell(&self, item: &str, sale: Sales) -> Result<Batch> {
        let counts = [("/sold", sale.sold), ("/sales", sale.sales), ("/checksum", sale.checksum)];
        let by = |(path, by)| Ok(Delta::inc(path, i64::try_from(by)?));
        let deltas: Vec<Delta> = counts.into_iter().map(by).collect::<Result<_>>()?;
        Ok(Batch::new().merge_or_create(&self.sales(item)?, Payload::of(&Sales::default())?, deltas))
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
